"""TxnOffsetCommit (key 28), versions 0-4: stores a group's offsets in a producer's transaction, to hold once it is committed.

Deviations: a commit that would make a new group beyond the coordinator's bound (`groups.machine.GROUPS_COUNT_MAX`) is refused
with POLICY_VIOLATION; Kafka has no bound.

Before the first offsets of a transaction in a partition of `__consumer_offsets` its coordinator is asked whether it has that
partition (KIP-890), unless `transaction.partition.verification.enable` is false.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.coordinators.topics import OFFSETS_TOPIC
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import CommitOffsets
from headrace.broker.groups.records import OffsetValue
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.partition_errors import topics_answered, topics_failed
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k28_txn_offset_commit
from headrace.broker.wire.partitions import TopicPartition
from headrace.broker.wire.special_values import NO_SEQUENCE

API = k28_txn_offset_commit.API
VERSIONS = (0, 4)
# Producers below it may break when they are told that a coordinator loads.
LOADING_VERSION = 2
# The first version whose clients know TRANSACTION_ABORTABLE.
ABORTABLE_VERSION = 4
Errors = Mapping[TopicPartition, ErrorCode]


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    rights = access(broker, call)
    if rights and not rights.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request["transactional_id"]):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return {"topics": topics_failed(request["topics"], error)}
    if rights and not rights.may(Operation.READ, ResourceType.GROUP, request["group_id"]):
        return {"topics": topics_failed(request["topics"], ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    names = (topic["name"] for topic in request["topics"])
    refused = rights.refused(Operation.READ, ResourceType.TOPIC, names) if rights else ()
    offsets = _known_offsets(broker, request, refused)

    def respond(errors: Errors) -> dict[str, Any]:
        if call.header.version < LOADING_VERSION:
            errors = {p: _without_loading(error) for p, error in errors.items()}
        return {"topics": topics_answered(broker, request["topics"], errors, refused=refused)}

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
    asked = _verified(broker, request["transactional_id"], commit, call.header.version)
    return asked.map(respond)


def _verified(
    broker: Services, transactional_id: str, commit: CommitOffsets, version: int
) -> Deferred[Errors]:
    """The group's answer, once the transaction's coordinator has said that the commit may be stored."""
    partition = broker.partitions.get(OFFSETS_TOPIC, broker.groups.partition_for(commit.group_id))
    producer = commit.producer
    enabled = broker.config.transactions.transaction_partition_verification_enable
    if producer is None or not enabled or not commit.group_id or partition is None or not partition.is_leader:
        return broker.groups.ask(commit)
    log, place = partition.log, TopicPartition(OFFSETS_TOPIC, partition.partition)
    verification = log.producers.begin_verification(
        producer.producer_id, NO_SEQUENCE, producer.epoch, broker.clock.now_ms()
    )
    if verification is None or broker.verifier.is_in(transactional_id, producer, place):
        return broker.groups.ask(commit)
    answer: Deferred[Errors] = Deferred()

    def refuse(error: ErrorCode) -> None:
        answer.complete(dict.fromkeys(commit.offsets, error))

    def verified(errors: Errors) -> None:
        error = errors.get(place, ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            refuse(_of_verification(error, version))
        elif log.producers.is_verified(producer.producer_id, verification):
            answer.follow(broker.groups.ask(commit))
        else:
            refuse(ErrorCode.INVALID_TXN_STATE)

    asked = broker.verifier.verify(transactional_id, producer, (place,), 0)
    answer.on_cancel(asked.cancel)
    asked.then(verified, answer.fail)
    return answer


def _of_verification(error: ErrorCode, version: int) -> ErrorCode:
    """What the producer is told: what passes is a coordinator that loads, as the oldest clients understand it."""
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    return error


def _without_loading(error: ErrorCode) -> ErrorCode:
    loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if loading else error


def _known_offsets(
    broker: Services, request: dict[str, Any], refused: Collection[str]
) -> dict[TopicPartition, OffsetValue]:
    """What is to be stored, without the topics that are refused and the partitions that the cluster does not have."""
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
        if topic["name"] not in refused
        and broker.metadata.partition(topic["name"], partition["partition_index"]) is not None
    }
