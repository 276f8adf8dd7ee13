"""DeleteRecords (key 21), versions 0-2: answered once no live replica has the records any more, which followers tell their
leader with their fetches.

Deviation: a mirror's copy keeps its records: POLICY_VIOLATION.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.auth.operations import Operation
from headrace.broker.config import copies
from headrace.broker.coordinators.topics import INTERNAL_TOPICS
from headrace.broker.errors import (
    ErrorCode,
    InvalidTopicError,
    KafkaError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    RequestTimedOutError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from headrace.broker.handlers.access import refused_topics
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k21_delete_records

if TYPE_CHECKING:
    from headrace.broker.replication.partition import Partition

API = k21_delete_records.API
VERSIONS = (0, 2)
HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1
REFUSAL = TopicAuthorizationError("the client may not delete records of the topic")


class _Deletion(NamedTuple):
    """Records of a partition that are to go: up to `offset`, with what is answered when they do not in time."""

    topic: str
    partition_index: int
    offset: int
    error: KafkaError | None = None
    low_watermark: int = NO_LOW_WATERMARK

    @property
    def answer(self) -> dict[str, Any]:
        return {
            "partition_index": self.partition_index,
            "low_watermark": self.low_watermark,
            "error_code": ErrorCode.NONE if self.error is None else self.error.code,
        }


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    wanted = {
        (topic["name"], partition["partition_index"]): partition["offset"]
        for topic in request["topics"]
        for partition in topic["partitions"]
    }
    names = (topic["name"] for topic in request["topics"])
    refused = refused_topics(broker, call, Operation.DELETE, names)
    deletions = [
        _Deletion(topic, index, offset, REFUSAL) if topic in refused else _begin(broker, topic, index, offset)
        for (topic, index), offset in wanted.items()
    ]
    left = [deletion for deletion in deletions if isinstance(deletion.error, RequestTimedOutError)]
    if not left:
        return _answer(deletions)

    def attempt(moved: Collection[tuple[str, int]] | None) -> dict[str, Any] | None:
        settled = [_settle(broker, deletion) for deletion in deletions]
        is_over = not any(isinstance(deletion.error, RequestTimedOutError) for deletion in settled)
        return _answer(settled) if is_over or moved is None else None

    keys = [(deletion.topic, deletion.partition_index) for deletion in left]
    return broker.waiting.park(keys, request["timeout_ms"], attempt)


def _answer(deletions: Iterable[_Deletion]) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for deletion in deletions:
        topics.setdefault(deletion.topic, []).append(deletion.answer)
    return {"topics": [{"name": name, "partitions": answers} for name, answers in topics.items()]}


def _begin(broker: Services, topic: str, index: int, offset: int) -> _Deletion:
    """Delete the leader's records; the answer is a time-out as long as live replicas have theirs."""
    try:
        partition, offset = _delete_before(broker, topic, index, offset)
    except KafkaError as error:
        return _Deletion(topic, index, offset, error)
    return _after(partition, _Deletion(topic, index, offset))


def _settle(broker: Services, deletion: _Deletion) -> _Deletion:
    """The deletion as it is now, where its time-out was still to come."""
    if not isinstance(deletion.error, RequestTimedOutError):
        return deletion
    try:
        partition = broker.partitions.leader_of(deletion.topic, deletion.partition_index)
    except KafkaError as error:
        return deletion._replace(error=error, low_watermark=NO_LOW_WATERMARK)
    return _after(partition, deletion)


def _after(partition: Partition, deletion: _Deletion) -> _Deletion:
    low_watermark = partition.low_watermark
    is_done = low_watermark >= deletion.offset
    late = RequestTimedOutError(f"not all live replicas begin at {deletion.offset} or later yet")
    return deletion._replace(low_watermark=low_watermark, error=None if is_done else late)


def _delete_before(broker: Services, topic: str, index: int, offset: int) -> tuple[Partition, int]:
    """Move the start of the leader's log; returns the partition, and the offset that it shall begin at or above."""
    if broker.metadata.partition(topic, index) is None:
        raise UnknownTopicOrPartitionError(f"there is no {topic}-{index}")
    if topic in INTERNAL_TOPICS:
        raise InvalidTopicError(f"records of the internal topic {topic} cannot be deleted")
    partition = broker.partitions.leader_of(topic, index)
    log = partition.log
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
    return partition, offset
