"""Reading what a Fetch request asks for, and reading again, while it waits, only what may have changed.

A partition that had nothing to give keeps the answer it got until it moves, so that a wake-up costs a request for many
partitions little more than one for a single partition. Knows nothing of versions, sessions or how an answer is encoded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.errors import (
    ErrorCode,
    KafkaError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
    UnsupportedVersionError,
    error_of,
)
from headrace.broker.handlers.context import Context
from headrace.broker.handlers.current_leader import LEADER_MOVED, CurrentLeader, current_leader
from headrace.broker.handlers.fetch_records import ConvertedRecords, down_converted
from headrace.broker.handlers.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.broker.handlers.led import NO_EPOCH, led_partition
from headrace.broker.log.results import NOTHING_YET, EpochEndOffset, LogSlice
from headrace.broker.log.transactions import AbortedTransaction
from headrace.broker.replication.model import ZERO_UUID
from headrace.broker.wire.batches import MAGIC

if TYPE_CHECKING:
    from headrace.broker.log.partition_log import PartitionLog
    from headrace.broker.replication.leader import Partition

READ_COMMITTED = 1
UNKNOWN = -1
NOT_IN_CLUSTER = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Found(NamedTuple):
    """What one partition has to offer; offsets are -1 with an error. `aborted` is None for "not asked for"."""

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: LogSlice | ConvertedRecords | None
    aborted: Sequence[AbortedTransaction] | None = None
    diverging_epoch: EpochEndOffset | None = None
    current_leader: CurrentLeader | None = None
    is_behind: bool = False


Answer = list[tuple[FetchTopic, list[Found]]]
_new_tuple = tuple.__new__  # half the time of a call of the class


class Reading:
    """The partitions of one request and what those with nothing to give had when they were last read."""

    __slots__ = ("_context", "_is_plain", "_kept", "_max_bytes", "_request", "_wanted")

    def __init__(self, context: Context, request: FetchRequest, max_bytes: int) -> None:
        self._context = context
        self._request = request
        self._max_bytes = max_bytes
        named = [
            (topic, context.metadata.topic_name(topic.topic_id) if topic.name is None else topic.name)
            for topic in request.topics
        ]
        self._wanted = [(topic, name, wanted) for topic, name in named for wanted in topic.partitions]
        # A consumer that is given what the log holds.
        self._is_plain = request.replica_id < 0 and request.magic == MAGIC
        self._kept: list[Found | None] = [None] * len(self._wanted)

    def keys(self) -> list[tuple[str, int]]:
        """The partitions that may end the wait; a topic id that nobody knows has none."""
        return [(name, wanted.partition_index) for _, name, wanted in self._wanted if name is not None]

    def read(self) -> tuple[Answer, int, bool]:
        """(what every partition has, bytes of records, whether to answer at once).

        An error, a diverging epoch and a segment that others follow are answered at once, but for partitions that the
        cluster does not have: these go last, and only when there are no others is there nothing to wait for.
        """
        answer: Answer = []
        absent: Answer = []
        kept, left, total, is_urgent = self._kept, self._max_bytes, 0, False
        answering: FetchTopic | None = None
        found: list[Found] = []
        for place, (topic, name, wanted) in enumerate(self._wanted):
            item = kept[place]
            if item is None:
                item = self._read(topic, name, wanted, left, at_least_one=total == 0)
                if item.records is NOTHING_YET:
                    kept[place] = item
                elif item.records is not None:
                    total += item.records.size
                    left -= item.records.size
                    is_urgent = is_urgent or item.is_behind
                elif item.error_code in NOT_IN_CLUSTER:
                    absent.append((topic, [item]))
                    continue
                elif item.error_code != 0 or item.diverging_epoch is not None:
                    is_urgent = True
            if topic is not answering:
                answering, found = topic, []
                answer.append((topic, found))
            found.append(item)
        is_urgent = is_urgent or not answer
        _add_absent(answer, absent)
        return answer, total, is_urgent

    def read_again(self, moved: Collection[tuple[str, int]] | None) -> tuple[Answer, int, bool]:
        """As `read`, with all that may have changed since: the partitions that moved, or all (None)."""
        for place, (_, name, wanted) in enumerate(self._wanted):
            if moved is None or (name, wanted.partition_index) in moved:
                self._kept[place] = None
        return self.read()

    def _read(
        self, topic: FetchTopic, name: str | None, wanted: FetchPartition, left: int, *, at_least_one: bool
    ) -> Found:
        context, request = self._context, self._request
        try:
            if name is None:
                raise error_of(ErrorCode.UNKNOWN_TOPIC_ID)
            epoch = wanted.leader_epoch if wanted.leader_epoch >= 0 else NO_EPOCH
            partition = led_partition(context, name, wanted.partition_index, epoch)
            if topic.topic_id is not None and partition.topic_id not in (topic.topic_id, ZERO_UUID):
                # The topic was made anew, and this broker has only its namesake's log so far.
                raise error_of(ErrorCode.INCONSISTENT_TOPIC_ID)
            log = partition.log
            is_committed = request.isolation_level == READ_COMMITTED
            if self._is_plain and wanted.last_fetched_epoch < 0 and wanted.offset == log.high_watermark:
                return _found(log, wanted, NOTHING_YET, () if is_committed else None)
            is_follower = request.replica_id >= 0
            if is_follower:
                _check_follower(partition, request.replica_id, wanted)
            if wanted.last_fetched_epoch >= 0:
                diverging = _diverging_epoch(log, wanted)
                if diverging is not None:
                    return _found(log, wanted, None, diverging_epoch=diverging)
            if is_follower:
                log.check_offset(wanted.offset)
                partition.follower_fetched(request.replica_id, wanted.offset)
            size_max = min(wanted.size_max, left)
            if size_max <= 0 and not at_least_one:
                log.check_offset(wanted.offset)
                return _found(log, wanted, None, () if is_committed else None)
            read = log.read(
                wanted.offset,
                size_max=max(size_max, 0),
                upper_offset=_upper_offset(partition, request),
                at_least_one=at_least_one,
            )
            records = read if request.magic == MAGIC else _converted(log, request, wanted, read)
            aborted = _aborted(log, wanted, records) if is_committed else None
            return _found(log, wanted, records, aborted, is_behind=read.is_behind)
        except KafkaError as error:
            return self._refused(name, wanted, error)

    def _refused(self, name: str | None, wanted: FetchPartition, error: KafkaError) -> Found:
        leader = None
        if error.code in LEADER_MOVED and name is not None:
            leader = current_leader(self._context, name, wanted.partition_index)
        return Found(
            wanted.partition_index,
            error.code,
            UNKNOWN,
            UNKNOWN,
            UNKNOWN,
            None,
            () if error.code in NOT_IN_CLUSTER else None,
            None,
            leader,
        )


def _found(
    log: PartitionLog,
    wanted: FetchPartition,
    records: LogSlice | ConvertedRecords | None,
    aborted: Sequence[AbortedTransaction] | None = None,
    *,
    diverging_epoch: EpochEndOffset | None = None,
    is_behind: bool = False,
) -> Found:
    """These records, or none, with the log's offsets as they are now."""
    # fmt: off
    return _new_tuple(Found, (
        wanted.partition_index, 0, log.high_watermark, log.last_stable_offset, log.log_start_offset,
        records, aborted, diverging_epoch, None, is_behind,
    ))
    # fmt: on


