"""JoinGroup (key 11), versions 0-9.

Deviations: a join whose protocols together exceed 1 MiB, or whose client or instance id does not fit a stored
string, is refused with INVALID_REQUEST (Kafka lets the group fail later, when it is stored). A second join of
a member whose first is still parked releases the first with REBALANCE_IN_PROGRESS; Kafka never answers it.
A member that names a protocol twice, or whose subscription has a count beyond its size, is let in; Kafka fails with
UNKNOWN_SERVER_ERROR or, once the join was parked, never answers.
New groups beyond the coordinator's bound (`groups.machine.GROUPS_COUNT_MAX`) and members beyond that of all groups' members
(`groups.memory.MEMBERS_SIZE_MAX` bytes) get GROUP_MAX_SIZE_REACHED; Kafka has no such bounds.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import JoinAnswer, JoinGroup
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k11_join_group

API = k11_join_group.API
VERSIONS = (0, 9)


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    rights = access(broker, call)
    if rights and not rights.may(Operation.READ, ResourceType.GROUP, request["group_id"]):
        return _response(call.header.version, JoinAnswer(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    instance_id = request.get("group_instance_id")
    rebalance_timeout_ms = (
        request["rebalance_timeout_ms"] if call.header.version >= 1 else request["session_timeout_ms"]
    )
    join = JoinGroup(
        group_id=request["group_id"],
        member_id=request["member_id"],
        instance_id=instance_id,
        fresh_id=str(uuid4()),
        client_id=call.header.client_id or "",
        client_host=f"/{call.client.host}",
        session_timeout_ms=request["session_timeout_ms"],
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=request["protocol_type"],
        protocols=tuple((p["name"], bytes(p["metadata"])) for p in request["protocols"]),
        requires_member_id=call.header.version >= 4 and instance_id is None,
        skips_assignment=call.header.version >= 9,
        reason=request.get("reason") or "not provided",
    )
    answer = broker.groups.ask(join)
    return answer.map(lambda joined: _response(call.header.version, joined))


def _response(version: int, joined: JoinAnswer) -> dict[str, Any]:
    # A protocol without a name is null where that may be, as in Kafka's answer.
    protocol_name = (joined.protocol_name or None) if version >= 7 else (joined.protocol_name or "")
    return {
        "error_code": joined.error,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": protocol_name,
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in joined.members
        ],
    }
