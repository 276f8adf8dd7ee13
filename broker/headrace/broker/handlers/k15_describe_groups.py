"""DescribeGroups (key 15), versions 0-5. Without an authorizer everybody may read, describe and delete a group."""

from __future__ import annotations

from functools import partial
from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import DescribeAnswer, DescribeGroup
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.slices import Listed
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k15_describe_groups

API = k15_describe_groups.API
VERSIONS = (0, 5)
READ, DELETE, DESCRIBE = 3, 6, 8
ALL_OPERATIONS = 1 << READ | 1 << DELETE | 1 << DESCRIBE
NOT_ASKED = -(2**31)
REFUSED = DescribeAnswer(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Listed:
    rights = access(broker, call)
    groups = request["groups"]
    refused = rights.refused(Operation.DESCRIBE, ResourceType.GROUP, groups) if rights else ()

    def described(group_id: str) -> dict[str, Any] | Deferred[dict[str, Any]]:
        if group_id in refused:
            return _group(group_id, REFUSED, operations=NOT_ASKED)
        operations = NOT_ASKED
        if request.get("include_authorized_operations"):
            operations = rights.operations(ResourceType.GROUP, group_id) if rights else ALL_OPERATIONS
        answer = broker.groups.ask(DescribeGroup(group_id=group_id))
        return answer.map(partial(_group, group_id, operations=operations))

    # Those that are refused come first, as from Kafka.
    return Listed("groups", map(described, sorted(groups, key=lambda group_id: group_id not in refused)))


def _group(group_id: str, answer: DescribeAnswer, *, operations: int) -> dict[str, Any]:
    return {
        "error_code": answer.error,
        "group_id": group_id,
        "group_state": answer.state,
        "protocol_type": answer.protocol_type,
        "protocol_data": answer.protocol_name,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in answer.members
        ],
        "authorized_operations": operations if answer.error is ErrorCode.NONE else NOT_ASKED,
    }
