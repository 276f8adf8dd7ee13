"""The answer of requests that name partitions and hear an error code for each: OffsetCommit and OffsetDelete."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.services import Services
from headrace.broker.wire.partitions import TopicPartition


def topics_answered(
    broker: Services,
    topics: list[dict[str, Any]],
    errors: Mapping[TopicPartition, ErrorCode],
    *,
    once: bool = True,
    refused: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Each topic of the request one time, with the partitions that it names; those without an error are unknown.

    With `once` a partition that is named twice and was looked at is answered once, as Apache Kafka's coordinator does.
    A topic without partitions is answered only when it is unknown, or one of the `refused`, of which nothing else is told.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    answered: set[TopicPartition] = set()
    for topic in topics:
        name = topic["name"]
        if name in refused:
            found.setdefault(name, []).extend(map(_refused, topic["partitions"]))
            continue
        if broker.metadata.topics(name) is None:
            found.setdefault(name, [])
        for partition in topic["partitions"]:
            key = TopicPartition(name, partition["partition_index"])
            if once and key in answered:
                continue
            if key in errors:
                answered.add(key)
            error = errors.get(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            found.setdefault(name, []).append({"partition_index": key.partition, "error_code": error})
    return [{"name": name, "partitions": partitions} for name, partitions in found.items()]


def topics_failed(topics: list[dict[str, Any]], error: ErrorCode) -> list[dict[str, Any]]:
    """The same error for all partitions of a request."""
    return [
        {
            "name": topic["name"],
            "partitions": [
                {"partition_index": each["partition_index"], "error_code": error}
                for each in topic["partitions"]
            ],
        }
        for topic in topics
    ]


def _refused(partition: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "partition_index": partition["partition_index"],
        "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