def _add_absent(answer: Answer, absent: Answer) -> None:
    for topic, found in absent:
        if answer and answer[-1][0].key == topic.key:
            answer[-1][1].extend(found)
        else:
            answer.append((topic, found))


def _converted(
    log: PartitionLog, request: FetchRequest, wanted: FetchPartition, found: LogSlice
) -> ConvertedRecords:
    """Raises UnsupportedVersionError where the topic does not convert, in Apache Kafka's way also where it is empty."""
    if not log.config.message_downconversion_enable:
        raise UnsupportedVersionError(
            f"message.downconversion.enable is false, and this client knows format {request.magic} at best."
        )
    return down_converted(found, request.magic, wanted.offset)


def _aborted(
    log: PartitionLog, wanted: FetchPartition, records: LogSlice | ConvertedRecords | None
) -> Sequence[AbortedTransaction]:
    """What a reader of committed records has to pass over."""
    if not isinstance(records, LogSlice) or not records.size:
        return ()
    return log.aborted_transactions(wanted.offset, records)


def _diverging_epoch(log: PartitionLog, wanted: FetchPartition) -> EpochEndOffset | None:
    """Where the log that the client read parts from this one (KIP-595), or None.

    Raises OffsetOutOfRangeError for an epoch that this log does not know.
    """
    end = log.epoch_end_offset(wanted.last_fetched_epoch)
    if end.leader_epoch < 0 or end.end_offset < 0:
        raise OffsetOutOfRangeError(f"epoch {wanted.last_fetched_epoch} is not in this log")
    is_in_line = end.leader_epoch >= wanted.last_fetched_epoch and end.end_offset >= wanted.offset
    return None if is_in_line else end


def _check_follower(partition: Partition, replica: int, wanted: FetchPartition) -> None:
    """Raises, for who is no follower of the partition, what makes a broker try again (kafka.cluster.Partition)."""
    if replica == partition.broker_id or replica not in partition.replicas:
        reason = f"broker {replica} is no follower of {partition.topic}-{partition.partition}"
        raise (UnknownLeaderEpochError if wanted.leader_epoch >= 0 else NotLeaderOrFollowerError)(reason)


def _upper_offset(partition: Partition, request: FetchRequest) -> int:
    """What the client may read up to, exclusive."""
    log = partition.log
    if request.replica_id >= 0:
        return log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark
