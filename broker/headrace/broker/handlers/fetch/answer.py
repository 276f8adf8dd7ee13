"""The bytes of a whole answer: its head, and partitions around slices of segment files.

Knows nothing of how the answer was found.
"""

from __future__ import annotations

from struct import Struct

from headrace.broker.handlers.call import Call
from headrace.broker.handlers.current_leader import node_endpoints
from headrace.broker.handlers.fetch.found import Answer
from headrace.broker.handlers.fetch.head import LEADER_TAG_VERSION, partition_head, partition_tags
from headrace.broker.handlers.fetch.read import FLEXIBLE_VERSION, TOPIC_ID_VERSION
from headrace.broker.handlers.fetch_request import NO_SESSION, FetchTopic
from headrace.broker.handlers.replies import Parts
from headrace.broker.handlers.services import Services
from headrace.broker.log.results import LogSlice
from headrace.broker.wire.api.k01_fetch import API
from headrace.broker.wire.varint import encode_uvarint

_PREFIX = Struct(">ii")
_TOP_BEFORE_SESSIONS = Struct(">i")
_TOP = Struct(">ihi")
_INT32 = Struct(">i")
_EMPTY_SIZE = _TOP.size + 1
_NO_TAGS = b"\0"


def encode_fetch(
    broker: Services,
    call: Call,
    error_code: int,
    session_id: int,
    answer: Answer,
    throttle_ms: int = 0,
) -> Parts:
    """The whole reply: bytes around slices, the length prefix first."""
    version = call.header.version
    is_flexible = version >= FLEXIBLE_VERSION
    _count_errors(broker, error_code, answer)
    buffer = bytearray(8)
    if is_flexible:
        buffer += _NO_TAGS
    if version >= 1:
        buffer += (
            _TOP.pack(throttle_ms, error_code, session_id)
            if version >= 7
            else _TOP_BEFORE_SESSIONS.pack(throttle_ms)
        )
    buffer += encode_uvarint(len(answer) + 1) if is_flexible else _INT32.pack(len(answer))
    parts: Parts = []
    size = 0
    for topic, found in answer:
        buffer += _topic_head(version, topic, len(found))
        for item in found:
            if item.encoded is not None:
                buffer += item.encoded
                continue
            buffer += partition_head(version, item)
            if item.records is not None and item.records.size:
                size += len(buffer) + item.records.size
                parts += (
                    bytes(buffer),
                    item.records if isinstance(item.records, LogSlice) else item.records.data,
                )
                buffer.clear()
            if is_flexible:
                buffer += _NO_TAGS if type(item.records) is LogSlice else partition_tags(version, item)
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


def size_of(version: int, answer: Answer) -> int:
    """The bytes of a reply with the partitions that have something to tell, as far as quotas count them."""
    size = 4 + (_TOP.size if version >= 7 else _TOP_BEFORE_SESSIONS.size if version >= 1 else 0)
    tags_size = len(_NO_TAGS) if version >= FLEXIBLE_VERSION else 0
    size += tags_size + len(encode_uvarint(len(answer) + 1) if tags_size else _INT32.pack(len(answer)))
    for topic, found in answer:
        told = [item for item in found if item.encoded is None]
        if told:
            size += len(_topic_head(version, topic, len(told))) + tags_size
        for item in told:
            size += len(partition_head(version, item)) + (
                len(partition_tags(version, item)) if tags_size else 0
            )
            size += item.records.size if item.records is not None else 0
    return size


def _count_errors(broker: Services, error_code: int, answer: Answer) -> None:
    if error_code:
        broker.metrics.failed(API.key, error_code)
    for _, found in answer:
        for item in found:
            if item.error_code:
                broker.metrics.failed(API.key, item.error_code)


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
