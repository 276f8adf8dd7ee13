"""UpdateMetadata: versions 0 to 8. The controller tells what every broker should tell its clients."""

from __future__ import annotations

from typing import Any

from headrace.broker.handlers.context import Context
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.wire.api import k06_update_metadata
from headrace.broker.wire.frames import RequestHeader

API = k06_update_metadata.API
VERSIONS = (0, 8)


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    response: Deferred[dict[str, Any]] = context.cluster.later(
        "update-metadata", context.cluster.control(API.key, request)
    )
    return response
