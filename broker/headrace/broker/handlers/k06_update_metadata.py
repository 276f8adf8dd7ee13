"""UpdateMetadata: versions 0 to 8. The controller tells what every broker should tell its clients."""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.handlers.access import require_cluster
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.replication.control_requests import UpdateMetadata
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k06_update_metadata

API = k06_update_metadata.API
VERSIONS = (0, 8)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    require_cluster(broker, call, Operation.CLUSTER_ACTION)
    return broker.later("update-metadata", broker.control.perform(UpdateMetadata.of(request)))
