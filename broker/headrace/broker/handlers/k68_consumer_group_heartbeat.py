"""ConsumerGroupHeartbeat (key 68), version 0: refused, as Apache Kafka refuses it in ZooKeeper mode.

The new group protocol (KIP-848) wants KRaft; a client that gets UNSUPPORTED_VERSION uses the classic one.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k68_consumer_group_heartbeat

API = k68_consumer_group_heartbeat.API
VERSIONS = (0, 0)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    return {"error_code": ErrorCode.UNSUPPORTED_VERSION}
