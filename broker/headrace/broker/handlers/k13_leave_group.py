"""LeaveGroup (key 13), versions 0-5. No deviations."""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import LeaveAnswer, LeaveGroup, LeavingMember
from headrace.broker.handlers.access import require
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k13_leave_group

API = k13_leave_group.API
VERSIONS = (0, 5)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    require(broker, call, Operation.READ, ResourceType.GROUP, request["group_id"])
    if call.header.version >= 3:
        members = tuple(
            LeavingMember(
                member_id=member["member_id"],
                instance_id=member["group_instance_id"],
                reason=member.get("reason") or "not provided",
            )
            for member in request["members"]
        )
    else:
        members = (LeavingMember(member_id=request["member_id"]),)
    answer = broker.groups.ask(LeaveGroup(group_id=request["group_id"], members=members))
    return answer.map(lambda left: _response(call.header.version, left))


def _response(version: int, left: LeaveAnswer) -> dict[str, Any]:
    error = left.error
    if version < 3 and error is ErrorCode.NONE:
        error = left.members[0][1]
    return {
        "error_code": error,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "error_code": member_error,
            }
            for member, member_error in left.members
        ]
        if version >= 3
        else [],
    }
