"""ConsumerGroupHeartbeat (key 68), version 0: refused, as Apache Kafka refuses it in ZooKeeper mode.

The new group protocol (KIP-848) wants KRaft; a client that gets UNSUPPORTED_VERSION uses the classic one.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.context import Context
from headrace.broker.wire.api import k68_consumer_group_heartbeat
from headrace.broker.wire.frames import RequestHeader

API = k68_consumer_group_heartbeat.API
VERSIONS = (0, 0)


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> dict[str, Any]:
    return {"error_code": ErrorCode.UNSUPPORTED_VERSION}
