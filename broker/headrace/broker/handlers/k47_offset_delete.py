"""OffsetDelete (key 47), version 0. No deviations."""

from __future__ import annotations

from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import DeleteOffsets, DeleteOffsetsAnswer, TopicPartition
from headrace.broker.handlers.context import Context
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.handlers.partition_errors import topics_answered
from headrace.broker.wire.api import k47_offset_delete
from headrace.broker.wire.frames import RequestHeader

API = k47_offset_delete.API
VERSIONS = (0, 0)


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    wanted = (
        TopicPartition(topic["name"], partition["partition_index"])
        for topic in request["topics"]
        for partition in topic["partitions"]
    )
    known = tuple(p for p in wanted if context.metadata.partition(p.topic, p.partition) is not None)
    answer: Deferred[DeleteOffsetsAnswer] = context.groups.ask(
        DeleteOffsets(group_id=request["group_id"], partitions=known)
    )
    return answer.map(lambda deleted: _response(context, request, deleted))


def _response(context: Context, request: dict[str, Any], deleted: DeleteOffsetsAnswer) -> dict[str, Any]:
    """An error of the group leaves nothing to say about its partitions."""
    if deleted.error is not ErrorCode.NONE:
        return {"error_code": deleted.error, "topics": []}
    return {
        "error_code": ErrorCode.NONE,
        "topics": topics_answered(context, request["topics"], deleted.partitions),
    }
