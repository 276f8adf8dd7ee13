"""ListTransactions (key 66), versions 0-1: the transactional ids that this broker coordinates. No deviations."""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.txn.events import Overview
from headrace.broker.txn.transaction import BY_NAME
from headrace.broker.wire.api import k66_list_transactions

API = k66_list_transactions.API
VERSIONS = (0, 1)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    error, overviews = broker.transactions.overviews()
    if error:
        return {"error_code": error, "unknown_state_filters": [], "transaction_states": []}
    rights = access(broker, call)
    names = dict.fromkeys(request["state_filters"])
    states = {BY_NAME[name] for name in names if name in BY_NAME}
    producer_ids = set(request["producer_id_filters"])
    duration_ms, now_ms = request.get("duration_filter", -1), broker.clock.now_ms()

    def is_wanted(overview: Overview) -> bool:
        return (
            (not producer_ids or overview.producer_id in producer_ids)
            and (not names or overview.state in states)
            and (duration_ms < 0 or now_ms - overview.start_ms > duration_ms)
            and (
                not rights
                or rights.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, overview.transactional_id)
            )
        )

    return {
        "error_code": error,
        "unknown_state_filters": [name for name in names if name not in BY_NAME],
        "transaction_states": [
            {
                "transactional_id": overview.transactional_id,
                "producer_id": overview.producer_id,
                "transaction_state": overview.state.shown,
            }
            for overview in overviews
            if is_wanted(overview)
        ],
    }
