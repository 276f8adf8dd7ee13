"""DeleteGroups (key 42), versions 0-2. No deviations."""

from __future__ import annotations

from functools import partial
from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import DeleteGroup
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.slices import Listed
from headrace.broker.wire.api import k42_delete_groups

API = k42_delete_groups.API
VERSIONS = (0, 2)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Listed:
    return Listed(
        "results",
        (
            broker.groups.ask(DeleteGroup(group_id=group_id)).map(partial(_result, group_id))
            for group_id in dict.fromkeys(request["groups_names"])
        ),
    )


def _result(group_id: str, error: ErrorCode) -> dict[str, Any]:
    return {"group_id": group_id, "error_code": error}
