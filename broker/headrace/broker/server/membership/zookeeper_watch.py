"""How this broker stands with ZooKeeper, for its log and its metrics.

Told when ZooKeeper goes away, while it is away, and when it is back; the same of a ZooKeeper that is not this cluster's.
The pauses between two lines double, up to `REPEAT_S_MAX`, so that an outage of hours is no flood. An idle broker is not
woken: there is a timer only while something is wrong.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle

from headrace.broker.clock import Clock
from headrace.broker.structured_log import get_logger
from headrace.broker.zk.client import SessionListener

logger = get_logger(__name__)
STILL_AWAY = (
    "ZooKeeper still does not answer, clients are served from memory: look whether it runs; one that lost its data "
    "refuses this broker, too"
)
REPEAT_S_MIN, REPEAT_S_MAX = 3.0, 60.0


class ZooKeeperWatch(SessionListener):
    """All methods run on the loop."""

    def __init__(self, clock: Clock, servers: str) -> None:
        self._clock = clock
        self._servers = servers
        self._loop: AbstractEventLoop | None = None
        self._timer: TimerHandle | None = None
        self._pause_s = REPEAT_S_MIN
        self._trouble = ""
        self._since_ms: int | None = None
        self.is_connected = False
        self.is_registered = False
        self.sessions = 0

    def connecting(self, loop: AbstractEventLoop) -> None:
        """The first session is being opened."""
        self._loop = loop
        logger.info("connecting to ZooKeeper", servers=self._servers)
        self._begin("ZooKeeper does not answer, this broker cannot start without it")

    def close(self) -> None:
        """No further lines."""
        self._loop = None
        self._stop_timer()

    @property
    def away_s(self) -> float:
        """For how long ZooKeeper has not answered, or has not been this cluster's; 0 while all is well."""
        return 0.0 if self._since_ms is None else (self._clock.monotonic_ms() - self._since_ms) / 1000

    def session_started(self) -> None:
        """ZooKeeper answers; what this broker had registered, if anything, is gone with the session before."""
        self.sessions += 1
        self.is_registered = False
        self._answers("ZooKeeper answers" if self.sessions == 1 else "ZooKeeper answers again")

    def session_suspended(self) -> None:
        """ZooKeeper does not answer; said once, though a session that ends then is one more word of the client's."""
        if self.is_connected:
            self.is_connected = False
            logger.warning("ZooKeeper does not answer, clients are served from memory", servers=self._servers)
            self._begin(STILL_AWAY)

    def session_resumed(self) -> None:
        """ZooKeeper is back and the session lives."""
        self._answers("ZooKeeper answers again")

    def foreign(self, trouble: str) -> None:
        """ZooKeeper answers, and is not this cluster's; may be called as often as that is seen."""
        if self._trouble != trouble:
            logger.error(trouble, servers=self._servers)
            self._begin(trouble)

    def registered(self) -> None:
        """This broker is registered in its cluster."""
        self.is_registered = True
        if self._since_ms is not None:
            self._end("ZooKeeper is this cluster's again")

    def _answers(self, event: str) -> None:
        if not self.is_connected:
            self.is_connected = True
            self._end(event)

    def _begin(self, trouble: str) -> None:
        if self._since_ms is None:
            self._since_ms = self._clock.monotonic_ms()
        self._trouble = trouble
        self._pause_s = REPEAT_S_MIN
        self._arm()

    def _end(self, event: str) -> None:
        logger.info(event, servers=self._servers, seconds=round(self.away_s, 1))
        self._trouble, self._since_ms = "", None
        self._stop_timer()

    def _arm(self) -> None:
        self._stop_timer()
        if self._loop is not None:
            self._timer = self._loop.call_later(self._pause_s, self._tell)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self) -> None:
        logger.warning(self._trouble, servers=self._servers, seconds=round(self.away_s, 1))
        self._pause_s = min(self._pause_s * 2, REPEAT_S_MAX)
        self._arm()
