"""Reading one partition for a fetch: who may read it, from where, and up to which offset.

Raises nothing: what is wrong is a part of what was found.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.broker.errors import (
    ErrorCode,
    KafkaError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
    error_of,
)
from headrace.broker.handlers.current_leader import LEADER_MOVED, current_leader
from headrace.broker.handlers.fetch.batch_headers import WALKED_SIZE_MAX, batch_headers
from headrace.broker.handlers.fetch.found import UNKNOWN, Found, Records
from headrace.broker.handlers.fetch_request import AskedPartition, FetchPartition, FetchRequest
from headrace.broker.handlers.led import readable_partition
from headrace.broker.handlers.read_replicas import preferred_replica
from headrace.broker.handlers.services import Services
from headrace.broker.legacy.fetched import ConvertedRecords, down_converted
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import NOTHING_YET, EpochEndOffset, LogSlice
from headrace.broker.log.transactions import AbortedTransaction
from headrace.broker.replication.partition import Partition
from headrace.broker.wire.batches import HEADER_SIZE, MAGIC
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.wire.special_values import NO_EPOCH, READ_COMMITTED

NOT_IN_CLUSTER = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
# With these Kafka has not come to look at a log.
UNSEEN = (*NOT_IN_CLUSTER, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_new_tuple = tuple.__new__  # half the time of a call of the class


def gives_what_there_is(broker: Services, request: FetchRequest) -> bool:
    """Whether the client is a consumer that is given what the log of this broker holds."""
    if request.replica_id >= 0 or request.magic != MAGIC:
        return False
    return not request.rack or not broker.config.replication.replica_selector_class


def read_partition(
    broker: Services,
    request: FetchRequest,
    place: AskedPartition,
    left: int,
    *,
    is_plain: bool,
    notes: bool,
    at_least_one: bool,
) -> Found:
    """What the partition has for this client, in at most `left` bytes; remembers at `place` whose log was read.

    `is_plain`: see `gives_what_there_is`; `notes`: where a follower is is noted.
    """
    topic, name, wanted = place.topic, place.name, place.wanted
    try:
        if name is None:
            raise error_of(ErrorCode.UNKNOWN_TOPIC_ID)
        if request.may_read is not None and not request.may_read(name):
            raise error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        epoch = wanted.leader_epoch if wanted.leader_epoch >= 0 else NO_EPOCH
        partition = readable_partition(
            broker.partitions, name, wanted.partition_index, epoch, is_from_leader=request.is_from_leader
        )
        if topic.topic_id is not None and partition.topic_id not in (topic.topic_id, ZERO_UUID):
            # The topic was made anew, and this broker has only its namesake's log so far.
            raise error_of(ErrorCode.INCONSISTENT_TOPIC_ID)
        log = partition.log
        place.epoch, place.topic_id = partition.leader_epoch, partition.topic_id
        is_committed = request.isolation_level == READ_COMMITTED
        if is_plain and wanted.last_fetched_epoch < 0 and wanted.offset == log.high_watermark:
            return _found(log, wanted, NOTHING_YET, () if is_committed else None)
        if request.is_follower:
            _check_follower(partition, request.replica_id, wanted)
        instead = _instead_of_records(broker, partition, request, wanted)
        if instead is not None:
            return instead
        if request.is_follower:
            log.check_offset(wanted.offset)
            if notes:
                _note(broker, partition, request, wanted)
            place.lags = request.replica_id not in partition.isr
            if place.lags and broker.leader_throttle.holds_back(name, wanted.partition_index):
                return _found(log, wanted, None)
        size_max = min(wanted.size_max, left)
        if size_max <= 0 and not at_least_one:
            log.check_offset(wanted.offset)
            return _found(log, wanted, None, () if is_committed else None)
        upper_offset = _upper_offset(partition, request)
        return _read(log, request, wanted, size_max, upper_offset, at_least_one=at_least_one)
    except KafkaError as error:
        return _refused(broker, name, wanted, error)


def _instead_of_records(
    broker: Services, partition: Partition, request: FetchRequest, wanted: FetchPartition
) -> Found | None:
    """Another replica that the client shall read from, or where the log that it has parts from this one; None: neither."""
    if request.rack and not request.is_follower:
        preferred = preferred_replica(broker, partition, request.rack, wanted.offset)
        if preferred is not None:
            return _found(partition.log, wanted, None, preferred=preferred)
    if wanted.last_fetched_epoch >= 0:
        diverging = _diverging_epoch(partition.log, wanted)
        if diverging is not None:
            return _found(partition.log, wanted, None, diverging_epoch=diverging)
    return None


def _refused(broker: Services, name: str | None, wanted: FetchPartition, error: KafkaError) -> Found:
    leader = None
    if error.code in LEADER_MOVED and name is not None:
        leader = current_leader(broker.metadata, name, wanted.partition_index)
    return Found(
        wanted.partition_index,
        error.code,
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
        None,
        () if error.code in UNSEEN else None,
        None,
        leader,
    )


def _found(
    log: PartitionLog,
    wanted: FetchPartition,
    records: Records | None,
    aborted: Sequence[AbortedTransaction] | None = None,
    *,
    diverging_epoch: EpochEndOffset | None = None,
    is_behind: bool = False,
    preferred: int = UNKNOWN,
) -> Found:
    """These records, or none, with the log's offsets as they are now."""
    # fmt: off
    return _new_tuple(Found, (
        wanted.partition_index, 0, log.high_watermark, log.last_stable_offset, log.log_start_offset,
        records, aborted, diverging_epoch, None, is_behind, preferred, None,
    ))
    # fmt: on


