"""CreateAcls (key 30), versions 0-3: adds entries to access control lists. No deviations.

Any broker does it, and all hear of it within a second.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.acls import Binding
from headrace.broker.auth.operations import CLUSTER_NAME, Operation, ResourceType
from headrace.broker.errors import InvalidRequestError, KafkaError, SecurityDisabledError
from headrace.broker.handlers.access import require_cluster
from headrace.broker.handlers.acl_messages import DISABLED, binding_of, check_definite, refusal
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import AccessLists, Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k30_create_acls

API = k30_create_acls.API
VERSIONS = (0, 3)


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    creations = request["creations"]
    bindings = [binding_of(creation) for creation in creations]
    try:
        require_cluster(broker, call, Operation.ALTER)
        if broker.access_lists is None:
            raise SecurityDisabledError(DISABLED)
        for binding in bindings:
            check_definite(binding)
    except KafkaError as error:
        return {"results": [refusal(error) for _ in creations]}
    return broker.later("create-acls", _create(broker.access_lists, bindings))


async def _create(lists: AccessLists, bindings: list[Binding]) -> dict[str, Any]:
    problems = [_problem(binding) for binding in bindings]
    valid = [binding for binding, problem in zip(bindings, problems, strict=True) if problem is None]
    created = iter(await lists.create(valid))
    results = [problem if problem is not None else next(created) for problem in problems]
    return {"results": [refusal(result) for result in results]}


def _problem(binding: Binding) -> KafkaError | None:
    pattern = binding.pattern
    if pattern.kind is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not pattern.name:
        return InvalidRequestError("Invalid empty resource name")
    return None
