"""The group coordinator's shell: decide, append, apply, answer (DESIGN D4), one shard a `__consumer_offsets`
partition.

Invariants: a shard lives here exactly while this broker leads its partition, from one leader epoch to the next; records
are appended before they are applied; a reply leaves once the high watermark has passed everything that was appended
before it, reads included, so that no client ever sees state which a new leader would not have. Timers wait in one heap;
nothing polls. Must not know what a group is: that is `groups.machine`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from headrace.broker.clock import Clock
from headrace.broker.config_sections import Groups
from headrace.broker.coordinators.decision import Reply, Timer, TimerKey
from headrace.broker.coordinators.records import Record, partition_for
from headrace.broker.coordinators.timers import TimerQueue
from headrace.broker.errors import ErrorCode, KafkaError, StorageError
from headrace.broker.groups.events import (
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    Event,
    FetchOffsets,
    GroupOverview,
    OffsetRetentionDue,
    Request,
    ShardLoaded,
    TopicsDeleted,
)
from headrace.broker.groups.machine import Shard
from headrace.broker.groups.memory import MembersMemory
from headrace.broker.groups.refusals import refusal
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.handlers.watch import TimerHandle
from headrace.broker.replication.leader import Partition
from headrace.broker.replication.model import OFFSETS_TOPIC
from headrace.broker.server.group_loader import GroupLoader
from headrace.broker.server.waiting import Scheduler, Waiting
from headrace.broker.structured_log import get_logger
from headrace.broker.wire import batches

GROUP_ID_SIZE_MAX = 32_000
# Tombstones of one decision may go in several batches: each is right by itself. Everything else is one batch.
TOMBSTONES_BATCH_COUNT_MAX = 1_000
# Groups that one turn of the loop looks through for expired or deleted offsets.
GROUPS_SLICE_COUNT = 200
# Members of a large group time out together, and each looks at all others.
TIMERS_SLICE_COUNT = 20
LOAD_RETRY_MS, LOAD_RETRY_MS_MAX = 1_000, 60_000

Answer = TypeVar("Answer")
ShardTimerKey = tuple[int, TimerKey]

log = get_logger(__name__)


class LedPartitions(Protocol):
    """What the coordinator needs of this broker's partitions."""

    def led(self) -> Iterable[Partition]: ...

    def on_change(self, callback: Any) -> None: ...


class TopicTable(Protocol):
    """What the coordinator needs of the metadata cache."""

    def topics(self, name: str) -> Any: ...

    def topic_names(self) -> list[str]: ...

    def on_change(self, callback: Any) -> None: ...


class _Host:
    """One shard with its log and the requests that wait for its answers."""

    __slots__ = ("load_retry_ms", "loader", "partition", "requests", "shard")

    def __init__(self, partition: Partition, config: Groups, memory: MembersMemory) -> None:
        self.partition = partition
        self.shard = Shard(config, memory)
        self.loader: GroupLoader | None = GroupLoader(partition.log, self.shard)
        self.load_retry_ms = LOAD_RETRY_MS
        self.requests: dict[int, tuple[Request[Any], Deferred[Any]]] = {}

    @property
    def index(self) -> int:
        return self.partition.partition

    def forget(self, token: int) -> None:
        """The client of a request is gone; what it has parked stays until its group is done with it."""
        self.requests.pop(token, None)


