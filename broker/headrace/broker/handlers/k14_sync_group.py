"""SyncGroup (key 14), versions 0-5.

Deviations: a second sync of a member whose first is still parked releases the first with
REBALANCE_IN_PROGRESS, and a parked sync of a member that is removed gets UNKNOWN_MEMBER_ID; Kafka answers
neither. Assignments beyond the bound of all groups' members (`groups.memory.MEMBERS_SIZE_MAX` bytes) get
GROUP_MAX_SIZE_REACHED.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import SyncAnswer, SyncGroup
from headrace.broker.handlers.access import require
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k14_sync_group

API = k14_sync_group.API
VERSIONS = (0, 5)


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    protocol_type, protocol_name = request.get("protocol_type"), request.get("protocol_name")
    if call.header.version >= 5 and (protocol_type is None or protocol_name is None):
        return _response(SyncAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    require(broker, call, Operation.READ, ResourceType.GROUP, request["group_id"])
    sync = SyncGroup(
        group_id=request["group_id"],
        generation=request["generation_id"],
        member_id=request["member_id"],
        instance_id=request.get("group_instance_id"),
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments={each["member_id"]: bytes(each["assignment"]) for each in request["assignments"]},
    )
    answer = broker.groups.ask(sync)
    return answer.map(_response)


def _response(synced: SyncAnswer) -> dict[str, Any]:
    return {
        "error_code": synced.error,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol_name,
        "assignment": synced.assignment,
    }
