"""DescribeProducers (key 61), version 0: the producers that the leader of a partition remembers (KIP-664).

Deviations: a partition that a request names again is passed over, where Kafka lists its producers again.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.errors import KafkaError, UnknownTopicOrPartitionError
from headrace.broker.handlers.context import Context
from headrace.broker.handlers.slices import Listed
from headrace.broker.replication.topic_requests import check_name
from headrace.broker.wire.api import k61_describe_producers
from headrace.broker.wire.frames import RequestHeader

API = k61_describe_producers.API
VERSIONS = (0, 0)


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> Listed:
    seen: set[tuple[str, int]] = set()
    return Listed("topics", (_topic(context, topic, seen) for topic in request["topics"]))


def _topic(context: Context, topic: dict[str, Any], seen: set[tuple[str, int]]) -> dict[str, Any]:
    name = topic["name"]
    wanted = [index for index in dict.fromkeys(topic["partition_indexes"]) if (name, index) not in seen]
    seen.update((name, index) for index in wanted)
    return {"name": name, "partitions": [_describe(context, name, index) for index in wanted]}


def _describe(context: Context, topic: str, index: int) -> dict[str, Any]:
    try:
        producers = _producers(context, topic, index)
    except KafkaError as error:
        return {
            "partition_index": index,
            "error_code": error.code,
            "error_message": str(error) or None,
            "active_producers": [],
        }
    return {"partition_index": index, "error_code": 0, "active_producers": producers}


def _producers(context: Context, topic: str, index: int) -> list[dict[str, Any]]:
    check_name(topic)
    if context.metadata.topics(topic) is None:
        raise UnknownTopicOrPartitionError(f"there is no topic {topic}")
    return [
        {
            "producer_id": producer_id,
            "producer_epoch": producer.epoch,
            "last_sequence": producer.batches[-1].last_sequence if producer.batches else -1,
            "last_timestamp": producer.last_timestamp_ms,
            "coordinator_epoch": producer.coordinator_epoch,
            "current_txn_start_offset": producer.transaction_first_offset,
        }
        for producer_id, producer in context.partitions.leader_of(topic, index).log.producers.items()
    ]
