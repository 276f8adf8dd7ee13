"""ControlledShutdown: versions 0 to 3. A broker that is about to stop asks the controller for successors."""

from __future__ import annotations

from typing import Any

from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.handlers.context import Context
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.wire.api import k07_controlled_shutdown
from headrace.broker.wire.frames import RequestHeader

API = k07_controlled_shutdown.API
VERSIONS = (0, 3)


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    response: Deferred[dict[str, Any]] = context.cluster.later(
        "controlled-shutdown", _answer(context, request)
    )
    return response


async def _answer(context: Context, request: dict[str, Any]) -> dict[str, Any]:
    try:
        remaining = await context.cluster.shut_down(request["broker_id"], request["broker_epoch"])
    except KafkaError as error:
        return {"error_code": error.code, "remaining_partitions": []}
    return {
        "error_code": ErrorCode.NONE,
        "remaining_partitions": [{"topic_name": t, "partition_index": p} for t, p in remaining],
    }
