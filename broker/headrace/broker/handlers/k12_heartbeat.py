"""Heartbeat (key 12), versions 0-4. No deviations."""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.groups.events import Heartbeat
from headrace.broker.handlers.access import require
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k12_heartbeat

API = k12_heartbeat.API
VERSIONS = (0, 4)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    require(broker, call, Operation.READ, ResourceType.GROUP, request["group_id"])
    heartbeat = Heartbeat(
        group_id=request["group_id"],
        generation=request["generation_id"],
        member_id=request["member_id"],
        instance_id=request.get("group_instance_id"),
    )
    answer = broker.groups.ask(heartbeat)
    return answer.map(lambda error: {"error_code": error})
