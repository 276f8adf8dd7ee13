"""Fetch (key 1), versions 4-17.

Deviations: versions 0-3, which need old message formats, are not served (as in Apache Kafka 4.0); fetch sessions
(KIP-227) are not kept: every answer has session id 0, and a request that names a session gets
FETCH_SESSION_ID_NOT_FOUND, upon which clients fetch in full; no preferred read replica; the tagged current leader and
node endpoints (KIP-951) are not filled.

A fetch that finds less than its minimum is parked until one of its partitions moves or its time is over. Records never
pass through memory: the answer holds slices of segment files.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.errors import ErrorCode, KafkaError, error_of
from headrace.broker.handlers.context import Context
from headrace.broker.handlers.fetch_request import (
    FLEXIBLE_VERSION,
    INITIAL_SESSION_EPOCH,
    NO_SESSION_EPOCH,
    TOPIC_ID_VERSION,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    read_fetch,
)
from headrace.broker.handlers.led import led_partition
from headrace.broker.handlers.replies import Parts, Reply
from headrace.broker.log.results import LogSlice
from headrace.broker.wire.api import k01_fetch
from headrace.broker.wire.frames import RequestHeader
from headrace.broker.wire.varint import encode_uvarint

if TYPE_CHECKING:
    from headrace.broker.replication.leader import Partition

API = k01_fetch.API
VERSIONS = (4, 17)
RAW = True

READ_COMMITTED = 1
UNKNOWN = -1

_PREFIX = Struct(">ii")
_TOP_BEFORE_SESSIONS = Struct(">i")
_TOP = Struct(">ihi")
_INT32 = Struct(">i")
_PARTITION_4 = Struct(">ihqqii")
_PARTITION_5 = Struct(">ihqqqii")
_PARTITION_11 = Struct(">ihqqqiii")
_PARTITION_12 = Struct(">ihqqqBi")
_NO_TAGS = b"\0"


class _Found(NamedTuple):
    """What one partition has to offer; offsets are -1 with an error."""

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: LogSlice | None


_Answer = list[tuple[FetchTopic, list[_Found]]]


def handle(context: Context, header: RequestHeader, frame: memoryview) -> Reply:
    version, correlation_id = header.version, header.correlation_id
    request = read_fetch(version, frame, header.body_offset)
    if request.session_id != 0 or request.session_epoch not in (NO_SESSION_EPOCH, INITIAL_SESSION_EPOCH):
        return _encode(version, correlation_id, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    answer, size, has_error = _read_all(context, request)
    if size >= request.min_bytes or has_error or request.max_wait_ms <= 0 or not request.topics:
        return _finish(context, version, correlation_id, answer)

    def attempt(final: bool) -> Parts | None:
        answer, size, has_error = _read_all(context, request)
        if final or size >= request.min_bytes or has_error:
            return _finish(context, version, correlation_id, answer)
        return None

    keys = [
        (_name_of(context, topic), p.partition_index) for topic in request.topics for p in topic.partitions
    ]
    return context.waiting.park(keys, request.max_wait_ms, attempt)


def _read_all(context: Context, request: FetchRequest) -> tuple[_Answer, int, bool]:
    """(what every partition has, bytes of records, whether a partition has an error)."""
    left = min(request.max_bytes, context.config.replication.fetch_max_bytes)
    answer: _Answer = []
    total, has_error = 0, False
    for topic in request.topics:
        found = []
        for wanted in topic.partitions:
            item = _read(context, request, topic, wanted, left, at_least_one=total == 0)
            if item.records is not None:
                total += item.records.size
                left -= item.records.size
            has_error = has_error or item.error_code != 0
            found.append(item)
        answer.append((topic, found))
    return answer, total, has_error


def _read(
    context: Context,
    request: FetchRequest,
    topic: FetchTopic,
    wanted: FetchPartition,
    left: int,
    *,
    at_least_one: bool,
) -> _Found:
    try:
        partition = led_partition(
            context, _name_of(context, topic), wanted.partition_index, wanted.leader_epoch
        )
        if request.replica_id >= 0:
            partition.follower_fetched(request.replica_id, wanted.offset)
        size_max = min(wanted.size_max, left)
        log = partition.log
        upper_offset = _upper_offset(partition, request)
        if size_max <= 0 and not at_least_one:
            records = None
        else:
            records = log.read(
                wanted.offset, size_max=max(size_max, 0), upper_offset=upper_offset, at_least_one=at_least_one
            )
        return _Found(
            wanted.partition_index,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            records,
        )
    except KafkaError as error:
        return _Found(wanted.partition_index, error.code, UNKNOWN, UNKNOWN, UNKNOWN, None)


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


def _finish(context: Context, version: int, correlation_id: int, answer: _Answer) -> Parts:
    for topic, found in answer:
        size = sum(item.records.size for item in found if item.records is not None)
        if size:
            context.metrics.fetched(_name_of(context, topic), size)
    return _encode(version, correlation_id, 0, answer)


def _encode(version: int, correlation_id: int, error_code: int, answer: _Answer) -> Parts:
    """The whole reply: bytes around slices, the length prefix first."""
    is_flexible = version >= FLEXIBLE_VERSION
    buffer = bytearray(8)
    if is_flexible:
        buffer += _NO_TAGS
    buffer += _TOP.pack(0, error_code, 0) if version >= 7 else _TOP_BEFORE_SESSIONS.pack(0)
    buffer += encode_uvarint(len(answer) + 1) if is_flexible else _INT32.pack(len(answer))
    parts: Parts = []
    size = 0
    for topic, found in answer:
        buffer += _topic_head(version, topic, len(found))
        for item in found:
            buffer += _partition_head(version, item)
            if item.records is not None and item.records.size:
                size += len(buffer) + item.records.size
                parts += (bytes(buffer), item.records)
                buffer.clear()
            if is_flexible:
                buffer += _NO_TAGS
        if is_flexible:
            buffer += _NO_TAGS
    if is_flexible:
        buffer += _NO_TAGS
    if buffer:
        size += len(buffer)
        parts.append(bytes(buffer))
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = _PREFIX.pack(size - 4, correlation_id) + first[8:]
    return parts


def _topic_head(version: int, topic: FetchTopic, partition_count: int) -> bytes:
    if version >= TOPIC_ID_VERSION:
        return topic.key + encode_uvarint(partition_count + 1)
    if version >= FLEXIBLE_VERSION:
        return encode_uvarint(len(topic.key) + 1) + topic.key + encode_uvarint(partition_count + 1)
    return len(topic.key).to_bytes(2, "big") + topic.key + _INT32.pack(partition_count)


def _partition_head(version: int, item: _Found) -> bytes:
    """Everything of a partition before its records; aborted transactions are null, none are known."""
    index, error_code, high_watermark, last_stable_offset, log_start_offset, records = item
    size = 0 if records is None else records.size
    if version >= FLEXIBLE_VERSION:
        head = _PARTITION_12.pack(
            index, error_code, high_watermark, last_stable_offset, log_start_offset, 0, UNKNOWN
        )
        return head + encode_uvarint(size + 1)
    if version == 11:
        return _PARTITION_11.pack(
            index, error_code, high_watermark, last_stable_offset, log_start_offset, -1, UNKNOWN, size
        )
    if version >= 5:
        return _PARTITION_5.pack(
            index, error_code, high_watermark, last_stable_offset, log_start_offset, -1, size
        )
    return _PARTITION_4.pack(index, error_code, high_watermark, last_stable_offset, -1, size)