class GroupCoordinator:
    """All groups whose `__consumer_offsets` partition this broker leads."""

    def __init__(
        self,
        config: Groups,
        *,
        clock: Clock,
        partitions: LedPartitions,
        metadata: TopicTable,
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
        self._hosts: dict[int, _Host] = {}
        self._memory = MembersMemory()
        self._timers: TimerQueue[ShardTimerKey, tuple[int, Event]] = TimerQueue()
        self._wake_up: TimerHandle | None = None
        self._wake_up_ms = 0
        self._token = 0
        self._closed = False
        self._known_topics: frozenset[str] = frozenset()
        self._retention: TimerHandle | None = None
        partitions.on_change(self._partition_changed)
        metadata.on_change(self._metadata_changed)
        for partition in partitions.led():
            self._partition_changed(partition)
        self._schedule_retention()

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps the group."""
        known = self._metadata.topics(OFFSETS_TOPIC)
        return partition_for(group_id, len(known) if known else self.config.offsets_topic_num_partitions)

    def ask(self, request: Request[Answer]) -> Deferred[Answer]:
        """Put a request to the group's shard; the answer comes once it is committed.

        A group that is not here is answered in the request's own form with NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS or INVALID_GROUP_ID.
        """
        deferred: Deferred[Answer] = Deferred()
        group_id: str = request.group_id  # type: ignore[attr-defined]
        host = self._hosts.get(self.partition_for(group_id))
        error = self._refusal_error(request, group_id, host)
        if error is not ErrorCode.NONE or host is None:
            deferred.complete(refusal(request, error))
            return deferred
        self._token += 1
        token = self._token
        host.requests[token] = (request, deferred)
        deferred.on_cancel(lambda: host.forget(token))
        self._decide(host, request, token)  # type: ignore[arg-type]
        return deferred

    def overviews(self) -> tuple[ErrorCode, list[GroupOverview]]:
        """Every group here; COORDINATOR_LOAD_IN_PROGRESS while any shard is still loading."""
        loading = any(host.loader is not None for host in self._hosts.values())
        groups = [
            overview
            for host in self._hosts.values()
            if host.loader is None
            for overview in host.shard.overviews()
        ]
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE, groups

    @property
    def group_count(self) -> int:
        """Groups whose state is loaded here."""
        return sum(len(host.shard.groups) for host in self._hosts.values())

    def close(self) -> None:
        """Stop all timers; waiting requests are answered NOT_COORDINATOR."""
        self._closed = True
        for index in list(self._hosts):
            self._unload(index)
        for handle in (self._wake_up, self._retention):
            if handle is not None:
                handle.cancel()

    def _refusal_error(self, request: Request[Any], group_id: str, host: _Host | None) -> ErrorCode:
        may_be_empty = isinstance(request, CommitOffsets | FetchOffsets | DescribeGroup | DeleteGroup)
        if (not group_id and not may_be_empty) or len(group_id.encode()) > GROUP_ID_SIZE_MAX:
            return ErrorCode.INVALID_GROUP_ID
        if self._closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if host is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if host.loader is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    # One turn of a shard: no `await` between decide and apply.

    def _decide(self, host: _Host, event: Event, token: int = 0) -> None:
        now_ms = self._clock.now_ms()
        decision = host.shard.decide(event, now_ms, token)
        if decision.records:
            try:
                self._append(host, decision.records, now_ms)
            except KafkaError as error:
                log.warning(
                    "group records refused", partition=host.index, error=error.code.name, reason=str(error)
                )
                decision = host.shard.append_failed(event, decision, error.code, now_ms, token)
        host.shard.adopt(decision)
        for record in decision.records:
            host.shard.apply(record)
        for timer in decision.timers:
            self._set_timer(host, timer, now_ms)
        if decision.replies:
            self._reply_when_committed(host, decision.replies)

    def _append(self, host: _Host, records: Sequence[Record], now_ms: int) -> None:
        tombstones = all(record.value is None for record in records)
        size = TOMBSTONES_BATCH_COUNT_MAX if tombstones else len(records)
        for first in range(0, len(records), size):
            batch = batches.encode_batch(
                [
                    batches.Record(0, now_ms, record.key, record.value, [])
                    for record in records[first : first + size]
                ],
                codec=self.config.offsets_topic_compression_codec,
            )
            self._append_batch(host.partition, batch, now_ms)
        self._waiting.wake(OFFSETS_TOPIC, host.index)

    def _append_batch(self, partition: Partition, batch: bytearray, now_ms: int) -> None:
        directory = partition.log.directory
        try:
            partition.append(memoryview(batch), required_acks=-1, now_ms=now_ms)
        except StorageError as error:
            self._refused_writes.refused(directory, error, self._clock.monotonic_ms())
            raise
        if self._refused_writes.directories:
            self._refused_writes.worked(directory, self._clock.monotonic_ms())

    def _reply_when_committed(self, host: _Host, replies: list[Reply]) -> None:
        needed = host.partition.log.log_end_offset
        if host.partition.high_watermark >= needed:
            self._reply(host, replies)
            return

        def attempt(moved: Collection[tuple[str, int]] | None) -> bool | None:
            return True if host.partition.high_watermark >= needed else (False if moved is None else None)

        committed = self._waiting.park(
            [(OFFSETS_TOPIC, host.index)], self.config.offsets_commit_timeout_ms, attempt
        )
        committed.then(lambda done: self._reply(host, replies) if done else self._time_out(host, replies))

    def _reply(self, host: _Host, replies: Iterable[Reply]) -> None:
        for reply in replies:
            waiting = host.requests.pop(reply.to, None)
            if waiting is not None:
                waiting[1].complete(reply.answer)

    def _time_out(self, host: _Host, replies: Iterable[Reply]) -> None:
        """What was appended may still be committed, so memory stays; the clients ask again."""
        for reply in replies:
            waiting = host.requests.pop(reply.to, None)
            if waiting is not None:
                waiting[1].complete(refusal(waiting[0], ErrorCode.COORDINATOR_NOT_AVAILABLE))

    # Leadership.

    def _partition_changed(self, partition: Partition) -> None:
        if partition.topic != OFFSETS_TOPIC or self._closed:
            return
        index = partition.partition
        host = self._hosts.get(index)
        if host is not None and partition.is_leader and host.partition is partition:
            return
        if host is not None:
            self._unload(index)
        if partition.is_leader:
            self._hosts[index] = _Host(partition, self.config, self._memory)
            self._scheduler.call_soon(self._load_slice, self._hosts[index])

    def _load_slice(self, host: _Host) -> None:
        """Replay a bounded piece of the log; other work of the loop goes on in between."""
        if self._hosts.get(host.index) is not host or host.loader is None:
            return
        try:
            finished = host.loader.load_slice()
        except KafkaError as error:
            self._load_later(host, error)
            return
        if not finished:
            self._scheduler.call_soon(self._load_slice, host)
            return
        log.info(
            "groups loaded",
            partition=host.index,
            leader_epoch=host.partition.leader_epoch,
            groups=len(host.shard.groups),
            records=host.loader.record_count,
            skipped=host.loader.skipped_count,
        )
        host.loader = None
        self._decide(host, ShardLoaded())

    def _load_later(self, host: _Host, error: KafkaError) -> None:
        """Go on where the disk failed after a pause that doubles each time; the groups' clients try again meanwhile."""
        retry_ms = host.load_retry_ms
        host.load_retry_ms = min(retry_ms * 2, LOAD_RETRY_MS_MAX)
        log.error(
            "groups not loaded",
            partition=host.index,
            error=error.code.name,
            reason=str(error),
            retry_ms=retry_ms,
        )
        self._scheduler.call_later(retry_ms / 1000, self._load_slice, host)

    def _unload(self, index: int) -> None:
        host = self._hosts.pop(index)
        host.shard.release()
        self._timers.cancel_where(lambda key: key[0] == index)
        requests, host.requests = host.requests, {}
        for request, deferred in requests.values():
            deferred.complete(refusal(request, ErrorCode.NOT_COORDINATOR))
        log.info("groups unloaded", partition=index, groups=len(host.shard.groups))

    # Timers.

    def _set_timer(self, host: _Host, timer: Timer[Event], now_ms: int) -> None:
        key = (host.index, timer.key)
        if timer.event is None:
            self._timers.cancel(key)
            return
        # The machine counts on the wall clock, which may jump; what it asks for is a delay.
        deadline_ms = self._clock.monotonic_ms() + timer.deadline_ms - now_ms
        self._timers.set(key, deadline_ms, (host.index, timer.event))
        self._arm()

    def _arm(self) -> None:
        deadline_ms = self._timers.next_deadline()
        if deadline_ms is None or (self._wake_up is not None and self._wake_up_ms <= deadline_ms):
            return
        if self._wake_up is not None:
            self._wake_up.cancel()
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        self._wake_up_ms = deadline_ms
        self._wake_up = self._scheduler.call_later(delay_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._wake_up = None
        for index, event in self._timers.due(self._clock.monotonic_ms(), TIMERS_SLICE_COUNT):
            host = self._hosts.get(index)
            if host is not None:
                self._decide(host, event)
        self._arm()

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
        return [group_id for host in self._hosts.values() for group_id in host.shard.groups]

    def _for_all_groups(self, events: list[OffsetRetentionDue] | list[TopicsDeleted]) -> None:
        for event in events[:GROUPS_SLICE_COUNT]:
            host = self._hosts.get(self.partition_for(event.group_id))
            if host is not None and host.loader is None:
                self._decide(host, event)
        if len(events) > GROUPS_SLICE_COUNT and not self._closed:
            self._scheduler.call_soon(self._for_all_groups, events[GROUPS_SLICE_COUNT:])
