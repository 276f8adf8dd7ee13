"""FindCoordinator (key 10), versions 0-6.

Share groups (key type 2) get Kafka 3.9's own COORDINATOR_NOT_AVAILABLE. No deviations.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.coordinators.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.slices import Listed
from headrace.broker.handlers.throttle import mutation_allowance
from headrace.broker.wire.api import k10_find_coordinator

API = k10_find_coordinator.API
VERSIONS = (0, 6)
GROUP, TRANSACTION, SHARE = 0, 1, 2
RESOURCES = {
    GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    TRANSACTION: (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
MESSAGES = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "The transactional id used by this producer is not authorized to access transactional state."
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: (
        "This most likely occurs because of a request being malformed by the client library or the message was "
        "sent to an incompatible broker. See the broker logs for more details."
    ),
}


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any] | Listed:
    key_type = request.get("key_type", GROUP)
    if call.header.version >= 4:
        keys: list[str] = request["coordinator_keys"]
        return Listed("coordinators", (_coordinator(broker, call, key_type, key) for key in keys))
    found = _coordinator(broker, call, key_type, request["key"])
    del found["key"]
    return {**found, "error_message": MESSAGES[found["error_code"]]}


def _coordinator(broker: Services, call: Call, key_type: int, key: str) -> dict[str, Any]:
    error, broker_id = _locate(broker, call, key_type, key)
    endpoint = None
    if error is ErrorCode.NONE:
        endpoint = broker.metadata.endpoint(broker_id, call.client.listener)
        error = ErrorCode.NONE if endpoint is not None else ErrorCode.COORDINATOR_NOT_AVAILABLE
    if endpoint is None:
        return {"key": key, "error_code": error, "node_id": -1, "host": "", "port": -1}
    return {
        "key": key,
        "error_code": ErrorCode.NONE,
        "node_id": broker_id,
        "host": endpoint.host,
        "port": endpoint.port,
    }


def _locate(broker: Services, call: Call, key_type: int, key: str) -> tuple[ErrorCode, int]:
    """The broker that coordinates `key`; begins to create the topic of its kind when that is missing."""
    rights = access(broker, call)
    if key_type not in (GROUP, TRANSACTION):
        valid = key_type == SHARE and call.header.version >= 6
        if valid and rights and not rights.may_cluster(Operation.CLUSTER_ACTION):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1
        return (ErrorCode.COORDINATOR_NOT_AVAILABLE if valid else ErrorCode.INVALID_REQUEST), -1
    kind, refusal = RESOURCES[key_type]
    if rights and not rights.may(Operation.DESCRIBE, kind, key):
        return refusal, -1
    is_group = key_type == GROUP
    topic = OFFSETS_TOPIC if is_group else TRANSACTIONS_TOPIC
    partitions = broker.metadata.topics(topic)
    if partitions is None:
        broker.topics.auto_create([topic], mutation_allowance(broker, call))
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, -1
    index = broker.groups.partition_for(key) if is_group else broker.transactions.partition_for(key)
    partition = partitions.get(index)
    if partition is None or partition.leader < 0:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, -1
    return ErrorCode.NONE, partition.leader
