"""InitProducerId (key 22), versions 0-5.

Deviations: an id that would be one more than a partition of the coordinator's topic may have
(`txn.machine.TRANSACTIONAL_IDS_COUNT_MAX`) is refused with POLICY_VIOLATION; Kafka has no bound.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import Access, access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.transactional import for_version
from headrace.broker.structured_log import get_logger
from headrace.broker.txn.events import InitProducer
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k22_init_producer_id
from headrace.broker.wire.special_values import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

API = k22_init_producer_id.API
VERSIONS = (0, 5)
FENCED_VERSION = 4

logger = get_logger(__name__)


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    error = _refusal(access(broker, call), request["transactional_id"])
    if error is not None:
        return _refused(error)
    expected = ProducerEpoch(
        request.get("producer_id", NO_PRODUCER_ID), request.get("producer_epoch", NO_PRODUCER_EPOCH)
    )
    is_known = expected.producer_id != NO_PRODUCER_ID
    if is_known != (expected.epoch != NO_PRODUCER_EPOCH) or request["transactional_id"] == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if request["transactional_id"] is not None:
        return _begin(broker, call, request, expected if is_known else None)
    producer_id = broker.producer_ids.next_id()
    if producer_id is None:
        # Kafka's own choice when a block is being fetched: every client retries it.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": 0}


def _refusal(rights: Access | None, transactional_id: str | None) -> ErrorCode | None:
    """Who may write to some topic may be idempotent there (KIP-679)."""
    if rights is None:
        return None
    if transactional_id is not None:
        may = rights.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        return None if may else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    may = rights.may_cluster(Operation.IDEMPOTENT_WRITE, quietly=True) or rights.may_any(
        Operation.WRITE, ResourceType.TOPIC
    )
    return None if may else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _begin(
    broker: Services, call: Call, request: dict[str, Any], expected: ProducerEpoch | None
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    timeout_ms = request["transaction_timeout_ms"]
    if not 0 < timeout_ms <= broker.config.transactions.transaction_max_timeout_ms:
        logger.info(
            "transactional request refused",
            request="InitProducer",
            error=ErrorCode.INVALID_TRANSACTION_TIMEOUT.name,
            transactional_id=request["transactional_id"],
            timeout_ms=timeout_ms,
        )
        return _refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    init = InitProducer(
        transactional_id=request["transactional_id"], timeout_ms=timeout_ms, expected=expected
    )
    return broker.transactions.ask(init).map(
        lambda answer: {
            "error_code": for_version(answer.error, call, FENCED_VERSION),
            "producer_id": answer.producer_id,
            "producer_epoch": answer.producer_epoch,
        }
    )


def _refused(error: ErrorCode) -> dict[str, Any]:
    return {"error_code": error, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}
