"""LeaderAndIsr: versions 0 to 7. The controller says which partitions this broker leads or follows.

KIP-380 (broker epochs), KIP-516 (topic ids, from version 5 also in the response). No deviations.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.handlers.context import Context
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.wire.api import k04_leader_and_isr
from headrace.broker.wire.frames import RequestHeader

API = k04_leader_and_isr.API
VERSIONS = (0, 7)
FIRST_VERSION_BY_TOPIC_ID = 5


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    response: Deferred[dict[str, Any]] = context.cluster.later(
        "leader-and-isr", _answer(context, header, request)
    )
    return response


async def _answer(context: Context, header: RequestHeader, request: dict[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = await context.cluster.control(API.key, request)
    left_out = "partition_errors" if header.version >= FIRST_VERSION_BY_TOPIC_ID else "topics"
    return {name: value for name, value in response.items() if name != left_out}
