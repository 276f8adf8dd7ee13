"""A connection that kazoo gave up for good, opened again: after a refused log-in, or an error that its thread does not expect.

Invariants: tried each second until there is a session, with the log-in that the JAAS file gives by then; what was wrong is said
once until then. Runs on the broker's loop, but for kazoo's start, which waits for threads.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from kazoo.protocol.states import KeeperState

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.structured_log import get_logger
from headrace.broker.zk.access import ZooKeeperAccess

PAUSE_S = 1.0
_GIVEN_UP = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
logger = get_logger(__name__)


class Reopening:
    """`is_refused`: the last log-in was refused. `access` is whom kazoo logs in as at first."""

    def __init__(self, kazoo: Any, access: ZooKeeperAccess) -> None:
        self._kazoo = kazoo
        self._access = access
        self._timer: asyncio.TimerHandle | None = None
        self._start: asyncio.Future[Any] | None = None
        self.is_refused = False

    def refused(self) -> None:
        """ZooKeeper does not know this log-in."""
        if not self.is_refused:
            logger.error("ZooKeeper refuses the log-in: correct the JAAS file", user=self._access.user)
        self.is_refused = True

    def lost(self, loop: asyncio.AbstractEventLoop) -> None:
        """There is no session; may be called as often as that is told."""
        if self._timer is not None or self._kazoo.client_state not in _GIVEN_UP:
            return
        logger.error("the session with ZooKeeper failed for good, another one is tried each second")
        self._timer = loop.call_later(PAUSE_S, self._again, loop)

    def opened(self) -> None:
        """There is a session."""
        self.is_refused = False
        self._stop_timer()

    async def end(self) -> None:
        """Nothing is started after this."""
        self._stop_timer()
        if self._start is not None:
            await asyncio.wait([self._start])

    def _again(self, loop: asyncio.AbstractEventLoop) -> None:
        is_starting = self._start is not None and not self._start.done()
        if not is_starting and self._kazoo.client_state in _GIVEN_UP:
            self._take_login()
            self._start = loop.run_in_executor(None, self._started)
        self._timer = loop.call_later(PAUSE_S, self._again, loop)

    def _take_login(self) -> None:
        try:
            renewed = self._access.renewed()
        except ConfigurationError:
            # Somebody may be writing it just now.
            return
        if renewed != self._access:
            self._access = renewed
            self._kazoo.log_in_as(renewed.user, renewed.password)

    def _started(self) -> None:
        try:
            self._kazoo.start_async()
        except Exception as error:  # of no class of its own: kazoo's thread may still be ending
            logging.getLogger("headrace.zookeeper").warning("not opened: %s", error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
