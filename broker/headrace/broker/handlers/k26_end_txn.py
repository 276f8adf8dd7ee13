"""EndTxn (key 26), versions 0-4: commits or aborts a producer's transaction; answered once that is decided for good, and
markers follow. No deviations.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.handlers.access import require
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.transactional import for_version
from headrace.broker.txn.events import EndTransaction
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k26_end_txn

API = k26_end_txn.API
VERSIONS = (0, 4)
REPEATS = True


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    require(broker, call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request["transactional_id"])
    end = EndTransaction(
        transactional_id=request["transactional_id"],
        producer=ProducerEpoch(request["producer_id"], request["producer_epoch"]),
        is_commit=request["committed"],
    )
    return broker.transactions.ask(end).map(lambda error: {"error_code": for_version(error, call)})
