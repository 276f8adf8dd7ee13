"""What a client may not write: the request without it, and what becomes of the rest of its items.

A request with a batch in a transaction that its client may not have is refused as a whole.
"""

from __future__ import annotations

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import TopicAuthorizationError, TransactionalIdAuthorizationError
from headrace.broker.handlers.access import Access
from headrace.broker.handlers.produce.check import is_transactional
from headrace.broker.handlers.produce.outcome import Outcome
from headrace.broker.handlers.produce.read import Request


def without_refused(rights: Access, request: Request) -> tuple[Request, list[Outcome]]:
    """(what may be appended, the outcomes of what may not)."""
    transactional_id = request.transactional_id
    if any(records is not None and is_transactional(records) for _, _, records in request.items) and (
        transactional_id is None
        or not rights.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    ):
        error = TransactionalIdAuthorizationError("Transactional id authorization failed.")
        outcomes = [Outcome(topic, index, None, None, error) for topic, index, _ in request.items]
        return request._replace(items=[], transactional_id=None), outcomes
    refused = rights.refused(Operation.WRITE, ResourceType.TOPIC, (topic for topic, _, _ in request.items))
    if not refused:
        return request, []
    items = [item for item in request.items if item[0] not in refused]
    return request._replace(items=items), [
        Outcome(topic, index, None, None, TopicAuthorizationError("Topic authorization failed."))
        for topic, index, _ in request.items
        if topic in refused
    ]
