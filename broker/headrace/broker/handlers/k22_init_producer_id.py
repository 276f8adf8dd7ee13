"""InitProducerId (key 22), versions 0-5.

Deviations: there are no transactions. A transactional id is refused with UNSUPPORTED_VERSION: the Java client
takes it as fatal at once, librdkafka logs it and raises it when its `init_transactions` time-out is over.
(Errors that librdkafka takes as fatal at once speak of authorization or of time-outs, and would send people
looking in the wrong place.) The empty transactional id gets INVALID_REQUEST, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k22_init_producer_id
from headrace.broker.wire.special_values import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

API = k22_init_producer_id.API
VERSIONS = (0, 5)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    has_id = request.get("producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID
    has_epoch = request.get("producer_epoch", NO_PRODUCER_EPOCH) != NO_PRODUCER_EPOCH
    if has_id != has_epoch or request["transactional_id"] == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if request["transactional_id"] is not None:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    producer_id = broker.producer_ids.next_id()
    if producer_id is None:
        # Kafka's own choice when a block is being fetched: every client retries it.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": 0}


def _refused(error: ErrorCode) -> dict[str, Any]:
    return {"error_code": error, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}
