"""How the rounds of a process go that works in rounds, and whether it is ready, for its probes and its metrics.

Ready is who has finished a round, or gone on within one, not long ago; a round that had nothing to work on is none. One that
is not ready says why. Invariant: written by the thread that works, read by the one that serves pages; each field is one value.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace.broker.outage import Outage
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)
STALE_S_MAX: Final = 60.0
"""How long a process stays ready without going on: longer than a broker's restart."""

JSON: Final = "application/json"


class Rounds:
    """A prometheus_client collector, and the pages /live and /ready; `prefix` begins its metrics' names."""

    def __init__(self, prefix: str, interval_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._prefix = prefix
        self._stale_s = STALE_S_MAX + interval_s
        self._now = now
        self._went_on_at: float | None = None
        self._ended_at: float | None = None
        self._seconds = 0.0
        self._ended = self._failed = 0
        self._outage = Outage()
        self.reason = "its first round has not ended"
        """Why it is not ready, where it is not."""

    @property
    def is_ready(self) -> bool:
        return self._went_on_at is not None and self._now() - self._went_on_at < self._stale_s

    def went_on(self) -> None:
        """A round that is not over yet has done lasting work."""
        self._went_on_at = self._now()

    def ended(self, seconds: float, hindrance: str = "") -> None:
        """A round is over; with a hindrance it had nothing that it could work on."""
        self._ended += 1
        self._seconds = seconds
        self._ended_at = self._now()
        self.reason = hindrance
        if self._outage.is_over(self._now_ms()):
            logger.info("rounds end again", failed=self._outage.count, seconds=self._outage.seconds)
            self._outage = Outage()
        if not hindrance:
            self.went_on()

    def failed(self, *errors: object) -> None:
        """A round could not be ended; it is said in the log as an outage is."""
        self._failed += 1
        self.reason = str(errors[0])
        outage = self._outage
        if outage.failed(self._now_ms()):
            for error in errors:
                logger.warning("round incomplete", reason=error, failed=outage.count, seconds=outage.seconds)

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    async def live(self) -> tuple[HTTPStatus, str, bytes]:
        """The answer to GET /live."""
        return HTTPStatus.OK, JSON, b'{"live": true}\n'

    async def ready(self) -> tuple[HTTPStatus, str, bytes]:
        """The answer to GET /ready: 200, or 503 with the reason."""
        is_ready = self.is_ready
        told: dict[str, object] = {"ready": is_ready, "rounds": self._ended, "failed_rounds": self._failed}
        if self.reason:
            told["reason"] = self.reason
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return status, JSON, json.dumps(told).encode() + b"\n"

    def collect(self) -> Iterator[Metric]:
        """The page's families."""
        prefix = self._prefix
        yield GaugeMetricFamily(f"{prefix}_ready", "1 while /ready answers 200.", self.is_ready)
        yield CounterMetricFamily(f"{prefix}_rounds", "Rounds ended.", self._ended)
        yield CounterMetricFamily(f"{prefix}_failed_rounds", "Rounds that could not be ended.", self._failed)
        yield GaugeMetricFamily(f"{prefix}_round_seconds", "How long the last round took.", self._seconds)
        if self._ended_at is not None:
            yield GaugeMetricFamily(
                f"{prefix}_seconds_since_last_round",
                "How long ago the last round ended.",
                self._now() - self._ended_at,
            )
