"""LeaderAndIsr: versions 0 to 7. The controller says which partitions this broker leads or follows
(KIP-380, KIP-516).
"""

from __future__ import annotations

from typing import Any

from headrace.broker.handlers.context import Context
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.wire.api import k04_leader_and_isr
from headrace.broker.wire.frames import RequestHeader

API = k04_leader_and_isr.API
VERSIONS = (0, 7)


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    response: Deferred[dict[str, Any]] = context.cluster.later(
        "leader-and-isr", context.cluster.control(API.key, request)
    )
    return response