def _read(
    log: PartitionLog,
    request: FetchRequest,
    wanted: FetchPartition,
    size_max: int,
    upper_offset: int,
    *,
    at_least_one: bool,
) -> Found:
    """What there is below an offset: batches, or their headers for who wants these."""
    if request.wants_headers and (at_least_one or size_max >= HEADER_SIZE):
        headers = _headers(log, request, wanted, size_max, upper_offset)
        if headers is not None:
            return headers
    read = log.read(
        wanted.offset, size_max=max(size_max, 0), upper_offset=upper_offset, at_least_one=at_least_one
    )
    records = read if request.magic == MAGIC else _converted(log, request, wanted, read)
    aborted = _aborted(log, wanted, records) if request.isolation_level == READ_COMMITTED else None
    return _found(log, wanted, records, aborted, is_behind=read.is_behind)


def _headers(
    log: PartitionLog, request: FetchRequest, wanted: FetchPartition, size_max: int, upper_offset: int
) -> Found | None:
    """The headers of the batches that there are; None where there is none, or none that has such a header."""
    read = log.read(wanted.offset, size_max=WALKED_SIZE_MAX, upper_offset=upper_offset)
    if not read.size:
        return None
    with log.storage_errors():
        headers, batches = batch_headers(read, size_max)
    if not headers.size:
        return None
    aborted = _aborted(log, wanted, batches) if request.isolation_level == READ_COMMITTED else None
    return _found(log, wanted, headers, aborted, is_behind=read.is_behind)


def _converted(
    log: PartitionLog, request: FetchRequest, wanted: FetchPartition, found: LogSlice
) -> LogSlice | ConvertedRecords:
    """Raises StorageError. A topic that does not convert keeps its clients waiting as one that does, and refuses them at
    the end, in Apache Kafka's way.
    """
    if not log.config.message_downconversion_enable:
        return found
    with log.storage_errors():
        return down_converted(found, request.magic, wanted.offset)


def _aborted(
    log: PartitionLog, wanted: FetchPartition, records: LogSlice | ConvertedRecords | None
) -> Sequence[AbortedTransaction] | None:
    """What a reader of committed records has to pass over; None, in Kafka's way, where the first batch does not fit."""
    if not isinstance(records, LogSlice) or records is NOTHING_YET:
        return ()
    if not records.size:
        return None
    return log.aborted_transactions(wanted.offset, records)


def _diverging_epoch(log: PartitionLog, wanted: FetchPartition) -> EpochEndOffset | None:
    """Where the log that the client read parts from this one (KIP-595), or None.

    Raises OffsetOutOfRangeError for an epoch that this log does not know.
    """
    end = log.epoch_end_offset(wanted.last_fetched_epoch)
    if end.leader_epoch < 0 or end.end_offset < 0:
        raise OffsetOutOfRangeError(f"epoch {wanted.last_fetched_epoch} is not in this log")
    if wanted.offset < log.log_start_offset:
        raise OffsetOutOfRangeError(f"offset {wanted.offset} is not in this log any more")
    is_in_line = end.leader_epoch >= wanted.last_fetched_epoch and end.end_offset >= wanted.offset
    return None if is_in_line else end


def _check_follower(partition: Partition, replica: int, wanted: FetchPartition) -> None:
    """Raises, for who is no follower of the partition, what makes a broker try again (kafka.cluster.Partition)."""
    if replica == partition.broker_id or replica not in partition.replicas:
        reason = f"broker {replica} is no follower of {partition.topic}-{partition.partition}"
        raise (UnknownLeaderEpochError if wanted.leader_epoch >= 0 else NotLeaderOrFollowerError)(reason)


def _note(broker: Services, partition: Partition, request: FetchRequest, wanted: FetchPartition) -> None:
    """Where the follower is. Who waits for records to be deleted everywhere hears of another start of its log."""
    leadership = partition.leadership
    known = None if leadership is None else leadership.followers.get(request.replica_id)
    begins_elsewhere = known is not None and known.log_start_offset != wanted.log_start_offset
    partition.follower_fetched(
        request.replica_id,
        wanted.offset,
        log_start_offset=wanted.log_start_offset,
        broker_epoch=request.replica_epoch,
    )
    if begins_elsewhere:
        broker.waiting.wake(partition.topic, partition.partition)


def _upper_offset(partition: Partition, request: FetchRequest) -> int:
    """What the client may read up to, exclusive."""
    log = partition.log
    if request.replica_id >= 0:
        return log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark
