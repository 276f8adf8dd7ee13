"""The bytes of an answer: by hand where everything went well, else with the codec.

Must not know: why something was refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any

from headrace.broker.errors import ErrorCode, KafkaError, NotLeaderOrFollowerError
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.current_leader import CurrentLeader, current_leader, node_endpoints
from headrace.broker.handlers.produce.outcome import Outcome
from headrace.broker.handlers.produce.read import FLEXIBLE_VERSION, HEADS_MAX, Head
from headrace.broker.handlers.replies import CloseConnectionError
from headrace.broker.handlers.services import Services
from headrace.broker.log.results import AppendResult
from headrace.broker.wire import frames
from headrace.broker.wire.api.k00_produce import API
from headrace.broker.wire.varint import encode_uvarint

# The first version whose answers have one shape, but for what follows the start offset.
BY_HAND_VERSION = 5
RECORD_ERRORS_VERSION, LEADER_TAG_VERSION = 8, 10

_ID = Struct(">ii")  # size, correlation id
_COUNT = Struct(">i")
_NAME_SIZE = Struct(">h")
_INDEX_AND_ERROR = Struct(">ih")
_OFFSETS = Struct(">qqq")  # base offset, time of the append, start of the log


def of_single(head: Head, correlation_id: int, result: AppendResult) -> bytes:
    """The answer to a request of one item whose batch was appended."""
    layout, size, before, after = _around(head)
    base_offset, _, time_ms, start_offset, _ = result
    packed: bytes = layout.pack(size, correlation_id, before, base_offset, time_ms, start_offset, after)
    return packed


@lru_cache(maxsize=HEADS_MAX)
def _around(head: Head) -> tuple[Struct, int, bytes, bytes]:
    """What stands around the three numbers of an answer, and its layout and size."""
    version, name = head.version, head.topic.encode()
    no_tags = b"\0" if version >= FLEXIBLE_VERSION else b""
    before = (
        no_tags
        + _count(version, 1)
        + _topic(version, name, 1)
        + _INDEX_AND_ERROR.pack(head.partition_index, 0)
    )
    after = _after_offsets(version) + no_tags + _END[version >= FLEXIBLE_VERSION]
    layout = Struct(f">ii{len(before)}sqqq{len(after)}s")
    return layout, layout.size - 4, before, after


def of_items(broker: Services, call: Call, outcomes: Sequence[Outcome]) -> bytes:
    """The answer to a request of any shape, whatever became of its items."""
    if call.header.version >= BY_HAND_VERSION and all(outcome.error is None for outcome in outcomes):
        return _of_appended(call.header.version, call.header.correlation_id, outcomes)
    return _encoded(broker, call, outcomes)


def _of_appended(version: int, correlation_id: int, outcomes: Sequence[Outcome]) -> bytes:
    is_flexible = version >= FLEXIBLE_VERSION
    no_tags = b"\0" if is_flexible else b""
    after = _after_offsets(version)
    topics: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        topics.setdefault(outcome.topic, []).append(outcome)
    parts = [no_tags, _count(version, len(topics))]
    for topic, items in topics.items():
        parts.append(_topic(version, topic.encode(), len(items)))
        for item in items:
            assert item.result is not None
            base_offset, _, time_ms, start_offset, _ = item.result
            parts += (
                _INDEX_AND_ERROR.pack(item.partition_index, 0),
                _OFFSETS.pack(base_offset, time_ms, start_offset),
                after,
            )
        parts.append(no_tags)
    parts.append(_END[is_flexible])
    body = b"".join(parts)
    return _ID.pack(len(body) + 4, correlation_id) + body


_END = (_COUNT.pack(0), _COUNT.pack(0) + b"\0")
"""No throttling, and in flexible versions no tagged fields."""


def _count(version: int, count: int) -> bytes:
    """The size of an array."""
    return encode_uvarint(count + 1) if version >= FLEXIBLE_VERSION else _COUNT.pack(count)


def _topic(version: int, name: bytes, partition_count: int) -> bytes:
    """A topic up to its partitions."""
    size = encode_uvarint(len(name) + 1) if version >= FLEXIBLE_VERSION else _NAME_SIZE.pack(len(name))
    return size + name + _count(version, partition_count)


def _after_offsets(version: int) -> bytes:
    """A partition behind its offsets: no errors of records, no message, no tagged fields."""
    if version >= FLEXIBLE_VERSION:
        return b"\1\0\0"
    return b"\0\0\0\0\xff\xff" if version >= RECORD_ERRORS_VERSION else b""


def _encoded(broker: Services, call: Call, outcomes: Sequence[Outcome]) -> bytes:
    header = call.header
    topics: dict[str, list[dict[str, Any]]] = {}
    leaders: list[CurrentLeader] = []
    for outcome in outcomes:
        if outcome.error is not None:
            broker.metrics.failed(API.key, outcome.error.code)
        response = _partition_response(outcome)
        if header.version >= LEADER_TAG_VERSION and isinstance(outcome.error, NotLeaderOrFollowerError):
            leader = current_leader(broker.metadata, outcome.topic, outcome.partition_index)
            response["current_leader"] = leader._asdict()
            leaders.append(leader)
        topics.setdefault(outcome.topic, []).append(response)
    message: dict[str, Any] = {
        "responses": [{"name": name, "partition_responses": items} for name, items in topics.items()]
    }
    if leaders:
        message["node_endpoints"] = node_endpoints(broker.metadata, call.client.listener, leaders)
    return frames.frame(
        frames.encode_response_header(header.key, header.version, header.correlation_id),
        API.encode_response(header.version, message),
    )


def _partition_response(outcome: Outcome) -> dict[str, Any]:
    if outcome.error is not None:
        return {
            "index": outcome.partition_index,
            "error_code": outcome.error.code,
            "base_offset": -1,
            "log_start_offset": outcome.log_start_offset,
            "record_errors": [
                {"batch_index": index, "batch_index_error_message": str(outcome.error)}
                for index in outcome.error.records_at_fault
            ],
            "error_message": str(outcome.error) or None,
        }
    assert outcome.result is not None
    return {
        "index": outcome.partition_index,
        "error_code": ErrorCode.NONE,
        "base_offset": outcome.result.base_offset,
        "log_append_time_ms": outcome.result.log_append_time_ms,
        "log_start_offset": outcome.result.log_start_offset,
    }


def close_on_error(broker: Services, outcomes: Sequence[Outcome]) -> None:
    """acks=0: raises CloseConnectionError for the first outcome that is an error."""
    for outcome in outcomes:
        if outcome.error is not None:
            broker.metrics.failed(API.key, outcome.error.code)
            raise _unacknowledged(outcome.error)


def _unacknowledged(error: KafkaError) -> CloseConnectionError:
    return CloseConnectionError(f"produce without acknowledgement failed: {error}")
