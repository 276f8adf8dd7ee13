"""The member's own ZooKeeper session, and the lease that it gives: a broker's session is the broker's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.broker.clock import Clock
from headrace.broker.zk.client import SessionListener, ZooKeeperClient
from headrace.broker.zk.znodes import ZooKeeperError
from headrace.mirror.aggregate.lease import Lease

RENEWALS = 6
"""So often in the time that a session may be silent."""


class Session(SessionListener):
    """`lost` is called on the loop before anybody else has a turn."""

    def __init__(self, zookeeper: ZooKeeperClient, timeout_ms: int, clock: Clock) -> None:
        self._zookeeper = zookeeper
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._lease = Lease(timeout_ms)
        self._callbacks: list[Callable[[], None]] = []
        zookeeper.add_listener(self)

    @property
    def number(self) -> int:
        return self._zookeeper.session_id

    @property
    def is_sure(self) -> bool:
        """Whether nobody else can own now what this session's member does."""
        return self._lease.holds(self._clock.monotonic_ms())

    def on_lost(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def session_started(self) -> None:
        self._lease.ended()
        for callback in self._callbacks:
            callback()

    async def renew_often(self) -> None:
        """Ask ZooKeeper something again and again, for as long as the member lives."""
        while True:
            number, asked_ms = self.number, self._clock.monotonic_ms()
            try:
                await self._zookeeper.get("/consumers")
            except ZooKeeperError:
                self._lease.ended()
            else:
                if self.number == number:
                    self._lease.renewed(asked_ms)
            await asyncio.sleep(self._timeout_ms / RENEWALS / 1000)
