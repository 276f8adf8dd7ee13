"""The registries of one source's group in the target's ZooKeeper, laid out as Kafka's old consumers had theirs.

    /consumers/headrace.mirror.<source>/ids/<member>                  who is there (ephemeral)
    /consumers/headrace.mirror.<source>/owners/<topic>/<partition>    whose it is (ephemeral)
    /consumers/headrace.mirror.<source>/offsets/<topic>/<partition>   how far it is (see `position`)

Invariants: a znode of an earlier session of this process is nobody's word; positions are written by compare and set.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.subscription import Subscription
from headrace.broker.zk.znodes import ZnodeExistsError
from headrace.mirror.aggregate import position
from headrace.mirror.aggregate.position import Position


class Registry:
    """Every method may raise ZooKeeperError."""

    def __init__(self, zookeeper: ZooKeeperClient, source: str, member: str) -> None:
        self._zookeeper = zookeeper
        self._group = f"/consumers/headrace.mirror.{source}"
        self._member = member

    def watch_members(self, callback: Callable[[list[str]], None]) -> Subscription:
        """Call `callback(members)` now and after each change."""
        return self._zookeeper.watch_children(f"{self._group}/ids", callback)

    async def register(self) -> None:
        """Enter this member, in this session."""
        await self._zookeeper.ensure(f"{self._group}/ids")
        path = f"{self._group}/ids/{self._member}"
        while not await self._create(path):
            # Of this process' last session, which nobody else can mean by the name.
            await self._zookeeper.delete(path)

    async def claim(self, key: PartitionKey) -> bool:
        """Enter this member as the owner; False where somebody else is."""
        await self._zookeeper.ensure(f"{self._group}/owners/{key[0]}")
        return await self._create(self._owner(key))

    async def give_up(self, key: PartitionKey) -> None:
        """Own it no more, if this session does."""
        if await self._is_own(self._owner(key)):
            await self._zookeeper.delete(self._owner(key))

    async def _create(self, path: str) -> bool:
        try:
            await self._zookeeper.create(path, self._member.encode(), ephemeral=True)
        except ZnodeExistsError:
            return await self._is_own(path)
        return True

    async def _is_own(self, path: str) -> bool:
        znode = await self._zookeeper.get(path)
        return znode is not None and znode.ephemeral_owner == self._zookeeper.session_id

    def _owner(self, key: PartitionKey) -> str:
        return f"{self._group}/owners/{key[0]}/{key[1]}"

    def _offset(self, key: PartitionKey) -> str:
        return f"{self._group}/offsets/{key[0]}/{key[1]}"

    async def read(self, key: PartitionKey) -> tuple[Position, int] | None:
        """The position and its znode's version; raises MalformedPositionError."""
        znode = await self._zookeeper.get(self._offset(key))
        return None if znode is None else (position.decode(znode.data), znode.version)

    async def begin(self, key: PartitionKey, first: Position) -> tuple[Position, int]:
        """The first position, or what somebody else was faster with."""
        await self._zookeeper.ensure(self._offset(key), first.encode())
        found = await self.read(key)
        assert found is not None, "it was just ensured"
        return found

    async def write(self, key: PartitionKey, found: Position, version: int) -> int:
        """The new version; raises ZnodeVersionError where somebody else wrote meanwhile."""
        return await self._zookeeper.set(self._offset(key), found.encode(), version)
