"""CreateTopics: versions 0 to 7 (KIP-4, KIP-195, KIP-464, KIP-525, KIP-516, KIP-599 from 6). Only the controller creates.
A topic whose namesake is being deleted waits for the end of that, unless a broker that is away holds it up.

Deviations: a manual assignment to a broker that is not alive is refused, where Kafka creates the topic and lets it wait for a
leader. A topic gets at most 10,000 partitions, above which the answer is INVALID_PARTITIONS.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers import k32_describe_configs
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.throttle import mutation_allowance, mutation_throttle_ms
from headrace.broker.quotas.mutations import Allowance
from headrace.broker.replication.topic_requests import NewTopic, TopicResult
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k19_create_topics

API = k19_create_topics.API
VERSIONS = (0, 7)
QUOTA_STRICT_VERSION = 6
METADATA_TOPIC = "__cluster_metadata"
"""Of clusters without ZooKeeper, whose tools would take a topic of clients for it."""
CONFIG_FIELDS = ("name", "value", "read_only", "config_source", "is_sensitive")


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    if not broker.control.is_controller:
        return _refused(request)
    allowance = mutation_allowance(broker, call, QUOTA_STRICT_VERSION)
    return broker.later("create-topics", _create(broker, call, request, allowance))


def _refused(request: dict[str, Any]) -> dict[str, Any]:
    message = "This is not the correct controller for this cluster."
    return {
        "topics": [
            {"name": t["name"], "error_code": ErrorCode.NOT_CONTROLLER, "error_message": message}
            for t in request["topics"]
        ]
    }


async def _create(
    broker: Services, call: Call, request: dict[str, Any], allowance: Allowance
) -> dict[str, Any]:
    rights = access(broker, call)
    counts = Counter(topic["name"] for topic in request["topics"])
    prohibited = counts.pop(METADATA_TOPIC, 0)
    refused: Collection[str] = ()
    if rights and not rights.may_cluster(Operation.CREATE, quietly=True):
        refused = rights.refused(Operation.CREATE, ResourceType.TOPIC, counts)
    topics = [_new_topic(t) for t in request["topics"] if counts[t["name"]] == 1 and t["name"] not in refused]
    results = await broker.topics.create(
        topics,
        timeout_ms=request["timeout_ms"],
        validate_only=bool(request.get("validate_only")),
        allowance=allowance,
    )
    hidden: Collection[str] = ()
    if rights:
        hidden = rights.refused(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, counts, quietly=True)
    configs = {topic.name: topic.configs for topic in topics}
    answers = []
    for result in [*results, *_not_created(counts, refused, prohibited)]:
        await asyncio.sleep(0)
        has_failed = result.name in configs and result.error is not ErrorCode.NONE
        if result.name in hidden and not has_failed:
            answers.append(_without_configs(result))
        else:
            answers.append(_answer(broker, result, configs.get(result.name or "", {})))
    return {"topics": answers, "throttle_time_ms": mutation_throttle_ms(broker, call, allowance)}


def _not_created(counts: Counter[str], refused: Collection[str], prohibited: int) -> list[TopicResult]:
    """What is answered for each entry that is not tried: of a prohibited name, of a doubled one, of one without a right."""
    metadata = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
    results = [
        TopicResult(name=METADATA_TOPIC, error=ErrorCode.INVALID_REQUEST, message=metadata)
    ] * prohibited
    for name, count in counts.items():
        if count > 1:
            doubled = "Found multiple entries for this topic."
            results += [TopicResult(name=name, error=ErrorCode.INVALID_REQUEST, message=doubled)] * count
        elif name in refused:
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            results.append(TopicResult(name=name, error=denied, message="Authorization failed."))
    return results


def _new_topic(topic: dict[str, Any]) -> NewTopic:
    return NewTopic(
        name=topic["name"],
        partition_count=topic["num_partitions"],
        replication_factor=topic["replication_factor"],
        assignments={a["partition_index"]: list(a["broker_ids"]) for a in topic["assignments"]},
        configs={c["name"]: c["value"] for c in topic["configs"]},
    )


def _answer(broker: Services, result: TopicResult, overrides: dict[str, str | None]) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "name": result.name,
        "topic_id": result.topic_id,
        "error_code": result.error,
        "error_message": result.message,
        "num_partitions": result.partition_count,
        "replication_factor": result.replication_factor,
        "configs": [],
    }
    if result.error is ErrorCode.NONE:
        answer["configs"] = _configs(broker, {k: v for k, v in overrides.items() if v is not None})
    return answer


def _without_configs(result: TopicResult) -> dict[str, Any]:
    """To who may not describe the topic's configuration, of which its counts are a part."""
    return {
        "name": result.name,
        "topic_id": result.topic_id,
        "error_code": result.error,
        "error_message": result.message,
        "topic_config_error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


def _configs(broker: Services, overrides: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {field: entry[field] for field in CONFIG_FIELDS}
        for entry in k32_describe_configs.topic_entries(broker, overrides)
    ]
