"""Fetch (key 1), versions 0-17.

Versions 0 to 3 get message formats 0 and 1, converted in bounded pieces. Deviations: the first batch of those versions
comes whole even where Kafka would cut it; sessions (KIP-227) are refused beyond a number of partitions in all of them,
where Kafka bounds the sessions only.

A fetch that finds less than its minimum is parked until one of its partitions moves or its time is over, unless a
segment ends there that others follow; a partition that the cluster does not have neither ends nor begins that wait.
Other records never pass through memory: the answer holds slices of segment files. There is no preferred read replica:
at replication factor 1 Kafka names none either.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.errors import (
    ErrorCode,
    KafkaError,
    OffsetOutOfRangeError,
    UnsupportedVersionError,
    error_of,
)
from headrace.broker.handlers.context import Client, Context
from headrace.broker.handlers.current_leader import (
    LEADER_MOVED,
    CurrentLeader,
    current_leader,
    node_endpoints,
)
from headrace.broker.handlers.fetch_records import ConvertedRecords, down_converted, in_answer
from headrace.broker.handlers.fetch_request import (
    FLEXIBLE_VERSION,
    NO_SESSION_EPOCH,
    TOPIC_ID_VERSION,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    read_fetch,
)
from headrace.broker.handlers.fetch_sessions import NO_SESSION, Turn
from headrace.broker.handlers.led import NO_EPOCH, led_partition
from headrace.broker.handlers.replies import Parts, Reply
from headrace.broker.log.results import EpochEndOffset, LogSlice
from headrace.broker.log.transactions import AbortedTransaction
from headrace.broker.wire.api import k01_fetch
from headrace.broker.wire.batches import MAGIC
from headrace.broker.wire.frames import RequestHeader
from headrace.broker.wire.varint import encode_uvarint

if TYPE_CHECKING:
    from headrace.broker.log.partition_log import PartitionLog
    from headrace.broker.replication.leader import Partition

API = k01_fetch.API
VERSIONS = (0, 17)
RAW = True

READ_COMMITTED = 1
UNKNOWN = -1
ZSTD_VERSION, LEADER_TAG_VERSION = 10, 16
# Errors that come with null for records, as Kafka has it; the others come with none.
WITHOUT_RECORDS = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
NOT_IN_CLUSTER = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

_PREFIX = Struct(">ii")
_TOP_BEFORE_SESSIONS = Struct(">i")
_TOP = Struct(">ihi")
_INT32 = Struct(">i")
_PARTITION_0 = Struct(">ihqi")
_PARTITION_4 = Struct(">ihqqii")
_PARTITION_5 = Struct(">ihqqqii")
_PARTITION_11 = Struct(">ihqqqiii")
_PARTITION_12 = Struct(">ihqqqBi")
_PARTITION_START = Struct(">ihqq")
_INT64 = Struct(">q")
_ABORTED = Struct(">qq")
_DIVERGING_EPOCH = Struct(">BBiqB")
_CURRENT_LEADER = Struct(">BBiiB")
_EMPTY_SIZE = _TOP.size + 1
_NO_TAGS = b"\0"


class _Found(NamedTuple):
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


_Answer = list[tuple[FetchTopic, list[_Found]]]


def handle(context: Context, header: RequestHeader, frame: memoryview) -> Reply:
    version, client = header.version, context.client
    request = read_fetch(version, frame, header.body_offset)
    turn = None
    if request.session_id != NO_SESSION or request.session_epoch != NO_SESSION_EPOCH:
        try:
            turn = context.fetch_sessions.begin(
                request, uses_topic_ids=version >= TOPIC_ID_VERSION, now_ms=context.clock.monotonic_ms()
            )
        except KafkaError as error:
            return _encode(context, client, header, error.code, NO_SESSION, [])
        if turn is not None:
            request = request._replace(topics=turn.topics)
    max_bytes = min(request.max_bytes, context.config.replication.fetch_max_bytes)
    min_bytes = min(request.min_bytes, max_bytes)
    answer, size, is_urgent = _read_all(context, request, max_bytes)
    if size >= min_bytes or is_urgent or request.max_wait_ms <= 0:
        return _finish(context, client, header, turn, answer)

    def attempt(final: bool) -> Parts | None:
        answer, size, is_urgent = _read_all(context, request, max_bytes)
        if final or size >= min_bytes or is_urgent:
            return _finish(context, client, header, turn, answer)
        return None

    return context.waiting.park(_keys(context, request), request.max_wait_ms, attempt)


def _keys(context: Context, request: FetchRequest) -> list[tuple[str, int]]:
    """The partitions that may end the wait; a topic id that nobody knows has none."""
    named = [(topic.name or context.metadata.topic_name(topic.topic_id), topic) for topic in request.topics]
    return [(name, p.partition_index) for name, topic in named if name is not None for p in topic.partitions]


def _read_all(context: Context, request: FetchRequest, left: int) -> tuple[_Answer, int, bool]:
    """(what every partition has, bytes of records, whether to answer at once).

    An error, a diverging epoch and a segment that others follow are answered at once, but for partitions that the
    cluster does not have: these go last, and only when there are no others is there nothing to wait for.
    """
    answer: _Answer = []
    absent: _Answer = []
    total, is_urgent = 0, False
    for topic in request.topics:
        found = []
        for wanted in topic.partitions:
            item = _read(context, request, topic, wanted, left, at_least_one=total == 0)
            if item.records is not None:
                total += item.records.size
                left -= item.records.size
                is_urgent = is_urgent or item.is_behind
            elif item.error_code in NOT_IN_CLUSTER:
                absent.append((topic, [item]))
                continue
            elif item.error_code != 0 or item.diverging_epoch is not None:
                is_urgent = True
            found.append(item)
        if found:
            answer.append((topic, found))
    is_urgent = is_urgent or not answer
    for topic, found in absent:
        if answer and answer[-1][0].key == topic.key:
            answer[-1][1].extend(found)
        else:
            answer.append((topic, found))
    return answer, total, is_urgent


def _read(
    context: Context,
    request: FetchRequest,
    topic: FetchTopic,
    wanted: FetchPartition,
    left: int,
    *,
    at_least_one: bool,
) -> _Found:
    epoch = wanted.leader_epoch if wanted.leader_epoch >= 0 else NO_EPOCH
    try:
        name = topic.name or _name_of(context, topic)
        partition = led_partition(context, name, wanted.partition_index, epoch)
        if wanted.last_fetched_epoch >= 0:
            diverging = _diverging_epoch(partition, wanted)
            if diverging is not None:
                return diverging
        if request.replica_id >= 0:
            partition.follower_fetched(request.replica_id, wanted.offset)
        size_max = min(wanted.size_max, left)
        log = partition.log
        upper_offset = _upper_offset(partition, request)
        is_behind = False
        if size_max <= 0 and not at_least_one:
            records: LogSlice | ConvertedRecords | None = None
        else:
            found = log.read(
                wanted.offset, size_max=max(size_max, 0), upper_offset=upper_offset, at_least_one=at_least_one
            )
            is_behind = found.is_behind
            records = found if request.magic == MAGIC else _converted(log, request, wanted, found)
        return _Found(
            wanted.partition_index,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            records,
            _aborted(log, request, wanted, records),
            is_behind=is_behind,
        )
    except KafkaError as error:
        leader = None
        if error.code in LEADER_MOVED:
            leader = current_leader(context, _name_of(context, topic), wanted.partition_index)
        return _Found(
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
    log: PartitionLog,
    request: FetchRequest,
    wanted: FetchPartition,
    records: LogSlice | ConvertedRecords | None,
) -> Sequence[AbortedTransaction] | None:
    """What a reader of committed records has to pass over; None for the others."""
    if request.isolation_level != READ_COMMITTED:
        return None
    if not isinstance(records, LogSlice) or not records.size:
        return ()
    return log.aborted_transactions(wanted.offset, records)


def _diverging_epoch(partition: Partition, wanted: FetchPartition) -> _Found | None:
    """Where the log that the client read parts from this one (KIP-595), or None.

    Raises OffsetOutOfRangeError for an epoch that this log does not know.
    """
    log = partition.log
    end = log.epoch_end_offset(wanted.last_fetched_epoch)
    if end.leader_epoch < 0 or end.end_offset < 0:
        raise OffsetOutOfRangeError(f"epoch {wanted.last_fetched_epoch} is not in this log")
    if end.leader_epoch >= wanted.last_fetched_epoch and end.end_offset >= wanted.offset:
        return None
    return _Found(
        wanted.partition_index,
        0,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        None,
        diverging_epoch=end,
    )


def _upper_offset(partition: Partition, request: FetchRequest) -> int:
    if request.replica_id >= 0:
        return partition.log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return min(partition.log.last_stable_offset, partition.log.high_watermark)
    return partition.log.high_watermark


def _name_of(context: Context, topic: FetchTopic) -> str:
    """Raises the KafkaError for an unknown topic id."""
    if topic.name is not None:
        return topic.name
    name: str | None = context.metadata.topic_name(topic.topic_id)
    if name is None:
        raise error_of(ErrorCode.UNKNOWN_TOPIC_ID)
    return name


def _finish(
    context: Context, client: Client, header: RequestHeader, turn: Turn | None, answer: _Answer
) -> Parts:
    error_code, session_id = ErrorCode.NONE, NO_SESSION
    if turn is not None:
        error_code, session_id, answer = turn.finish(answer, context.clock.monotonic_ms())
    if header.version < ZSTD_VERSION:
        answer = [(topic, [_unless_zstd(context, topic, item) for item in found]) for topic, found in answer]
    for topic, found in answer:
        size = sum(item.records.size for item in found if item.records is not None)
        if size:
            context.metrics.fetched(_name_of(context, topic), size)
    return _encode(context, client, header, error_code, session_id, answer)


def _unless_zstd(context: Context, topic: FetchTopic, item: _Found) -> _Found:
    """The item, or its refusal to a client that knows no zstd when that is its topic's own codec."""
    partition = context.partitions.get(topic.name or "", item.partition_index)
    if item.error_code or partition is None or partition.log.config.compression_type != "zstd":
        return item
    error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return _Found(item.partition_index, error, UNKNOWN, UNKNOWN, UNKNOWN, None, ())


