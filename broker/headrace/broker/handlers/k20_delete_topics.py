"""DeleteTopics: versions 0 to 6 (KIP-4, KIP-322, KIP-516: by id from 6, KIP-599 from 5). Only the controller deletes, and
answers when the name is free again, unless a broker that is away holds a replica. No deviations.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.throttle import mutation_allowance, mutation_throttle_ms
from headrace.broker.quotas.mutations import Allowance
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k20_delete_topics
from headrace.broker.wire.fields import ZERO_UUID

API = k20_delete_topics.API
VERSIONS = (0, 6)
QUOTA_STRICT_VERSION = 5
Wish = tuple[str | None, UUID]


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    wishes = _wishes(request)
    if not broker.control.is_controller:
        message = "This is not the correct controller for this cluster."
        return {"responses": [_answer(wish, ErrorCode.NOT_CONTROLLER, message) for wish in wishes]}
    if not broker.config.topics.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST if call.header.version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        return {"responses": [_answer(wish, code, "Topic deletion is disabled.") for wish in wishes]}
    if any(name is not None and topic_id != ZERO_UUID for name, topic_id in wishes):
        message = "Topic name and topic ID can not both be specified."
        return {"responses": [_answer(wish, ErrorCode.INVALID_REQUEST, message) for wish in wishes]}
    allowance = mutation_allowance(broker, call, QUOTA_STRICT_VERSION)
    work = _delete(broker, call, wishes, request["timeout_ms"], allowance)
    return broker.later("delete-topics", work)


def _wishes(request: dict[str, Any]) -> list[Wish]:
    named = [(name, ZERO_UUID) for name in request.get("topic_names") or ()]
    return [*named, *((t["name"], t["topic_id"]) for t in request.get("topics") or ())]


async def _delete(
    broker: Services, call: Call, wishes: list[Wish], timeout_ms: int, allowance: Allowance
) -> dict[str, Any]:
    names = [_name_of(broker, wish) for wish in wishes]
    wanted = list(dict.fromkeys(name for name in names if name is not None))
    rights = access(broker, call)
    hidden: Collection[str] = ()
    refused: Collection[str] = ()
    if rights:
        hidden = rights.refused(Operation.DESCRIBE, ResourceType.TOPIC, wanted)
        refused = {*rights.refused(Operation.DELETE, ResourceType.TOPIC, wanted)}
        by_id = {found for (name, _), found in zip(wishes, names, strict=True) if name is None}
        refused |= {name for name in hidden if name in by_id}
        wanted = [name for name in wanted if name not in refused]
    results = await broker.topics.delete(wanted, timeout_ms=timeout_ms, allowance=allowance)
    done = {result.name: result for result in results}
    answers = []
    for (name, topic_id), found in zip(wishes, names, strict=True):
        if found is None:
            unknown = "This server does not host this topic ID."
            answers.append(_answer((name, topic_id), ErrorCode.UNKNOWN_TOPIC_ID, unknown))
        elif found in refused:
            # Who may not describe a topic is not told what that with an id is called.
            shown = None if name is None and found in hidden else found
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answers.append(_answer((shown, topic_id), denied, "Topic authorization failed."))
        else:
            answers.append(_answer((found, topic_id), done[found].error, done[found].message))
    return {"responses": answers, "throttle_time_ms": mutation_throttle_ms(broker, call, allowance)}


def _name_of(broker: Services, wish: Wish) -> str | None:
    """The name that is wished, or that of the topic with that id; None when nobody knows the id."""
    name, topic_id = wish
    return name if name is not None else broker.metadata.topic_name(topic_id)


def _answer(wish: Wish, error: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"name": wish[0], "topic_id": wish[1], "error_code": error, "error_message": message}
