"""AllocateProducerIds: version 0. A broker takes a block of producer ids from the controller (KIP-730). No deviations."""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import KafkaError
from headrace.broker.handlers.access import require_cluster
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k67_allocate_producer_ids

API = k67_allocate_producer_ids.API
VERSIONS = (0, 0)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    require_cluster(broker, call, Operation.CLUSTER_ACTION)
    return broker.later("allocate-producer-ids", _answer(broker, request))


async def _answer(broker: Services, request: dict[str, Any]) -> dict[str, Any]:
    try:
        first, count = await broker.control.allocate_producer_ids(
            request["broker_id"], request["broker_epoch"]
        )
    except KafkaError as error:
        return {"error_code": error.code}
    return {"producer_id_start": first, "producer_id_len": count}