def _encode(
    context: Context,
    client: Client,
    header: RequestHeader,
    error_code: int,
    session_id: int,
    answer: _Answer,
) -> Parts:
    """The whole reply: bytes around slices, the length prefix first."""
    version = header.version
    is_flexible = version >= FLEXIBLE_VERSION
    buffer = bytearray(8)
    if is_flexible:
        buffer += _NO_TAGS
    if version >= 1:
        buffer += _TOP.pack(0, error_code, session_id) if version >= 7 else _TOP_BEFORE_SESSIONS.pack(0)
    buffer += encode_uvarint(len(answer) + 1) if is_flexible else _INT32.pack(len(answer))
    parts: Parts = []
    size = 0
    for topic, found in answer:
        buffer += _topic_head(version, topic, len(found))
        for item in found:
            buffer += _partition_head(version, item)
            if item.records is not None and item.records.size:
                size += len(buffer) + item.records.size
                parts += (bytes(buffer), in_answer(item.records))
                buffer.clear()
            if is_flexible:
                buffer += _NO_TAGS if item.records is not None else _partition_tags(version, item)
        if is_flexible:
            buffer += _NO_TAGS
    if is_flexible:
        buffer += _endpoint_tags(context, client, version, answer)
    if buffer:
        size += len(buffer)
        parts.append(bytes(buffer))
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = _PREFIX.pack(size - 4, header.correlation_id) + first[8:]
    return parts


