"""ListPartitionReassignments (key 46), version 0 (KIP-455): the moves of replicas under way. Only the controller knows.

No deviations.
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
from headrace.broker.replication.events import AnswerReassignmentsAsked, ReassignmentsAsked
from headrace.broker.replication.model import ReplicaAssignment
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k46_list_partition_reassignments
from headrace.broker.wire.partitions import PartitionKey

API = k46_list_partition_reassignments.API
VERSIONS = (0, 0)


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    topics = request["topics"]
    named = None
    if topics is not None:
        named = frozenset((t["name"], p) for t in topics for p in t["partition_indexes"])
    rights = access(broker, call)
    if rights and not rights.may_cluster(Operation.DESCRIBE):
        return _refused(named or ())
    return broker.later("list-partition-reassignments", _answer(broker, named))


def _refused(named: Iterable[PartitionKey]) -> dict[str, Any]:
    """With a place for each partition, as from Kafka."""
    return {
        "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        "error_message": "Cluster authorization failed.",
        "topics": _topics(dict.fromkeys(named, ReplicaAssignment(replicas=()))),
    }


async def _answer(broker: Services, named: frozenset[PartitionKey] | None) -> dict[str, Any]:
    try:
        answer = await broker.control.answer(ReassignmentsAsked(partitions=named))
    except NotControllerError as error:
        return {"error_code": error.code, "error_message": str(error), "topics": []}
    assert isinstance(answer, AnswerReassignmentsAsked), "it answers ReassignmentsAsked"
    return {"error_message": None, "topics": _topics(answer.assignments)}


def _topics(assignments: Mapping[PartitionKey, ReplicaAssignment]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": partition,
                    "replicas": list(assignment.replicas),
                    "adding_replicas": list(assignment.adding),
                    "removing_replicas": list(assignment.removing),
                }
                for partition, assignment in partitions
            ],
        }
        for topic, partitions in by_topic(assignments)
    ]
