"""OffsetDelete (key 47), version 0. No deviations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import DeleteOffsets, DeleteOffsetsAnswer, TopicPartition
from headrace.broker.handlers.context import Context
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.wire.api import k47_offset_delete
from headrace.broker.wire.frames import RequestHeader

API = k47_offset_delete.API
VERSIONS = (0, 0)


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    wanted = [
        TopicPartition(topic["name"], partition["partition_index"])
        for topic in request["topics"]
        for partition in topic["partitions"]
    ]
    known = tuple(p for p in wanted if context.metadata.partition(p.topic, p.partition) is not None)
    answer: Deferred[DeleteOffsetsAnswer] = context.groups.ask(
        DeleteOffsets(group_id=request["group_id"], partitions=known)
    )
    return answer.map(
        lambda deleted: (
            _response(wanted, deleted.partitions)
            if deleted.error is ErrorCode.NONE
            else {"error_code": deleted.error, "topics": []}
        )
    )


def _response(wanted: list[TopicPartition], errors: Mapping[TopicPartition, ErrorCode]) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition in wanted:
        error = errors.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topics.setdefault(partition.topic, []).append(
            {"partition_index": partition.partition, "error_code": error}
        )
    return {
        "error_code": ErrorCode.NONE,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