def _partition_tags(version: int, item: _Found) -> bytes:
    """The tagged fields of a partition without records: 0 diverging epoch, 1 current leader."""
    tags = []
    if item.diverging_epoch is not None:
        tags.append(_DIVERGING_EPOCH.pack(0, _DIVERGING_EPOCH.size - 2, *item.diverging_epoch, 0))
    if item.current_leader is not None and version >= LEADER_TAG_VERSION:
        tags.append(_CURRENT_LEADER.pack(1, _CURRENT_LEADER.size - 2, *item.current_leader, 0))
    return bytes([len(tags)]) + b"".join(tags)


def _endpoint_tags(context: Context, client: Client, version: int, answer: _Answer) -> bytes:
    """The tagged fields of the whole: 0 where the current leaders are."""
    if version < LEADER_TAG_VERSION:
        return _NO_TAGS
    leaders = [item.current_leader for _, found in answer for item in found if item.current_leader]
    if not leaders:
        return _NO_TAGS
    nodes = node_endpoints(context, client, leaders)
    empty = {"session_id": NO_SESSION, "responses": [], "node_endpoints": nodes}
    return API.encode_response(version, empty)[_EMPTY_SIZE:]


def _topic_head(version: int, topic: FetchTopic, partition_count: int) -> bytes:
    if version >= TOPIC_ID_VERSION:
        return topic.key + encode_uvarint(partition_count + 1)
    if version >= FLEXIBLE_VERSION:
        return encode_uvarint(len(topic.key) + 1) + topic.key + encode_uvarint(partition_count + 1)
    return len(topic.key).to_bytes(2, "big") + topic.key + _INT32.pack(partition_count)


