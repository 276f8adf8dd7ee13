"""LeaderAndIsr: versions 0 to 7. The controller says which partitions this broker leads or follows.

KIP-380 (broker epochs), KIP-516 (topic ids, from version 5 also in the response). No deviations.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.replication.control_requests import LeaderAndIsr
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k04_leader_and_isr

API = k04_leader_and_isr.API
VERSIONS = (0, 7)
FIRST_VERSION_BY_TOPIC_ID = 5


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    asked = LeaderAndIsr.of(request)
    rights = access(broker, call)
    if rights is not None and not rights.may_cluster(Operation.CLUSTER_ACTION):
        return _fitting(call, asked.refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return broker.later("leader-and-isr", _answer(broker, call, asked))


async def _answer(broker: Services, call: Call, request: LeaderAndIsr) -> dict[str, Any]:
    return _fitting(call, await broker.control.perform(request))


def _fitting(call: Call, response: dict[str, Any]) -> dict[str, Any]:
    left_out = "partition_errors" if call.header.version >= FIRST_VERSION_BY_TOPIC_ID else "topics"
    return {name: value for name, value in response.items() if name != left_out}
