"""DeleteGroups (key 42), versions 0-2. No deviations."""

from __future__ import annotations

from typing import Any

from headrace.broker.groups.events import DeleteGroup
from headrace.broker.handlers.context import Context
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.handlers.gather import gather
from headrace.broker.wire.api import k42_delete_groups
from headrace.broker.wire.frames import RequestHeader

API = k42_delete_groups.API
VERSIONS = (0, 2)


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    group_ids = list(dict.fromkeys(request["groups_names"]))
    errors = gather([context.groups.ask(DeleteGroup(group_id=group_id)) for group_id in group_ids])
    return errors.map(
        lambda found: {
            "results": [
                {"group_id": group_id, "error_code": error}
                for group_id, error in zip(group_ids, found, strict=True)
            ]
        }
    )
