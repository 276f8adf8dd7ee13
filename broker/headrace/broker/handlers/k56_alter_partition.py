"""AlterPartition: versions 0 to 3. A leader proposes in-sync replicas to the controller (KIP-497).

KIP-704 (leader recovery state, version 1), topic ids (version 2), KIP-841 (INELIGIBLE_REPLICA, which versions 0 and 1 know as
OPERATION_NOT_ATTEMPTED), KIP-903 (broker epochs of the members, version 3).

Deviations: a proposal of a broker that does not lead the partition, and in-sync replicas without the leader, named twice or
that are no replicas get INVALID_REQUEST, as from Kafka's KRaft controllers; broker epochs in version 3 are checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import ErrorCode, NotControllerError
from headrace.broker.handlers.access import require_cluster
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.replication.events import AnswerIsrProposal, IsrAnswer, IsrProposed, ProposedIsr
from headrace.broker.replication.model import PartitionState
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k56_alter_partition
from headrace.broker.wire.special_values import NO_EPOCH

API = k56_alter_partition.API
VERSIONS = (0, 3)
FIRST_VERSION_BY_TOPIC_ID = 2
FIRST_VERSION_WITH_BROKER_EPOCHS = 3


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    require_cluster(broker, call, Operation.CLUSTER_ACTION)
    return broker.later("alter-partition", _answer(broker, call.header.version, request))


async def _answer(broker: Services, version: int, request: dict[str, Any]) -> dict[str, Any]:
    proposed = IsrProposed(
        broker_id=request["broker_id"],
        broker_epoch=request["broker_epoch"],
        proposals=tuple(_proposals(version, request)),
    )
    try:
        answer = await broker.control.answer(proposed)
    except NotControllerError as error:
        return {"error_code": error.code, "topics": []}
    assert isinstance(answer, AnswerIsrProposal), "it answers IsrProposed"
    if answer.error:
        return {"error_code": answer.error, "topics": []}
    answers = iter(answer.answers)
    return {"topics": [_topic(version, topic, answers) for topic in request["topics"]]}


def _proposals(version: int, request: dict[str, Any]) -> Iterable[ProposedIsr]:
    name = _name_of_topics(version)
    for topic in request["topics"]:
        for partition in topic["partitions"]:
            members = _members(version, partition)
            yield ProposedIsr(
                topic=topic[name],
                partition=partition["partition_index"],
                leader_epoch=partition["leader_epoch"],
                partition_epoch=partition["partition_epoch"],
                isr=tuple(broker_id for broker_id, _ in members),
                broker_epochs=tuple(epoch for _, epoch in members),
                leader_recovery_state=partition["leader_recovery_state"],
            )


def _name_of_topics(version: int) -> str:
    return "topic_id" if version >= FIRST_VERSION_BY_TOPIC_ID else "topic_name"


def _members(version: int, partition: dict[str, Any]) -> list[tuple[int, int]]:
    """(broker, epoch of its registration)."""
    if version < FIRST_VERSION_WITH_BROKER_EPOCHS:
        return [(broker_id, NO_EPOCH) for broker_id in partition["new_isr"]]
    return [(state["broker_id"], state["broker_epoch"]) for state in partition["new_isr_with_epochs"]]


def _topic(version: int, topic: dict[str, Any], answers: Iterable[IsrAnswer]) -> dict[str, Any]:
    name = _name_of_topics(version)
    partitions = zip((p["partition_index"] for p in topic["partitions"]), answers, strict=False)
    return {
        name: topic[name],
        "partitions": [_partition(version, index, answer) for index, answer in partitions],
    }


def _partition(version: int, index: int, answer: IsrAnswer) -> dict[str, Any]:
    if isinstance(answer, PartitionState):
        return {
            "partition_index": index,
            "leader_id": answer.leader,
            "leader_epoch": answer.leader_epoch,
            "isr": list(answer.isr),
            "leader_recovery_state": answer.leader_recovery_state,
            "partition_epoch": answer.zk_version,
        }
    if answer is ErrorCode.INELIGIBLE_REPLICA and version < FIRST_VERSION_BY_TOPIC_ID:
        answer = ErrorCode.OPERATION_NOT_ATTEMPTED
    return {"partition_index": index, "error_code": answer}
