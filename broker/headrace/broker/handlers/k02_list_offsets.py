"""ListOffsets (key 2), versions 0-9; version 0 lists begins of segments. No deviations.

A new leader whose high watermark is below the start of its epoch does not know yet up to where records are committed: a
consumer that asks for what lies there is told to ask again (KIP-207).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import ErrorCode, KafkaError, OffsetNotAvailableError
from headrace.broker.handlers.access import refused_topics
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.led import led_partition, readable_partition
from headrace.broker.handlers.services import Services
from headrace.broker.legacy.segment_offsets import offsets_before
from headrace.broker.wire.api import k02_list_offsets
from headrace.broker.wire.special_values import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_COMMITTED,
)

if TYPE_CHECKING:
    from headrace.broker.replication.partition import Partition

API = k02_list_offsets.API
VERSIONS = (0, 9)

LEADER_EPOCH_VERSION = 4
OFFSET_NOT_AVAILABLE_VERSION = 5
MAX_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP = -3, -4, -5
SINCE_VERSION = {
    LATEST_TIMESTAMP: 0,
    EARLIEST_TIMESTAMP: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
}
"""Special times and the first version that knows them."""
NEVER = VERSIONS[1] + 1


class _Place(NamedTuple):
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    counts = Counter(
        (topic["name"], wanted["partition_index"])
        for topic in request["topics"]
        for wanted in topic["partitions"]
    )
    doubled = {partition for partition, count in counts.items() if count > 1}

    refused = refused_topics(broker, call, Operation.DESCRIBE, (topic["name"] for topic in request["topics"]))

    def find(topic: str, wanted: dict[str, Any]) -> dict[str, Any]:
        if topic in refused:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return {"partition_index": wanted["partition_index"], "error_code": error}
        if call.header.version > 0 and (topic, wanted["partition_index"]) in doubled:
            return {"partition_index": wanted["partition_index"], "error_code": ErrorCode.INVALID_REQUEST}
        time = wanted["timestamp"]
        if time < 0 and call.header.version < SINCE_VERSION.get(time, NEVER):
            return {"partition_index": wanted["partition_index"], "error_code": ErrorCode.UNSUPPORTED_VERSION}
        search = _find_segments if call.header.version == 0 else _find
        found = search(broker, request, topic, wanted)
        is_told = call.header.version >= OFFSET_NOT_AVAILABLE_VERSION
        if found["error_code"] == ErrorCode.OFFSET_NOT_AVAILABLE and not is_told:
            found["error_code"] = ErrorCode.LEADER_NOT_AVAILABLE
        return found

    topics = [
        {"name": topic["name"], "partitions": [find(topic["name"], wanted) for wanted in topic["partitions"]]}
        for topic in request["topics"]
    ]
    if call.header.version < LEADER_EPOCH_VERSION:
        for topic in topics:
            for partition in topic["partitions"]:
                partition.pop("leader_epoch", None)
    return {"topics": topics}


def _find(broker: Services, request: dict[str, Any], topic: str, wanted: dict[str, Any]) -> dict[str, Any]:
    index = wanted["partition_index"]
    try:
        partition = readable_partition(
            broker.partitions,
            topic,
            index,
            wanted["current_leader_epoch"],
            is_from_leader=request["replica_id"] != DEBUGGING_REPLICA_ID,
        )
        place = _place(partition, wanted["timestamp"], _upper_offset(partition, request))
        time = wanted["timestamp"]
        if time == LATEST_TIMESTAMP or (place.offset < 0 and time != LATEST_TIERED_TIMESTAMP):
            _check_watermark(partition, request)
    except KafkaError as error:
        return {"partition_index": index, "error_code": error.code}
    return {"partition_index": index, "error_code": 0, **place._asdict()}


def _find_segments(
    broker: Services, request: dict[str, Any], topic: str, wanted: dict[str, Any]
) -> dict[str, Any]:
    index = wanted["partition_index"]
    try:
        offsets = offsets_before(
            led_partition(broker.partitions, topic, index),
            wanted["timestamp"],
            wanted["max_num_offsets"],
            is_consumer=request["replica_id"] == CONSUMER_REPLICA_ID,
            now_ms=broker.clock.now_ms(),
        )
    except KafkaError as error:
        return {"partition_index": index, "error_code": error.code}
    return {"partition_index": index, "error_code": 0, "old_style_offsets": offsets}


def _upper_offset(partition: Partition, request: dict[str, Any]) -> int:
    """The first offset that the asker may not fetch."""
    log = partition.log
    if request["replica_id"] != CONSUMER_REPLICA_ID:
        return log.log_end_offset
    if request["isolation_level"] == READ_COMMITTED:
        return min(log.last_stable_offset, log.high_watermark)
    return log.high_watermark


def _check_watermark(partition: Partition, request: dict[str, Any]) -> None:
    """Raises OffsetNotAvailableError for a consumer while the high watermark of a new leader lags."""
    leadership, high_watermark = partition.leadership, partition.log.high_watermark
    if request["replica_id"] != CONSUMER_REPLICA_ID or leadership is None:
        return
    if high_watermark < leadership.epoch_start_offset:
        raise OffsetNotAvailableError(
            f"{partition.topic}-{partition.partition} is committed up to {high_watermark} as far as its new leader knows, "
            f"whose epoch began at {leadership.epoch_start_offset}: ask again"
        )


def _place(partition: Partition, timestamp: int, upper_offset: int) -> _Place:
    """Where that time is in the log; all -1 when no record there is old enough."""
    log = partition.log
    if timestamp == LATEST_TIMESTAMP:
        return _Place(offset=upper_offset, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return _Place(offset=log.log_start_offset, leader_epoch=log.epoch_at(log.log_start_offset))
    if timestamp == LATEST_TIERED_TIMESTAMP:
        return _Place()
    found = (
        log.latest_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    )
    if found is None or found.offset >= upper_offset:
        return _Place()
    return _Place(found.timestamp_ms, found.offset, found.leader_epoch)