def _partition_head(version: int, item: _Found) -> bytes:
    """Everything of a partition before its records; aborted transactions are null or none, as Kafka has it."""
    (
        index,
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        records,
        aborted,
        *_,
    ) = item
    size = 0 if records is None else records.size
    if error_code in WITHOUT_RECORDS:
        size = -1
    if aborted:
        return _head_with_aborted(version, item, aborted, size)
    aborted_count = -1 if aborted is None else 0
    if version >= FLEXIBLE_VERSION:
        head = _PARTITION_12.pack(
            index,
            error_code,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            aborted_count + 1,
            UNKNOWN,
        )
        return head + encode_uvarint(size + 1)
    if version == 11:
        return _PARTITION_11.pack(
            index,
            error_code,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            aborted_count,
            UNKNOWN,
            size,
        )
    if version >= 5:
        return _PARTITION_5.pack(
            index, error_code, high_watermark, last_stable_offset, log_start_offset, aborted_count, size
        )
    if version == 4:
        return _PARTITION_4.pack(index, error_code, high_watermark, last_stable_offset, aborted_count, size)
    return _PARTITION_0.pack(index, error_code, high_watermark, size)


def _head_with_aborted(version: int, item: _Found, aborted: Sequence[AbortedTransaction], size: int) -> bytes:
    """The same where transactions were aborted (versions 4 and later), each with its producer and first offset."""
    is_flexible = version >= FLEXIBLE_VERSION
    head = bytearray(
        _PARTITION_START.pack(
            item.partition_index, item.error_code, item.high_watermark, item.last_stable_offset
        )
    )
    if version >= 5:
        head += _INT64.pack(item.log_start_offset)
    head += encode_uvarint(len(aborted) + 1) if is_flexible else _INT32.pack(len(aborted))
    for transaction in aborted:
        head += _ABORTED.pack(transaction.producer_id, transaction.first_offset)
        if is_flexible:
            head += _NO_TAGS
    if version >= 11:
        head += _INT32.pack(UNKNOWN)
    head += encode_uvarint(size + 1) if is_flexible else _INT32.pack(size)
    return bytes(head)
