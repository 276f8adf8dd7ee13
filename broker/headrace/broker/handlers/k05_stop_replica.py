"""StopReplica: versions 0 to 4. The controller has replicas stopped, and deleted (KIP-380, KIP-570)."""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.replication.control_requests import StopReplica
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k05_stop_replica

API = k05_stop_replica.API
VERSIONS = (0, 4)


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    asked = StopReplica.of(request)
    rights = access(broker, call)
    if rights is not None and not rights.may_cluster(Operation.CLUSTER_ACTION):
        return asked.refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return broker.later("stop-replica", broker.control.perform(asked))
