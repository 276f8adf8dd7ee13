"""What a controller writes in its term: nothing once another was elected.

Invariants: every write is conditional on the epoch that the term began with; what a state's write met instead is read and
told, never overwritten; a write that was interrupted is read back before it is tried again. Must not know what is
decided, nor who is told of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from headrace.broker.errors import UnknownServerError
from headrace.broker.replication import events
from headrace.broker.replication.model import PartitionState, ReplicaAssignment, TopicAssignment
from headrace.broker.server.membership.producer_ids import BLOCK_SIZE, next_block
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import paced
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.reads import read_states, understood
from headrace.broker.zk.znodes import (
    Check,
    Create,
    Delete,
    NoZnodeError,
    Operation,
    Set,
    ZnodeExistsError,
    ZnodeVersionError,
    ZooKeeperError,
)

logger = get_logger(__name__)
OPERATIONS_PER_TRANSACTION_MAX = 100
"""A request to ZooKeeper has 1 MiB at most (`jute.maxbuffer`), an operation with the longest of names some 700 bytes."""
OPERATIONS_IN_FLIGHT_MAX = 500
MADE_AT_ONCE = 100
"""Operations before others have their turn: half a millisecond."""


class ControllerMovedError(Exception):
    """Another broker was elected meanwhile."""


class Term:
    """One term; `epoch_version` is the version that `/controller_epoch` has as long as it lasts."""

    def __init__(self, zookeeper: ZooKeeperClient, *, epoch_version: int) -> None:
        self._zookeeper = zookeeper
        self._epoch_version = epoch_version

    async def perform(self, operation: Operation) -> None:
        """Raises ControllerMovedError when this term is over, else what the operation itself raises."""
        await self._transaction([operation])

    async def delete(self, path: str) -> None:
        """Delete the znode; nothing when there is none. Raises ControllerMovedError."""
        with contextlib.suppress(NoZnodeError):
            await self.perform(Delete(path))

    async def remove_topic(self, topic: str) -> None:
        """Delete the znodes of a topic, then the wish to delete it. Raises ControllerMovedError."""
        await self._zookeeper.delete_tree(paths.topic(topic), self.delete)
        await self.delete(paths.entity_config("topics", topic))
        await self.delete(paths.delete_topic(topic))

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

    async def write_assignments(
        self, changes: Mapping[PartitionKey, ReplicaAssignment]
    ) -> events.AssignmentsWritten:
        """Have the topics' znodes name these replicas; partitions that were added meanwhile stay. Raises ControllerMovedError."""
        topics: dict[str, dict[int, ReplicaAssignment]] = {}
        for (topic, partition), assignment in changes.items():
            topics.setdefault(topic, {})[partition] = assignment
        written: dict[PartitionKey, ReplicaAssignment | None] = dict.fromkeys(changes)
        for topic, partitions in topics.items():
            for partition in await self._assign(topic, partitions):
                written[topic, partition] = partitions[partition]
        return events.AssignmentsWritten(assignments=written)

    async def _assign(self, topic: str, partitions: Mapping[int, ReplicaAssignment]) -> Collection[int]:
        """Answers which of the partitions there are."""
        path = paths.topic(topic)
        while True:
            znode = await self._zookeeper.get(path)
            found = understood([znode], partial(paths.decode_topic, topic)) if znode is not None else []
            if znode is None or not found:
                return ()
            known = found[0].partitions
            changed = {p: a for p, a in partitions.items() if p in known}
            data = paths.encode_topic(replace(found[0], partitions={**known, **changed}))
            try:
                await self.perform(Set(path, data, znode.version))
            except (NoZnodeError, ZnodeVersionError):
                continue
            return changed

    async def forget_reassignments(self, partitions: Collection[PartitionKey]) -> None:
        """Take these out of `/admin/reassign_partitions`, and remove it when it names no others. Raises ControllerMovedError."""
        while True:
            znode = await self._zookeeper.get(paths.REASSIGNMENT)
            if znode is None:
                return
            (wished,) = understood([znode], paths.decode_reassignment) or [{}]
            left = {key: replicas for key, replicas in wished.items() if key not in partitions}
            try:
                if left:
                    await self.perform(
                        Set(paths.REASSIGNMENT, paths.encode_reassignment(left), znode.version)
                    )
                else:
                    await self.perform(Delete(paths.REASSIGNMENT, znode.version))
            except (NoZnodeError, ZnodeVersionError):
                continue
            return

    async def allocate_producer_ids(self, broker_id: int) -> tuple[int, int]:
        """(first id, count) of a block for that broker. Raises ControllerMovedError, and UnknownServerError."""
        while True:
            znode = await self._zookeeper.get(paths.PRODUCER_ID_BLOCK)
            if znode is None:
                await self._zookeeper.ensure(paths.PRODUCER_ID_BLOCK)
                continue
            try:
                first, data = await next_block(self._zookeeper, znode.data, broker_id)
            except paths.MalformedZnodeError as error:
                logger.error("no producer ids can be given out: repair the znode", reason=error)
                raise UnknownServerError(str(error)) from error
            with contextlib.suppress(ZnodeVersionError):
                await self.perform(Set(paths.PRODUCER_ID_BLOCK, data, znode.version))
                return first, BLOCK_SIZE

    async def write_states(self, writes: Sequence[events.StateWrite]) -> events.StatesWritten:
        """Write what nobody else changed; the outcome. Raises ControllerMovedError."""
        await self._make_parents([(w.topic, w.partition) for w in writes if w.create])
        written: dict[PartitionKey, PartitionState] = {}
        conflicts: dict[PartitionKey, PartitionState | None] = {}
        pending = list(writes)
        while pending:
            outcomes = await self._perform_each(await _operations(pending))
            failed: dict[PartitionKey, tuple[events.StateWrite, ZooKeeperError]] = {}
            async for write, outcome in paced(zip(pending, outcomes, strict=True), MADE_AT_ONCE):
                key = (write.topic, write.partition)
                if isinstance(outcome, ZooKeeperError):
                    failed[key] = write, outcome
                else:
                    version = 0 if write.create else outcome.version
                    written[key] = replace(write.state, zk_version=version)
            pending = []
            for key, state in (await read_states(self._zookeeper, list(failed))).items():
                write, error = failed[key]
                if state is not None and _same(state, write.state):
                    written[key] = state
                elif error.is_repeated and (state is None if write.create else _is_awaited(state, write)):
                    pending.append(write)
                else:
                    conflicts[key] = state
        return events.StatesWritten(written=written, conflicts=conflicts)

    async def _make_parents(self, keys: Sequence[PartitionKey]) -> None:
        """Nothing for those that are there, nor when their topic is gone: the states' own write will tell."""
        topics = dict.fromkeys(topic for topic, _ in keys)
        await self._perform_each([Create(paths.topic_partitions(topic)) for topic in topics])
        await self._perform_each([Create(paths.topic_partition(*key)) for key in keys])

    async def _perform_each(self, operations: Sequence[Operation]) -> list[Any]:
        """What ZooKeeper answers to each operation, or its error; many operations are one transaction, which is divided
        only when it fails. Raises ControllerMovedError.

        An error that `is_repeated` says nothing of the operation that it stands for.
        """
        found: list[Any] = []
        for first in range(0, len(operations), OPERATIONS_IN_FLIGHT_MAX):
            flight = operations[first : first + OPERATIONS_IN_FLIGHT_MAX]
            batches = [
                flight[start : start + OPERATIONS_PER_TRANSACTION_MAX]
                for start in range(0, len(flight), OPERATIONS_PER_TRANSACTION_MAX)
            ]
            for outcomes in await asyncio.gather(*map(self._perform_together, batches)):
                found += outcomes
        return found

    async def _perform_together(self, operations: Sequence[Operation]) -> list[Any]:
        try:
            return (await self._transaction(operations))[1:]
        except (NoZnodeError, ZnodeExistsError, ZnodeVersionError) as error:
            if error.is_repeated or len(operations) == 1:
                return [error] * len(operations)
        middle = len(operations) // 2
        return [
            *await self._perform_together(operations[:middle]),
            *await self._perform_together(operations[middle:]),
        ]

    async def _transaction(self, operations: Sequence[Operation]) -> list[Any]:
        """Perform all or none, the check of the epoch before them."""
        check = Check(paths.CONTROLLER_EPOCH, self._epoch_version)
        try:
            return await self._zookeeper.transaction([check, *operations])
        except (NoZnodeError, ZnodeVersionError) as error:
            if error.index == 0:
                raise ControllerMovedError("the controller's epoch has grown") from error
            raise


async def _operations(writes: Sequence[events.StateWrite]) -> list[Operation]:
    """Made some at a time, for others wait meanwhile."""
    return [_operation(write) async for write in paced(writes, MADE_AT_ONCE)]


def _operation(write: events.StateWrite) -> Operation:
    path = paths.partition_state(write.topic, write.partition)
    data = paths.encode_partition_state(write.state)
    return Create(path, data) if write.create else Set(path, data, write.state.zk_version)


def _is_awaited(found: PartitionState | None, write: events.StateWrite) -> bool:
    """Whether the znode still holds what is to be replaced."""
    return found is not None and found.zk_version == write.state.zk_version


def _same(found: PartitionState, wanted: PartitionState) -> bool:
    """Whether the znode holds what was to be written; its version says nothing about that."""
    return replace(found, zk_version=wanted.zk_version) == wanted
