"""DeleteTopics: versions 0 to 6 (KIP-4, KIP-322, KIP-516: by id from 6). Only the controller deletes. No
deviations.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.context import Context
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.replication.model import ZERO_UUID
from headrace.broker.wire.api import k20_delete_topics
from headrace.broker.wire.frames import RequestHeader

API = k20_delete_topics.API
VERSIONS = (0, 6)
Wish = tuple[str | None, UUID]


def handle(
    context: Context, header: RequestHeader, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    wishes = _wishes(request)
    if not context.cluster.is_controller:
        message = "This is not the correct controller for this cluster."
        return {"responses": [_answer(wish, ErrorCode.NOT_CONTROLLER, message) for wish in wishes]}
    if not context.config.topics.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST if header.version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        return {"responses": [_answer(wish, code, "Topic deletion is disabled.") for wish in wishes]}
    work = _delete(context, wishes, request["timeout_ms"])
    response: Deferred[dict[str, Any]] = context.cluster.later("delete-topics", work)
    return response


def _wishes(request: dict[str, Any]) -> list[Wish]:
    named = [(name, ZERO_UUID) for name in request.get("topic_names") or ()]
    return [*named, *((t["name"], t["topic_id"]) for t in request.get("topics") or ())]


async def _delete(context: Context, wishes: list[Wish], timeout_ms: int) -> dict[str, Any]:
    answers = []
    names: dict[str, Wish] = {}
    counts = Counter(wishes)
    for wish in counts:
        refused = _refusal(context, wish, counts[wish])
        if refused is not None:
            answers.append(refused)
            continue
        name = wish[0] if wish[0] is not None else context.metadata.topic_name(wish[1])
        names[name] = (name, wish[1])
    for result in await context.cluster.delete_topics(list(names), timeout_ms=timeout_ms):
        answers.append(_answer(names[result.name], result.error, result.message))
    return {"responses": answers}


def _refusal(context: Context, wish: Wish, count: int) -> dict[str, Any] | None:
    name, topic_id = wish
    if name is not None and topic_id != ZERO_UUID:
        return _answer(wish, ErrorCode.INVALID_REQUEST, "Topic name and topic ID can not both be specified.")
    if count > 1:
        return _answer(wish, ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
    if name is None and context.metadata.topic_name(topic_id) is None:
        return _answer(wish, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return None


def _answer(wish: Wish, error: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"name": wish[0], "topic_id": wish[1], "error_code": error, "error_message": message}
