"""DeleteRecords (key 21), versions 0-2. With one replica a partition there is nothing to wait for.

Deviation: a mirror's copy keeps its records: POLICY_VIOLATION.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.config import copies
from headrace.broker.coordinators.topics import INTERNAL_TOPICS
from headrace.broker.errors import (
    InvalidTopicError,
    KafkaError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k21_delete_records

API = k21_delete_records.API
VERSIONS = (0, 2)
HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    wanted = {
        (topic["name"], partition["partition_index"]): partition["offset"]
        for topic in request["topics"]
        for partition in topic["partitions"]
    }
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), offset in wanted.items():
        topics.setdefault(topic, []).append(_delete(broker, topic, index, offset))
    return {"topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()]}


def _delete(broker: Services, topic: str, index: int, offset: int) -> dict[str, Any]:
    try:
        low_watermark = _delete_before(broker, topic, index, offset)
    except KafkaError as error:
        return {"partition_index": index, "low_watermark": NO_LOW_WATERMARK, "error_code": error.code}
    return {"partition_index": index, "low_watermark": low_watermark, "error_code": 0}


def _delete_before(broker: Services, topic: str, index: int, offset: int) -> int:
    """Move the start of the log; returns where it is then."""
    if broker.metadata.partition(topic, index) is None:
        raise UnknownTopicOrPartitionError(f"there is no {topic}-{index}")
    if topic in INTERNAL_TOPICS:
        raise InvalidTopicError(f"records of the internal topic {topic} cannot be deleted")
    log = broker.partitions.leader_of(topic, index).log
    if log.is_mirror_copy:
        raise copies.refusal(topic)
    if "delete" not in log.config.cleanup_policy:
        raise PolicyViolationError(
            f"{topic} is compacted: its cleanup.policy does not allow to delete records"
        )
    offset = log.high_watermark if offset == HIGH_WATERMARK else offset
    if offset < 0:
        raise OffsetOutOfRangeError(
            f"{offset} is no offset: give one from 0 on, or -1 for the high watermark"
        )
    log.delete_before(offset)
    # Who waits here has kept where the log began.
    broker.waiting.wake_both(topic, index)
    return log.log_start_offset
