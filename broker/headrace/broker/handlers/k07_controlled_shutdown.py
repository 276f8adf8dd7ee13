"""ControlledShutdown: versions 0 to 3. A broker that is about to stop asks the controller for successors."""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.handlers.access import require_cluster
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k07_controlled_shutdown

API = k07_controlled_shutdown.API
VERSIONS = (0, 3)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    require_cluster(broker, call, Operation.CLUSTER_ACTION)
    return broker.later("controlled-shutdown", _answer(broker, request))


async def _answer(broker: Services, request: dict[str, Any]) -> dict[str, Any]:
    try:
        remaining = await broker.control.shut_down(request["broker_id"], request["broker_epoch"])
    except KafkaError as error:
        return {"error_code": error.code, "remaining_partitions": []}
    return {
        "error_code": ErrorCode.NONE,
        "remaining_partitions": [{"topic_name": t, "partition_index": p} for t, p in remaining],
    }
