"""OffsetCommit (key 8), versions 0-9; version 0 stores offsets in ZooKeeper, below `/consumers`.

Deviations: in version 0 a group whose name is no znode's gets INVALID_GROUP_ID. A commit that would make a new group
beyond the coordinator's bound (`groups.machine.GROUPS_COUNT_MAX`) is refused with POLICY_VIOLATION; Kafka has
no bound.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.groups.events import CommitOffsets
from headrace.broker.groups.offsets import length_in_java
from headrace.broker.groups.records import OffsetValue
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.partition_errors import topics_answered, topics_failed
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k08_offset_commit
from headrace.broker.wire.partitions import TopicPartition
from headrace.broker.wire.special_values import NO_TIMESTAMP

API = k08_offset_commit.API
VERSIONS = (0, 9)
TIME_MAX_MS = (1 << 63) - 1


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    rights = access(broker, call)
    if rights and not rights.may(Operation.READ, ResourceType.GROUP, request["group_id"]):
        return {"topics": topics_failed(request["topics"], ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    names = (topic["name"] for topic in request["topics"])
    refused = rights.refused(Operation.READ, ResourceType.TOPIC, names) if rights else ()
    offsets = _known_offsets(broker, request, refused)

    def respond(errors: Mapping[TopicPartition, ErrorCode]) -> dict[str, Any]:
        once = call.header.version > 0
        return {"topics": topics_answered(broker, request["topics"], errors, once=once, refused=refused)}

    if not offsets:
        return respond({})
    if call.header.version == 0:
        stored = broker.later("commit-to-zookeeper", _store(broker, request["group_id"], offsets))
        return stored.map(respond)
    commit = CommitOffsets(
        group_id=request["group_id"],
        generation=request["generation_id_or_member_epoch"],
        member_id=request["member_id"],
        instance_id=request.get("group_instance_id"),
        offsets=offsets,
    )
    committed = broker.groups.ask(commit)
    return committed.map(respond)


async def _store(
    broker: Services, group_id: str, offsets: Mapping[TopicPartition, OffsetValue]
) -> dict[TopicPartition, ErrorCode]:
    """Version 0: one znode for each partition; the metadata has no place there."""
    errors: dict[TopicPartition, ErrorCode] = {}
    for partition, value in offsets.items():
        if length_in_java(value.metadata) > broker.config.groups.offset_metadata_max_bytes:
            errors[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        try:
            await broker.consumer_offsets.commit(group_id, *partition, value.offset)
            errors[partition] = ErrorCode.NONE
        except KafkaError as error:
            errors[partition] = error.code
    return errors


def _known_offsets(
    broker: Services, request: dict[str, Any], refused: Collection[str]
) -> dict[TopicPartition, OffsetValue]:
    """What is to be stored, without the topics that are refused and the partitions that the cluster does not have."""
    now_ms = broker.clock.now_ms()
    retention_ms = request.get("retention_time_ms", -1)
    expire_timestamp_ms = min(now_ms + retention_ms, TIME_MAX_MS) if retention_ms != -1 else -1
    offsets: dict[TopicPartition, OffsetValue] = {}
    for topic in request["topics"]:
        if topic["name"] in refused:
            continue
        for partition in topic["partitions"]:
            index = partition["partition_index"]
            if broker.metadata.partition(topic["name"], index) is None:
                continue
            commit_timestamp_ms = partition.get("commit_timestamp", NO_TIMESTAMP)
            offsets[TopicPartition(topic["name"], index)] = OffsetValue(
                offset=partition["committed_offset"],
                leader_epoch=partition.get("committed_leader_epoch", -1),
                metadata=partition["committed_metadata"] or "",
                commit_timestamp_ms=now_ms if commit_timestamp_ms == NO_TIMESTAMP else commit_timestamp_ms,
                expire_timestamp_ms=expire_timestamp_ms,
            )
    return offsets
