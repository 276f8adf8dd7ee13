"""ListGroups (key 16), versions 0-5. All groups are of the classic type. No deviations."""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k16_list_groups

API = k16_list_groups.API
VERSIONS = (0, 5)
CLASSIC = "classic"


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    states = {state.lower() for state in request.get("states_filter") or ()}
    types = {group_type.lower() for group_type in request.get("types_filter") or ()}
    error, overviews = broker.groups.overviews()
    rights = access(broker, call)
    if rights and not rights.may_cluster(Operation.DESCRIBE, quietly=True):
        ids = (overview.group_id for overview in overviews)
        told = rights.allowed(Operation.DESCRIBE, ResourceType.GROUP, ids, quietly=True)
        overviews = [overview for overview in overviews if overview.group_id in told]
    return {
        "error_code": error,
        "groups": [
            {
                "group_id": overview.group_id,
                "protocol_type": overview.protocol_type,
                "group_state": overview.state,
                "group_type": CLASSIC,
            }
            for overview in overviews
            if (not states or overview.state.lower() in states) and (not types or CLASSIC in types)
        ],
    }
