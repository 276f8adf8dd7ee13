"""What a fetch answers, and its bytes: head and partitions around slices of segment files.

Knows nothing of how the answer was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.current_leader import CurrentLeader, node_endpoints
from headrace.broker.handlers.fetch_records import ConvertedRecords, in_answer
from headrace.broker.handlers.fetch_request import FLEXIBLE_VERSION, TOPIC_ID_VERSION, FetchTopic
from headrace.broker.handlers.fetch_sessions import NO_SESSION
from headrace.broker.handlers.replies import Parts
from headrace.broker.log.results import EpochEndOffset, LogSlice
from headrace.broker.log.transactions import AbortedTransaction
from headrace.broker.wire.api.k01_fetch import API
from headrace.broker.wire.varint import encode_uvarint

if TYPE_CHECKING:
    from headrace.broker.handlers.call import Call
    from headrace.broker.handlers.services import Services

LEADER_TAG_VERSION = 16
UNKNOWN = -1
# Errors that come with null for records, as Kafka has it; the others come with none.
WITHOUT_RECORDS = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

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


class Found(NamedTuple):
    """What one partition has to offer; offsets are -1 with an error.

    `aborted` is None for "not asked for", `encoded` what `encode_nothing` gave, in the version of the request.
    """

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
    encoded: bytes | None = None


Answer = list[tuple[FetchTopic, list[Found]]]


def encode_fetch(
    broker: Services,
    call: Call,
    error_code: int,
    session_id: int,
    answer: Answer,
) -> Parts:
    """The whole reply: bytes around slices, the length prefix first."""
    version = call.header.version
    is_flexible = version >= FLEXIBLE_VERSION
    _count_errors(broker, error_code, answer)
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
            if item.encoded is not None:
                buffer += item.encoded
                continue
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
        buffer += _endpoint_tags(broker, call, version, answer)
    if buffer:
        size += len(buffer)
        parts.append(bytes(buffer))
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = _PREFIX.pack(size - 4, call.header.correlation_id) + first[8:]
    return parts


def _count_errors(broker: Services, error_code: int, answer: Answer) -> None:
    if error_code:
        broker.metrics.failed(API.key, error_code)
    for _, found in answer:
        for item in found:
            if item.error_code:
                broker.metrics.failed(API.key, item.error_code)


def encode_nothing(version: int, item: Found) -> bytes:
    """A partition without records, whole: it may serve for more than one answer."""
    head = _partition_head(version, item)
    return head + _NO_TAGS if version >= FLEXIBLE_VERSION else head


def _partition_tags(version: int, item: Found) -> bytes:
    """The tagged fields of a partition without records: 0 diverging epoch, 1 current leader."""
    tags = []
    if item.diverging_epoch is not None:
        tags.append(_DIVERGING_EPOCH.pack(0, _DIVERGING_EPOCH.size - 2, *item.diverging_epoch, 0))
    if item.current_leader is not None and version >= LEADER_TAG_VERSION:
        tags.append(_CURRENT_LEADER.pack(1, _CURRENT_LEADER.size - 2, *item.current_leader, 0))
    return bytes([len(tags)]) + b"".join(tags)


def _endpoint_tags(broker: Services, call: Call, version: int, answer: Answer) -> bytes:
    """The tagged fields of the whole: 0 where the current leaders are."""
    if version < LEADER_TAG_VERSION:
        return _NO_TAGS
    leaders = [item.current_leader for _, found in answer for item in found if item.current_leader]
    if not leaders:
        return _NO_TAGS
    nodes = node_endpoints(broker.metadata, call.client.listener, leaders)
    empty = {"session_id": NO_SESSION, "responses": [], "node_endpoints": nodes}
    return API.encode_response(version, empty)[_EMPTY_SIZE:]


def _topic_head(version: int, topic: FetchTopic, partition_count: int) -> bytes:
    if version >= TOPIC_ID_VERSION:
        return topic.key + encode_uvarint(partition_count + 1)
    if version >= FLEXIBLE_VERSION:
        return encode_uvarint(len(topic.key) + 1) + topic.key + encode_uvarint(partition_count + 1)
    return len(topic.key).to_bytes(2, "big") + topic.key + _INT32.pack(partition_count)


def _partition_head(version: int, item: Found) -> bytes:
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


def _head_with_aborted(version: int, item: Found, aborted: Sequence[AbortedTransaction], size: int) -> bytes:
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
