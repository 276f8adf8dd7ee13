"""StopReplica: versions 0 to 4. The controller has replicas stopped, and deleted (KIP-380, KIP-570)."""

from __future__ import annotations

from typing import Any

from headrace.broker.handlers.context import Context
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.wire.api import k05_stop_replica
from headrace.broker.wire.frames import RequestHeader

API = k05_stop_replica.API
VERSIONS = (0, 4)


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    response: Deferred[dict[str, Any]] = context.cluster.later(
        "stop-replica", context.cluster.control(API.key, request)
    )
    return response
