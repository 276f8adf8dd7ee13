"""DeleteAcls (key 31), versions 0-3: takes entries out of access control lists. No deviations.

Any broker does it, and all hear of it within a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.broker.auth.acls import Binding, BindingFilter
from headrace.broker.auth.operations import Operation
from headrace.broker.errors import KafkaError, SecurityDisabledError
from headrace.broker.handlers.access import require_cluster
from headrace.broker.handlers.acl_messages import DISABLED, filter_of, refusal
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import AccessLists, Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k31_delete_acls

API = k31_delete_acls.API
VERSIONS = (0, 3)


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    filters = [filter_of(each) for each in request["filters"]]
    try:
        require_cluster(broker, call, Operation.ALTER)
        if broker.access_lists is None:
            raise SecurityDisabledError(DISABLED)
    except KafkaError as error:
        return {"filter_results": [{**refusal(error), "matching_acls": []} for _ in filters]}
    return broker.later("delete-acls", _delete(broker.access_lists, filters))


async def _delete(lists: AccessLists, filters: Sequence[BindingFilter]) -> dict[str, Any]:
    results = await lists.delete(filters)
    return {
        "filter_results": [
            {**refusal(None), "matching_acls": [_matching(binding, error) for binding, error in deleted]}
            for deleted in results
        ]
    }


def _matching(binding: Binding, error: KafkaError | None) -> dict[str, Any]:
    (kind, name, pattern_type), entry = binding
    return {
        **refusal(error),
        "resource_type": kind,
        "resource_name": name,
        "pattern_type": pattern_type,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }
