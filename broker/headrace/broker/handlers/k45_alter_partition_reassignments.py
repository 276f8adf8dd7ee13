"""AlterPartitionReassignments (key 45), version 0 (KIP-455): partitions get other replicas, or stay where they are.

Only the controller begins and cancels. It answers once the topics' znodes say so; the replicas follow in their time.

Deviations: what would delete all replicas in sync, as the cancellation of a move whose first replicas are lost, is refused with
INVALID_REPLICA_ASSIGNMENT, as by Kafka's KRaft controllers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import ErrorCode, NotControllerError
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.partition_results import by_topic
from headrace.broker.handlers.services import Services
from headrace.broker.replication.events import AnswerReassignments, ReassignmentsRequested
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k45_alter_partition_reassignments
from headrace.broker.wire.partitions import PartitionKey

API = k45_alter_partition_reassignments.API
VERSIONS = (0, 0)


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    targets: dict[PartitionKey, tuple[int, ...] | None] = {
        (topic["name"], p["partition_index"]): None if p["replicas"] is None else tuple(p["replicas"])
        for topic in request["topics"]
        for p in topic["partitions"]
    }
    rights = access(broker, call)
    if rights and not rights.may_cluster(Operation.ALTER):
        return _refused(targets)
    return broker.later("alter-partition-reassignments", _answer(broker, targets))


def _refused(targets: Iterable[PartitionKey]) -> dict[str, Any]:
    error, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    refused = _responses(dict.fromkeys(targets, (error, message)))
    return {"error_code": error, "error_message": message, "responses": refused}


async def _answer(broker: Services, targets: dict[PartitionKey, tuple[int, ...] | None]) -> dict[str, Any]:
    try:
        answer = await broker.control.answer(ReassignmentsRequested(targets=targets))
    except NotControllerError as error:
        return {"error_code": error.code, "error_message": str(error), "responses": []}
    assert isinstance(answer, AnswerReassignments), "it answers ReassignmentsRequested"
    results = {key: answer.refusals.get(key, (ErrorCode.NONE, None)) for key in targets}
    return {"error_message": None, "responses": _responses(results)}


def _responses(results: Mapping[PartitionKey, tuple[ErrorCode, str | None]]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic,
            "partitions": [
                {"partition_index": partition, "error_code": code, "error_message": message}
                for partition, (code, message) in partitions
            ],
        }
        for topic, partitions in by_topic(results)
    ]
