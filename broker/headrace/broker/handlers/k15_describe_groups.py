"""DescribeGroups (key 15), versions 0-5. Without an authorizer, everybody may read, describe and delete a
group.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import DescribeAnswer, DescribeGroup
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.slices import Listed
from headrace.broker.wire.api import k15_describe_groups

API = k15_describe_groups.API
VERSIONS = (0, 5)
READ, DELETE, DESCRIBE = 3, 6, 8
ALL_OPERATIONS = 1 << READ | 1 << DELETE | 1 << DESCRIBE
NOT_ASKED = -(2**31)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Listed:
    operations = ALL_OPERATIONS if request.get("include_authorized_operations") else NOT_ASKED
    return Listed(
        "groups",
        (
            broker.groups.ask(DescribeGroup(group_id=group_id)).map(
                partial(_group, group_id, operations=operations)
            )
            for group_id in request["groups"]
        ),
    )


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
