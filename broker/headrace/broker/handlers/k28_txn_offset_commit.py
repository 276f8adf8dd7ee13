"""TxnOffsetCommit (key 28), versions 0-4: stores a group's offsets in a producer's transaction, to hold once it is committed.

Deviations: a commit that would make a new group beyond the coordinator's bound (`groups.machine.GROUPS_COUNT_MAX`) is refused
with POLICY_VIOLATION; Kafka has no bound. That the transaction has the group's offsets is not verified.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import CommitOffsets
from headrace.broker.groups.records import OffsetValue
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.partition_errors import topics_answered
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k28_txn_offset_commit
from headrace.broker.wire.partitions import TopicPartition

API = k28_txn_offset_commit.API
VERSIONS = (0, 4)
# Producers below it may break when they are told that a coordinator loads.
LOADING_VERSION = 2


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    offsets = _known_offsets(broker, request)

    def respond(errors: Mapping[TopicPartition, ErrorCode]) -> dict[str, Any]:
        if call.header.version < LOADING_VERSION:
            errors = {p: _without_loading(error) for p, error in errors.items()}
        return {"topics": topics_answered(broker, request["topics"], errors)}

    if not offsets:
        return respond({})
    commit = CommitOffsets(
        group_id=request["group_id"],
        generation=request.get("generation_id", -1),
        member_id=request.get("member_id", ""),
        instance_id=request.get("group_instance_id"),
        offsets=offsets,
        producer=ProducerEpoch(request["producer_id"], request["producer_epoch"]),
    )
    return broker.groups.ask(commit).map(respond)


def _without_loading(error: ErrorCode) -> ErrorCode:
    loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if loading else error


def _known_offsets(broker: Services, request: dict[str, Any]) -> dict[TopicPartition, OffsetValue]:
    """What is to be stored, without the partitions that the cluster does not have."""
    now_ms = broker.clock.now_ms()
    return {
        TopicPartition(topic["name"], partition["partition_index"]): OffsetValue(
            offset=partition["committed_offset"],
            leader_epoch=partition.get("committed_leader_epoch", -1),
            metadata=partition["committed_metadata"] or "",
            commit_timestamp_ms=now_ms,
        )
        for topic in request["topics"]
        for partition in topic["partitions"]
        if broker.metadata.partition(topic["name"], partition["partition_index"]) is not None
    }
