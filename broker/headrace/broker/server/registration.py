"""This broker's ephemeral znode under `/brokers/ids`: made in each session, taken over from a dead predecessor.

Invariants: a registration of the same endpoints in another session is one of an earlier life of this broker, since
nobody else can have bound them; any other one is left alone. `epoch` is that of the last registration (KIP-380).
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from headrace.broker.clock import Clock
from headrace.broker.replication.model import Broker
from headrace.broker.structured_log import get_logger
from headrace.broker.zk import paths
from headrace.broker.zk.client import (
    ZnodeExistsError,
    ZooKeeperClient,
    ZooKeeperClosedError,
    ZooKeeperError,
)
from headrace.broker.zk.reads import understood

log = get_logger(__name__)
PAUSE_SECONDS = 0.5


class Registration:
    """The registration of `broker`, whose epoch does not matter."""

    def __init__(self, zookeeper: ZooKeeperClient, clock: Clock, broker: Broker) -> None:
        self._zookeeper = zookeeper
        self._clock = clock
        self._broker = broker

    @property
    def epoch(self) -> int:
        """The creation zxid of the registration; -1 before the first."""
        return self._broker.epoch

    async def begin(self, timeout_ms: int) -> None:
        """Register for the first time. Raises ZooKeeperError when another broker has the id."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while not await self._register():
            if self._clock.monotonic_ms() > deadline_ms:
                raise ZooKeeperError(
                    f"broker id {self._broker.broker_id} is in use by another broker of this cluster: "
                    "give this one a broker.id of its own"
                )
            await asyncio.sleep(PAUSE_SECONDS)

    async def renew(self) -> bool:
        """Register in a new session; False, after a pause, when it has to be tried again."""
        try:
            if await self._register():
                return True
            log.warning("another session holds this broker's id, trying again", broker=self._broker.broker_id)
        except ZooKeeperClosedError:
            raise
        except ZooKeeperError as error:
            log.error("cannot register, trying again", broker=self._broker.broker_id, reason=error)
        await asyncio.sleep(PAUSE_SECONDS)
        return False

    async def _register(self) -> bool:
        """Register; False while another session holds the id."""
        broker_id = self._broker.broker_id
        path = paths.broker(broker_id)
        data = paths.encode_broker(self._broker, jmx_port=-1, now_ms=self._clock.now_ms())
        with contextlib.suppress(ZnodeExistsError):
            await self._zookeeper.create(path, data, ephemeral=True)
        znode = await self._zookeeper.get(path)
        if znode is None:
            return False
        if znode.ephemeral_owner != self._zookeeper.session_id:
            found = understood([znode], lambda data: paths.decode_broker(broker_id, data, -1))
            if [broker.endpoints for broker in found] == [self._broker.endpoints]:
                await self._zookeeper.delete(path, znode.version)
            return False
        self._broker = replace(self._broker, epoch=znode.creation_zxid)
        log.info("registered", broker=broker_id, epoch=self.epoch)
        return True
