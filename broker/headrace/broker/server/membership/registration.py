"""This broker's ephemeral znode under `/brokers/ids`: made in each session, taken over from a dead predecessor.

Invariants: a registration of this id and the same endpoints in another session is one of an earlier life of this broker,
since nobody else can have bound them; any other one is left alone. No two brokers stay registered with one address, else
clients would find the wrong one behind it. `epoch` is that of the last registration (KIP-380).
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from headrace.broker.addresses import address_text
from headrace.broker.clock import Clock
from headrace.broker.replication.model import Broker
from headrace.broker.structured_log import get_logger
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.reads import read_brokers, understood
from headrace.broker.zk.znodes import ZnodeExistsError, ZooKeeperClosedError, ZooKeeperError

logger = get_logger(__name__)
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
        """Register for the first time. Raises ZooKeeperError when another broker has the id or an endpoint."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        is_told = False
        while obstacle := await self._register():
            if self._clock.monotonic_ms() > deadline_ms:
                raise ZooKeeperError(obstacle)
            if not is_told:
                logger.warning("cannot register yet, trying again", timeout_ms=timeout_ms, reason=obstacle)
                is_told = True
            await asyncio.sleep(PAUSE_SECONDS)

    async def renew(self) -> bool:
        """Register in a new session; False, after a pause, when it has to be tried again."""
        try:
            obstacle = await self._register()
            if obstacle is None:
                return True
            logger.warning("cannot register, trying again", broker=self._broker.broker_id, reason=obstacle)
        except ZooKeeperClosedError:
            raise
        except ZooKeeperError as error:
            logger.error("cannot register, trying again", broker=self._broker.broker_id, reason=error)
        await asyncio.sleep(PAUSE_SECONDS)
        return False

    async def _register(self) -> str | None:
        """Register; else a sentence about what is in the way.

        Of two brokers that register one endpoint at the same time, the one that came later goes away again.
        """
        broker_id = self._broker.broker_id
        path = paths.broker(broker_id)
        if taken := await self._taken_endpoint():
            return taken
        data = paths.encode_broker(self._broker, jmx_port=-1, now_ms=self._clock.now_ms())
        with contextlib.suppress(ZnodeExistsError):
            await self._zookeeper.create(path, data, ephemeral=True)
        znode = await self._zookeeper.get(path)
        if znode is None:
            return f"the registration of broker id {broker_id} went away"
        if znode.ephemeral_owner != self._zookeeper.session_id:
            found = understood([znode], lambda data: paths.decode_broker(broker_id, data, -1))
            if [broker.endpoints for broker in found] == [self._broker.endpoints]:
                await self._zookeeper.delete(path, znode.version)
                return f"broker id {broker_id} was still registered by its last session: it is taken off"
            return (
                f"broker id {broker_id} is in use by another broker of this cluster: "
                "give this one a broker.id of its own"
            )
        if taken := await self._taken_endpoint(before_epoch=znode.creation_zxid):
            await self._zookeeper.delete(path, znode.version)
            return taken
        if znode.ephemeral_owner != self._zookeeper.session_id:
            return f"the session in which broker id {broker_id} was registered is over"
        self._broker = replace(self._broker, epoch=znode.creation_zxid)
        logger.info("registered", broker=broker_id, epoch=self.epoch)
        return None

    async def _taken_endpoint(self, before_epoch: int | None = None) -> str | None:
        """A sentence when another broker, registered before that epoch if one is given, has an address of ours."""
        names = await self._zookeeper.children(paths.BROKER_IDS)
        others = await read_brokers(self._zookeeper, [n for n in names if n != str(self._broker.broker_id)])
        own = _addresses(self._broker)
        for broker in others.values():
            common = own & _addresses(broker)
            if common and (before_epoch is None or broker.epoch < before_epoch):
                return (
                    f"Configured end points {','.join(sorted(common))} in advertised listeners are already registered by "
                    f"broker {broker.broker_id}: give each broker an address of its own in advertised.listeners"
                )
        return None


def _addresses(broker: Broker) -> set[str]:
    return {address_text(endpoint.host, endpoint.port) for endpoint in broker.endpoints}
