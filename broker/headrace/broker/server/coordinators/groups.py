"""The group coordinator of this broker: the runtime of groups on the partitions of `__consumer_offsets` that it leads.

Requests go to the shard of their group; what concerns all groups (retention, deleted topics) goes through them in
slices, so that no turn of the loop is long. Must not know what a group is: that is `groups.machine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from headrace.broker.clock import Clock
from headrace.broker.config.sections import Groups
from headrace.broker.coordinators.runtime import Runtime, Scheduler, TimerHandle, TopicTable
from headrace.broker.coordinators.topics import OFFSETS_TOPIC
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import (
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    GroupOverview,
    OffsetRetentionDue,
    Request,
    TopicsDeleted,
    TransactionEnded,
)
from headrace.broker.groups.kind import GroupKind
from headrace.broker.groups.machine import Shard
from headrace.broker.groups.refusals import refusal
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.replication.partition import Partition
from headrace.broker.server.coordinators.journal import PartitionJournal
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.parking import Waiting

GROUP_ID_SIZE_MAX = 32_000
# Groups that one turn of the loop looks through for expired or deleted offsets.
GROUPS_SLICE_COUNT = 200

Answer = TypeVar("Answer")


class LedPartitions(Protocol):
    """What the coordinator needs of this broker's partitions."""

    def led(self) -> Iterable[Partition]: ...

    def on_change(self, callback: Callable[[Partition], None]) -> None: ...


class KnownTopics(TopicTable, Protocol):
    """What the coordinator needs of the metadata cache."""

    def topic_names(self) -> Iterable[str]: ...

    def on_change(self, callback: Callable[[], None]) -> None: ...


class GroupCoordinator:
    """All groups whose `__consumer_offsets` partition this broker leads."""

    def __init__(
        self,
        config: Groups,
        *,
        clock: Clock,
        partitions: LedPartitions,
        metadata: KnownTopics,
        waiting: Waiting,
        scheduler: Scheduler,
        refused_writes: RefusedWrites,
    ) -> None:
        self.config = config
        self._refused_writes = refused_writes
        self._clock = clock
        self._metadata = metadata
        self._waiting = waiting
        self._scheduler = scheduler
        self._runtime: Runtime[Shard] = Runtime(
            GroupKind(config), clock=clock, metadata=metadata, scheduler=scheduler
        )
        self._known_topics: frozenset[str] = frozenset()
        self._retention: TimerHandle | None = None
        partitions.on_change(self._partition_changed)
        metadata.on_change(self._metadata_changed)
        for partition in partitions.led():
            self._partition_changed(partition)
        self._schedule_retention()

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps the group."""
        return self._runtime.partition_for(group_id)

    def ask(self, request: Request[Answer]) -> Deferred[Answer]:
        """Put a request to the group's shard; the answer comes once it is committed.

        A group that is not here is answered in the request's own form with NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS or INVALID_GROUP_ID.
        """
        deferred: Deferred[Answer] = Deferred()
        group_id: str = request.group_id  # type: ignore[attr-defined]
        if not _is_valid_id(request, group_id):
            deferred.complete(refusal(request, ErrorCode.INVALID_GROUP_ID))
            return deferred
        deferred.on_cancel(self._runtime.ask(group_id, request, deferred.complete))
        return deferred

    def transaction_ended(self, partition: int, producer_id: int, *, is_commit: bool) -> None:
        """A marker of the producer is in that partition of `__consumer_offsets`."""
        event = TransactionEnded(producer_id=producer_id, is_commit=is_commit)
        self._runtime.tell_partition(partition, event)

    def overviews(self) -> tuple[ErrorCode, list[GroupOverview]]:
        """Every group here; COORDINATOR_LOAD_IN_PROGRESS while any shard is still loading."""
        groups = [overview for shard in self._runtime.shards() for overview in shard.overviews()]
        loading = self._runtime.is_loading
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE, groups

    @property
    def group_count(self) -> int:
        """Groups whose state is loaded here, as far as it is."""
        return sum(len(shard) for shard in self._runtime.shards(loading=True))

    def close(self) -> None:
        """Stop all timers; waiting requests are answered NOT_COORDINATOR."""
        self._runtime.close()
        if self._retention is not None:
            self._retention.cancel()

    def _partition_changed(self, partition: Partition) -> None:
        if partition.topic != OFFSETS_TOPIC:
            return
        if partition.is_leader:
            journal = PartitionJournal(partition, self._waiting, self._refused_writes, self._clock)
            self._runtime.lead(journal)
        else:
            self._runtime.resign(partition.partition)

    # Work over all groups, in slices.

    def _schedule_retention(self) -> None:
        delay_s = self.config.offsets_retention_check_interval_ms / 1000
        self._retention = self._scheduler.call_later(delay_s, self._check_retention)

    def _check_retention(self) -> None:
        self._for_all_groups([OffsetRetentionDue(group_id=group_id) for group_id in self._group_ids()])
        self._schedule_retention()

    def _metadata_changed(self) -> None:
        topics = frozenset(self._metadata.topic_names())
        deleted, self._known_topics = self._known_topics - topics, topics
        if deleted:
            self._for_all_groups(
                [TopicsDeleted(group_id=group_id, topics=deleted) for group_id in self._group_ids()]
            )

    def _group_ids(self) -> list[str]:
        return [group_id for shard in self._runtime.shards(loading=True) for group_id in shard.groups]

    def _for_all_groups(self, events: Sequence[OffsetRetentionDue] | Sequence[TopicsDeleted]) -> None:
        for event in events[:GROUPS_SLICE_COUNT]:
            self._runtime.tell(event.group_id, event)
        if len(events) > GROUPS_SLICE_COUNT and not self._runtime.is_closed:
            self._scheduler.call_soon(self._for_all_groups, events[GROUPS_SLICE_COUNT:])


def _is_valid_id(request: Request[Any], group_id: str) -> bool:
    """Whether a group may have this id; the oldest clients commit, and are served, under an empty one."""
    may_be_empty = isinstance(request, FetchOffsets | DescribeGroup | DeleteGroup) or (
        isinstance(request, CommitOffsets) and request.producer is None
    )
    return (bool(group_id) or may_be_empty) and len(group_id.encode()) <= GROUP_ID_SIZE_MAX
