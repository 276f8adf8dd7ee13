"""ConsumerGroupDescribe (key 69), version 0: refused, as Apache Kafka refuses it in ZooKeeper mode.

There are no groups of the new protocol (KIP-848); a client that gets UNSUPPORTED_VERSION asks DescribeGroups.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k69_consumer_group_describe

API = k69_consumer_group_describe.API
VERSIONS = (0, 0)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    groups = [
        {"group_id": group_id, "error_code": ErrorCode.UNSUPPORTED_VERSION}
        for group_id in request["group_ids"]
    ]
    return {"groups": groups}
