"""This broker as a member of its cluster: the ZooKeeper session, the cluster's id, the broker's own, its registration.

Invariants: a new session registers the broker again before anything else is done in it; where ZooKeeper holds another
cluster, or lost this one's data, the broker registers nowhere. Must not know what a registered broker does.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from uuid import uuid4

from headrace.broker.clock import Clock
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.replication.model import Broker, Endpoint
from headrace.broker.server.mailbox import Mailbox
from headrace.broker.server.membership.registration import PAUSE_SECONDS, Registration
from headrace.broker.server.membership.zookeeper_watch import ZooKeeperWatch
from headrace.broker.structured_log import get_logger
from headrace.broker.zk import paths
from headrace.broker.zk.client import SessionListener, ZooKeeperClient

logger = get_logger(__name__)


class Membership(SessionListener):
    """The member; `mailbox` does what a new session makes necessary."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, zookeeper: ZooKeeperClient, mailbox: Mailbox
    ) -> None:
        self._config = config
        self._clock = clock
        self._zookeeper = zookeeper
        self._mailbox = mailbox
        self.watch = ZooKeeperWatch(clock, config.zookeeper.zookeeper_connect or "")
        zookeeper.add_listener(self.watch)
        self._registration: Registration | None = None
        self._session_callbacks: list[Callable[[], None]] = []
        self._registered_callbacks: list[Callable[[], Awaitable[None]]] = []
        self.broker_id = config.broker_id
        self.cluster_id = ""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 before it."""
        return -1 if self._registration is None else self._registration.epoch

    def on_session(self, callback: Callable[[], None]) -> None:
        """Call `callback()` when a new session began, in which this broker is not registered yet."""
        self._session_callbacks.append(callback)

    def on_registered(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Await `callback()` after each registration."""
        self._registered_callbacks.append(callback)

    async def connect(self, stored_broker_id: int | None) -> None:
        """Open the session; afterwards `broker_id` and `cluster_id` are known. Raises ZooKeeperError with a sentence.

        `stored_broker_id` is the id in this broker's `meta.properties`: it stands when `broker.id` is -1.
        """
        self.watch.connecting(asyncio.get_running_loop())
        await self._zookeeper.connect()
        for path in paths.PERSISTENT_PATHS:
            await self._zookeeper.ensure(path)
        self.cluster_id = await self._find_cluster_id()
        if self.broker_id < 0:
            self.broker_id = (
                stored_broker_id if stored_broker_id is not None else await self._next_broker_id()
            )

    async def register(self, endpoints: Sequence[Endpoint]) -> None:
        """Register this broker under its advertised endpoints, from now on in every session.

        Raises ZooKeeperError when another broker uses this broker's id.
        """
        broker = Broker(
            broker_id=self.broker_id,
            epoch=-1,
            endpoints=tuple(endpoints),
            rack=self._config.network.broker_rack,
        )
        self._registration = Registration(self._zookeeper, self._clock, broker)
        await self._registration.begin(2 * self._config.zookeeper.zookeeper_session_timeout_ms)
        # Before anybody else has a turn: the session may end while the others are told.
        self._zookeeper.add_listener(self)
        await self._registered()

    async def close(self) -> None:
        """End the session."""
        self.watch.close()
        await self._zookeeper.close()

    def session_started(self) -> None:
        """The last session is over: register again."""
        logger.warning("new ZooKeeper session, this broker registers again", broker=self.broker_id)
        for callback in self._session_callbacks:
            callback()
        self._mailbox.post(self._register_again)

    async def _registered(self) -> None:
        self.watch.registered()
        for callback in self._registered_callbacks:
            await callback()

    async def _register_again(self) -> None:
        assert self._registration is not None, "register makes it"
        if not await self._is_own_cluster() or not await self._registration.renew():
            self._mailbox.post(self._register_again)
            return
        await self._registered()

    async def _is_own_cluster(self) -> bool:
        """Whether ZooKeeper knows this cluster; False, after a pause, when it lost its data or is another's."""
        znode = await self._zookeeper.get(paths.CLUSTER_ID)
        found = None if znode is None else paths.decode_cluster_id(znode.data)
        if found == self.cluster_id:
            return True
        self.watch.foreign(
            f"ZooKeeper holds {'no cluster.id' if found is None else f'cluster.id={found}'}, and this broker's is "
            f"{self.cluster_id}: check zookeeper.connect, or restore ZooKeeper's data; until then this broker "
            "registers nowhere"
        )
        await asyncio.sleep(PAUSE_SECONDS)
        return False

    async def _find_cluster_id(self) -> str:
        znode = await self._zookeeper.get(paths.CLUSTER_ID)
        if znode is None:
            new_id = base64.urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
            await self._zookeeper.ensure(paths.CLUSTER_ID, paths.encode_cluster_id(new_id))
            znode = await self._zookeeper.get(paths.CLUSTER_ID)
        assert znode is not None, "it was just ensured"
        return paths.decode_cluster_id(znode.data)

    async def _next_broker_id(self) -> int:
        """The version of `/brokers/seqid` after a write is a number that no other broker gets."""
        version = await self._zookeeper.set(paths.BROKER_SEQUENCE_ID, b"")
        return version + self._config.network.reserved_broker_max_id
