"""DescribeProducers (key 61), version 0: the producers that a replica of a partition remembers, whoever leads it
(KIP-664).

Deviations: an answer tells of at most 500,000 producers and partitions, however often a request names them; what asks for
more is closed.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import KafkaError, TopicAuthorizationError, UnknownTopicOrPartitionError
from headrace.broker.handlers.access import Access, access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.replies import CloseConnectionError
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.slices import Listed
from headrace.broker.replication.topic_requests import check_name
from headrace.broker.wire.api import k61_describe_producers

API = k61_describe_producers.API
VERSIONS = (0, 0)
TOLD_COUNT_MAX = 500_000


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Listed:
    told = 0
    rights = access(broker, call)

    def describe(topic: str, index: int) -> dict[str, Any]:
        nonlocal told
        partition = _describe(broker, rights, topic, index)
        told += 1 + len(partition["active_producers"])
        if told > TOLD_COUNT_MAX:
            raise CloseConnectionError(
                f"an answer to DescribeProducers of more than {TOLD_COUNT_MAX} producers: ask for less at once"
            )
        return partition

    return Listed(
        "topics",
        (
            {
                "name": t["name"],
                "partitions": [describe(t["name"], index) for index in t["partition_indexes"]],
            }
            for t in request["topics"]
        ),
    )


def _describe(broker: Services, rights: Access | None, topic: str, index: int) -> dict[str, Any]:
    try:
        producers = _producers(broker, rights, topic, index)
    except KafkaError as error:
        return {
            "partition_index": index,
            "error_code": error.code,
            "error_message": str(error) or None,
            "active_producers": [],
        }
    return {"partition_index": index, "error_code": 0, "active_producers": producers}


def _producers(broker: Services, rights: Access | None, topic: str, index: int) -> list[dict[str, Any]]:
    check_name(topic)
    if rights and not rights.may(Operation.READ, ResourceType.TOPIC, topic):
        raise TopicAuthorizationError("Topic authorization failed.")
    if broker.metadata.topics(topic) is None:
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
        for producer_id, producer in broker.partitions.replica(topic, index).log.producers.items()
    ]
