"""CreatePartitions (key 37), versions 0-3 (KIP-195, KIP-599 from 3). Only the controller adds partitions.

Deviations: a topic gets at most 10,000 partitions, above which the answer is INVALID_PARTITIONS.
A mirror's copy has the partitions of its source: POLICY_VIOLATION.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import refused_topics
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.throttle import mutation_allowance, mutation_throttle_ms
from headrace.broker.quotas.mutations import Allowance
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k37_create_partitions

API = k37_create_partitions.API
VERSIONS = (0, 3)
QUOTA_STRICT_VERSION = 3


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    if not broker.control.is_controller:
        message = "This is not the correct controller for this cluster."
        return {"results": [_answer(t["name"], ErrorCode.NOT_CONTROLLER, message) for t in request["topics"]]}
    allowance = mutation_allowance(broker, call, QUOTA_STRICT_VERSION)
    return broker.later("create-partitions", _create(broker, call, request, allowance))


async def _create(
    broker: Services, call: Call, request: dict[str, Any], allowance: Allowance
) -> dict[str, Any]:
    counts = Counter(topic["name"] for topic in request["topics"])
    single = (name for name, count in counts.items() if count == 1)
    refused = refused_topics(broker, call, Operation.ALTER, single)
    doubled = [name for name, count in counts.items() if count > 1]
    answers = [_answer(name, ErrorCode.INVALID_REQUEST, "Duplicate topic in request.") for name in doubled]
    message = "The topic authorization is failed."
    answers += [_answer(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message) for name in sorted(refused)]
    for topic in request["topics"]:
        if topic["name"] in doubled or topic["name"] in refused:
            continue
        assignments = topic["assignments"]
        result = await broker.topics.grow(
            topic["name"],
            topic["count"],
            None if assignments is None else [a["broker_ids"] for a in assignments],
            timeout_ms=request["timeout_ms"],
            validate_only=request["validate_only"],
            by_client=True,
            allowance=allowance,
        )
        answers.append(_answer(topic["name"], result.error, result.message))
    return {"results": answers, "throttle_time_ms": mutation_throttle_ms(broker, call, allowance)}


def _answer(name: str, error: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"name": name, "error_code": error, "error_message": message}
