"""DescribeCluster (key 60), versions 0-1. No deviations."""

from __future__ import annotations

from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import access, cluster_operations
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k60_describe_cluster

API = k60_describe_cluster.API
VERSIONS = (0, 1)

BROKERS, CONTROLLERS = 1, 2
NOBODY = -1


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    if request["endpoint_type"] != BROKERS:
        is_known = request["endpoint_type"] == CONTROLLERS
        return {
            "error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if is_known
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": "This is a broker: ask with the endpoint type of brokers.",
        }
    brokers = _brokers(broker, call)
    controller_id = broker.metadata.controller_id
    message = {
        "error_code": 0,
        "cluster_id": broker.metadata.cluster_id,
        # Clients look for it among the brokers.
        "controller_id": controller_id if controller_id in {b["broker_id"] for b in brokers} else NOBODY,
        "brokers": brokers,
    }
    if request["include_cluster_authorized_operations"]:
        message["cluster_authorized_operations"] = cluster_operations(access(broker, call))
    return message


def _brokers(broker: Services, call: Call) -> list[dict[str, Any]]:
    found = []
    for broker_id, member in sorted(broker.metadata.brokers.items()):
        endpoint = member.endpoint(call.client.listener)
        if endpoint is not None:
            found.append(
                {"broker_id": broker_id, "host": endpoint.host, "port": endpoint.port, "rack": member.rack}
            )
    return found
