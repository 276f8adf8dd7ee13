"""What a controller writes in its term: nothing once another was elected.

Invariants: every write is conditional on the epoch that the term began with; what a state's write met is read and told,
never overwritten. Must not know what is decided, nor who is told of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from uuid import uuid4

from headrace.broker.replication import events
from headrace.broker.replication.model import PartitionState, TopicAssignment
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.zk import paths
from headrace.broker.zk.client import (
    Check,
    Create,
    Delete,
    NoZnodeError,
    Operation,
    Set,
    ZnodeExistsError,
    ZnodeVersionError,
    ZooKeeperClient,
)
from headrace.broker.zk.reads import READS_IN_FLIGHT_MAX, read_states, understood

logger = get_logger(__name__)


class ControllerMovedError(Exception):
    """Another broker was elected meanwhile."""


class Term:
    """One term; `epoch_version` is the version that `/controller_epoch` has as long as it lasts."""

    def __init__(self, zookeeper: ZooKeeperClient, *, epoch_version: int) -> None:
        self._zookeeper = zookeeper
        self._epoch_version = epoch_version

    async def perform(self, operation: Operation) -> None:
        """Raises ControllerMovedError when this term is over, else what the operation itself raises."""
        try:
            await self._zookeeper.transaction([Check(paths.CONTROLLER_EPOCH, self._epoch_version), operation])
        except (NoZnodeError, ZnodeExistsError, ZnodeVersionError):
            await self.check()
            raise

    async def delete(self, path: str) -> None:
        """Delete the znode; nothing when there is none. Raises ControllerMovedError."""
        with contextlib.suppress(NoZnodeError):
            await self.perform(Delete(path))

    async def remove_topic(self, topic: str) -> None:
        """Delete the znodes of a topic, then the wish to delete it. Raises ControllerMovedError."""
        await self._zookeeper.delete_tree(paths.topic(topic), self.delete)
        await self.delete(paths.entity_config("topics", topic))
        await self.delete(paths.delete_topic(topic))

    async def check(self) -> None:
        """Raises ControllerMovedError when the epoch is no longer this term's."""
        znode = await self._zookeeper.get(paths.CONTROLLER_EPOCH)
        if znode is None or znode.version != self._epoch_version:
            raise ControllerMovedError("the controller's epoch has grown")

    async def identify(self, topics: Mapping[str, TopicAssignment]) -> dict[str, TopicAssignment]:
        """These topics, with ids for those that have none, as tools before KIP-516 make them. Raises ControllerMovedError.

        One that somebody changes meanwhile stays without: whoever watches it hears of it again.
        """
        nameless = [name for name, topic in topics.items() if topic.topic_id == ZERO_UUID]
        return {**topics, **{name: await self._identified(topics[name]) for name in nameless}}

    async def _identified(self, topic: TopicAssignment) -> TopicAssignment:
        path = paths.topic(topic.topic)
        znode = await self._zookeeper.get(path)
        if znode is None or understood([znode], partial(paths.decode_topic, topic.topic)) != [topic]:
            return topic
        identified = replace(topic, topic_id=uuid4())
        try:
            await self.perform(Set(path, paths.encode_topic(identified), znode.version))
        except (NoZnodeError, ZnodeVersionError):
            return topic
        return identified

    async def write_states(self, writes: Sequence[events.StateWrite]) -> events.StatesWritten:
        """Write what nobody else changed; the outcome. Raises ControllerMovedError."""
        for topic in sorted({w.topic for w in writes if w.create}):
            await self._create_if_missing(paths.topic_partitions(topic))
        written: dict[PartitionKey, PartitionState] = {}
        conflicts: dict[PartitionKey, PartitionState | None] = {}
        for first in range(0, len(writes), READS_IN_FLIGHT_MAX):
            batch = writes[first : first + READS_IN_FLIGHT_MAX]
            for write, state in zip(batch, await asyncio.gather(*map(self._write_state, batch)), strict=True):
                key = (write.topic, write.partition)
                if state is not None and _same(state, write.state):
                    written[key] = state
                else:
                    conflicts[key] = state
        return events.StatesWritten(written=written, conflicts=conflicts)

    async def _write_state(self, write: events.StateWrite) -> PartitionState | None:
        """The state that the znode holds afterwards: the wanted one, or what somebody else wrote."""
        path = paths.partition_state(write.topic, write.partition)
        data = paths.encode_partition_state(write.state)
        try:
            if write.create:
                await self._create_if_missing(paths.topic_partition(write.topic, write.partition))
                await self.perform(Create(path, data))
            else:
                await self.perform(Set(path, data, write.state.zk_version))
        except (NoZnodeError, ZnodeExistsError, ZnodeVersionError):
            logger.debug("partition state is another one", topic=write.topic, partition=write.partition)
        return (await read_states(self._zookeeper, [(write.topic, write.partition)]))[
            write.topic, write.partition
        ]

    async def _create_if_missing(self, path: str) -> None:
        """Nothing when it is there, nor when its topic is gone: the state's own write will tell."""
        try:
            await self.perform(Create(path))
        except (NoZnodeError, ZnodeExistsError):
            return


def _same(found: PartitionState, wanted: PartitionState) -> bool:
    """Whether the znode holds what was to be written; its version says nothing about that."""
    return replace(found, zk_version=wanted.zk_version) == wanted
