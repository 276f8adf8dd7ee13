"""DescribeTransactions (key 65), version 0: the state of transactional ids, for their coordinator to tell. No deviations."""

from __future__ import annotations

from functools import partial
from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import Access, access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.slices import Listed
from headrace.broker.txn.events import DescribeAnswer, DescribeTransaction
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k65_describe_transactions

REFUSED = DescribeAnswer(error=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

API = k65_describe_transactions.API
VERSIONS = (0, 0)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Listed:
    rights = access(broker, call)

    def state(transactional_id: str) -> dict[str, Any] | Deferred[dict[str, Any]]:
        if rights and not rights.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return _state(transactional_id, rights, REFUSED)
        asked = broker.transactions.ask(DescribeTransaction(transactional_id=transactional_id))
        return asked.map(partial(_state, transactional_id, rights))

    return Listed("transaction_states", map(state, request["transactional_ids"]))


def _state(transactional_id: str, rights: Access | None, answer: DescribeAnswer) -> dict[str, Any]:
    found = answer.transaction
    if found is None:
        return {
            "error_code": answer.error,
            "transactional_id": transactional_id,
            "transaction_state": "",
            "transaction_timeout_ms": 0,
            "transaction_start_time_ms": 0,
            "producer_id": 0,
            "producer_epoch": 0,
            "topics": [],
        }
    topics: dict[str, list[int]] = {}
    names = {topic for topic, _ in found.partitions}
    told = rights.allowed(Operation.DESCRIBE, ResourceType.TOPIC, names) if rights else names
    for topic, index in sorted(p for p in found.partitions if p[0] in told):
        topics.setdefault(topic, []).append(index)
    return {
        "error_code": answer.error,
        "transactional_id": transactional_id,
        "transaction_state": found.state.shown,
        "transaction_timeout_ms": found.timeout_ms,
        "transaction_start_time_ms": found.start_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
    }
