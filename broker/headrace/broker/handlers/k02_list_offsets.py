"""ListOffsets (key 2), versions 1-9.

Deviations: version 0, which lists segment boundaries, is not served (as in Apache Kafka 4.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.errors import KafkaError
from headrace.broker.handlers.context import Context
from headrace.broker.handlers.led import led_partition
from headrace.broker.wire.api import k02_list_offsets
from headrace.broker.wire.frames import RequestHeader

if TYPE_CHECKING:
    from headrace.broker.replication.leader import Partition

API = k02_list_offsets.API
VERSIONS = (1, 9)

LEADER_EPOCH_VERSION = 4
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
CONSUMER = -1
READ_COMMITTED = 1


class _Place(NamedTuple):
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> dict[str, Any]:
    topics = [
        {
            "name": topic["name"],
            "partitions": [_find(context, request, topic["name"], wanted) for wanted in topic["partitions"]],
        }
        for topic in request["topics"]
    ]
    if header.version < LEADER_EPOCH_VERSION:
        for topic in topics:
            for partition in topic["partitions"]:
                partition.pop("leader_epoch", None)
    return {"topics": topics}


def _find(context: Context, request: dict[str, Any], topic: str, wanted: dict[str, Any]) -> dict[str, Any]:
    index = wanted["partition_index"]
    try:
        partition = led_partition(context, topic, index, wanted["current_leader_epoch"])
        place = _place(partition, wanted["timestamp"], _upper_offset(partition, request))
    except KafkaError as error:
        return {"partition_index": index, "error_code": error.code}
    return {"partition_index": index, "error_code": 0, **place._asdict()}


def _upper_offset(partition: Partition, request: dict[str, Any]) -> int:
    """The first offset that the asker may not fetch."""
    log = partition.log
    if request["replica_id"] != CONSUMER:
        return log.log_end_offset
    if request["isolation_level"] == READ_COMMITTED:
        return min(log.last_stable_offset, log.high_watermark)
    return log.high_watermark


def _place(partition: Partition, timestamp: int, upper_offset: int) -> _Place:
    """Where that time is in the log; all -1 when no record there is old enough."""
    log = partition.log
    if timestamp == LATEST:
        return _Place(offset=upper_offset, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _Place(offset=log.log_start_offset, leader_epoch=log.epoch_at(log.log_start_offset))
    if timestamp == LATEST_TIERED:
        return _Place()
    found = (
        log.latest_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    )
    if found is None or found.offset >= upper_offset:
        return _Place()
    return _Place(found.timestamp_ms, found.offset, found.leader_epoch)
