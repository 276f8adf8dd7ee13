"""DescribeTransactions (key 65), version 0: the state of transactional ids, for their coordinator to tell. No deviations."""

from __future__ import annotations

from functools import partial
from typing import Any

from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.slices import Listed
from headrace.broker.txn.events import DescribeAnswer, DescribeTransaction
from headrace.broker.wire.api import k65_describe_transactions

API = k65_describe_transactions.API
VERSIONS = (0, 0)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Listed:
    return Listed(
        "transaction_states",
        (
            broker.transactions.ask(DescribeTransaction(transactional_id=transactional_id)).map(
                partial(_state, transactional_id)
            )
            for transactional_id in request["transactional_ids"]
        ),
    )


def _state(transactional_id: str, answer: DescribeAnswer) -> dict[str, Any]:
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
    for topic, index in sorted(found.partitions):
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
