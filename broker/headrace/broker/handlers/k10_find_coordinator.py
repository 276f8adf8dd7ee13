"""FindCoordinator (key 10), versions 0-6.

A group's coordinator leads its partition of `__consumer_offsets`; the topic is created by the first who asks.

Deviations: transactional ids are refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients report at once,
since this broker keeps no transactions.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.context import Context
from headrace.broker.wire.api import k10_find_coordinator
from headrace.broker.wire.frames import RequestHeader

API = k10_find_coordinator.API
VERSIONS = (0, 6)

OFFSETS_TOPIC = "__consumer_offsets"
GROUP, TRANSACTION = 0, 1
BATCH_VERSION = 4


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> dict[str, Any]:
    key_type = request["key_type"]
    if header.version >= BATCH_VERSION:
        return {"coordinators": [_find(context, key, key_type) for key in request["coordinator_keys"]]}
    found = _find(context, request["key"], key_type)
    found.pop("key")
    return found


def _find(context: Context, key: str, key_type: int) -> dict[str, Any]:
    if key_type == TRANSACTION:
        return _refusal(
            key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "This broker does not keep transactions."
        )
    if key_type != GROUP:
        return _refusal(key, ErrorCode.INVALID_REQUEST, f"Key type {key_type} is not known.")
    if context.metadata.topics(OFFSETS_TOPIC) is None:
        context.cluster.auto_create([OFFSETS_TOPIC])
        return _refusal(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    partition = context.metadata.partition(OFFSETS_TOPIC, context.groups.partition_for(key))
    endpoint = partition and context.metadata.endpoint(partition.leader, context.client.listener)
    if endpoint is None:
        return _refusal(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    return {
        "key": key,
        "error_code": 0,
        "error_message": None,
        "node_id": partition.leader,
        "host": endpoint.host,
        "port": endpoint.port,
    }


def _refusal(key: str, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "key": key,
        "error_code": code,
        "error_message": message,
        "node_id": -1,
        "host": "",
        "port": -1,
    }
