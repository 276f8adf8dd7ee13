"""Offsets that version 0 of OffsetCommit keeps in ZooKeeper: `/consumers/<group>/offsets/<topic>/<partition>`.

Invariant: a write creates what is missing on the way to it. Must not know groups: anybody may commit anything.
"""

from __future__ import annotations

from headrace.broker.errors import InvalidGroupIdError
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.znodes import NoZnodeError, ZooKeeperError


class ZooKeeperOffsets:
    """Reads and writes single offsets."""

    def __init__(self, zookeeper: ZooKeeperClient) -> None:
        self._zookeeper = zookeeper

    async def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Store an offset. Raises InvalidGroupIdError, ZooKeeperError."""
        _check(group)
        path = paths.consumer_offset(group, topic, partition)
        data = str(offset).encode()
        try:
            await self._zookeeper.set(path, data)
        except NoZnodeError:
            await self._zookeeper.ensure(path, data)
            await self._zookeeper.set(path, data)

    async def fetch(self, group: str, topic: str, partition: int) -> int | None:
        """The offset, or None when there is none. Raises InvalidGroupIdError, ZooKeeperError."""
        _check(group)
        path = paths.consumer_offset(group, topic, partition)
        znode = await self._zookeeper.get(path)
        return None if znode is None else paths.decode_consumer_offset(path, znode.data)

    async def of_group(self, group: str) -> dict[tuple[str, int], int]:
        """All offsets of a group by (topic, partition). Raises InvalidGroupIdError, ZooKeeperError."""
        _check(group)
        found: dict[tuple[str, int], int] = {}
        for topic in await self._zookeeper.children(paths.consumer_offsets(group)):
            names = await self._zookeeper.children(paths.consumer_topic(group, topic))
            for name in filter(str.isdecimal, names):
                offset = await self.fetch(group, topic, int(name))
                if offset is not None:
                    found[topic, int(name)] = offset
        return found

    async def forget(self, group: str) -> None:
        """Delete a group's offsets, and the group when nothing else is known of it."""
        await self._zookeeper.delete_tree(paths.consumer_offsets(group))
        if not await self._zookeeper.children(paths.consumer_group(group)):
            try:
                await self._zookeeper.delete(paths.consumer_group(group))
            except ZooKeeperError:
                # Somebody has just come back; what is left is theirs.
                return


def _check(group: str) -> None:
    if not paths.is_name(group):
        raise InvalidGroupIdError(
            f"the group {group!r} has no place in ZooKeeper: its name must be that of a znode"
        )
