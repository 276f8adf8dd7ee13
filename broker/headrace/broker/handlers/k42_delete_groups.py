"""DeleteGroups (key 42), versions 0-2. No deviations."""

from __future__ import annotations

from functools import partial
from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import DeleteGroup
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.slices import Listed
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k42_delete_groups

API = k42_delete_groups.API
VERSIONS = (0, 2)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Listed:
    groups = list(dict.fromkeys(request["groups_names"]))
    rights = access(broker, call)
    refused = rights.refused(Operation.DELETE, ResourceType.GROUP, groups) if rights else ()

    def deleted(group_id: str) -> dict[str, Any] | Deferred[dict[str, Any]]:
        if group_id in refused:
            return _result(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return broker.groups.ask(DeleteGroup(group_id=group_id)).map(partial(_result, group_id))

    # Those that are refused come last, as from Kafka.
    return Listed("results", map(deleted, sorted(groups, key=lambda group_id: group_id in refused)))


def _result(group_id: str, error: ErrorCode) -> dict[str, Any]:
    return {"group_id": group_id, "error_code": error}
