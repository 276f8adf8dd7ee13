"""OffsetDelete (key 47), version 0. No deviations."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import DeleteOffsets, DeleteOffsetsAnswer
from headrace.broker.handlers.access import refused_topics, require
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.partition_errors import topics_answered
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k47_offset_delete
from headrace.broker.wire.partitions import TopicPartition

API = k47_offset_delete.API
VERSIONS = (0, 0)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    require(broker, call, Operation.DELETE, ResourceType.GROUP, request["group_id"])
    names = (topic["name"] for topic in request["topics"])
    refused = refused_topics(broker, call, Operation.READ, names)
    wanted = (
        TopicPartition(topic["name"], partition["partition_index"])
        for topic in request["topics"]
        if topic["name"] not in refused
        for partition in topic["partitions"]
    )
    known = tuple(p for p in wanted if broker.metadata.partition(p.topic, p.partition) is not None)
    answer = broker.groups.ask(DeleteOffsets(group_id=request["group_id"], partitions=known))
    return answer.map(lambda deleted: _response(broker, request, deleted, refused))


def _response(
    broker: Services, request: dict[str, Any], deleted: DeleteOffsetsAnswer, refused: Collection[str]
) -> dict[str, Any]:
    """An error of the group leaves nothing to say about its partitions."""
    if deleted.error is not ErrorCode.NONE:
        return {"error_code": deleted.error, "topics": []}
    return {
        "error_code": ErrorCode.NONE,
        "topics": topics_answered(broker, request["topics"], deleted.partitions, refused=refused),
    }
