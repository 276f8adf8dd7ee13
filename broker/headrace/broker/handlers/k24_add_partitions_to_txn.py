"""AddPartitionsToTxn (key 24), versions 0-5: a producer's transaction takes partitions in, all that are named or none.

From version 4 on brokers ask, for many transactions at once, and may only verify that partitions are in (KIP-890).

Deviations: a request for no transaction at all is answered with none; Kafka never answers it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.coordinators.topics import INTERNAL_TOPICS
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import Access, access, require_cluster
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.transactional import for_version
from headrace.broker.txn.events import AddPartitions, VerifyPartitions
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.gather import gather
from headrace.broker.wire.api import k24_add_partitions_to_txn
from headrace.broker.wire.partitions import TopicPartition

API = k24_add_partitions_to_txn.API
VERSIONS = (0, 5)
REPEATS = True
BATCHED_VERSION = 4

Errors = Mapping[TopicPartition, ErrorCode]


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    if call.header.version >= BATCHED_VERSION:
        require_cluster(broker, call, Operation.CLUSTER_ACTION)
        transactions = {each["transactional_id"]: each for each in request["transactions"]}
        asked = [
            _ask(broker, call, each, ()).map(partial(_result, transactional_id))
            for transactional_id, each in transactions.items()
        ]
        return gather(asked).map(lambda results: {"error_code": 0, "results_by_transaction": results})
    single = {
        "transactional_id": request["v3_and_below_transactional_id"],
        "producer_id": request["v3_and_below_producer_id"],
        "producer_epoch": request["v3_and_below_producer_epoch"],
        "verify_only": False,
        "topics": request["v3_and_below_topics"],
    }
    rights = access(broker, call)
    if rights and not rights.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, single["transactional_id"]):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return {"results_by_topic_v3_and_below": _topics(dict.fromkeys(_partitions(single), error))}
    refused = _refused(rights, single)
    return _ask(broker, call, single, refused).map(
        lambda errors: {"results_by_topic_v3_and_below": _topics(errors)}
    )


def _refused(rights: Access | None, wanted: dict[str, Any]) -> Collection[str]:
    """The topics that it may not write to; nobody may write to those that only brokers write, either."""
    if rights is None:
        return ()
    names = {topic["name"] for topic in wanted["topics"]}
    return {
        *rights.refused(Operation.WRITE, ResourceType.TOPIC, names.difference(INTERNAL_TOPICS)),
        *names.intersection(INTERNAL_TOPICS),
    }


def _partitions(wanted: dict[str, Any]) -> list[TopicPartition]:
    return [TopicPartition(t["name"], index) for t in wanted["topics"] for index in t["partitions"]]


def _ask(broker: Services, call: Call, wanted: dict[str, Any], refused: Collection[str]) -> Deferred[Errors]:
    """What becomes of each partition of one transaction."""
    partitions = _partitions(wanted)
    errors = {p: ErrorCode.TOPIC_AUTHORIZATION_FAILED for p in partitions if p.topic in refused}
    for partition in partitions:
        if partition not in errors and broker.metadata.partition(*partition) is None:
            errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if errors:
        answer: Deferred[Errors] = Deferred()
        answer.complete({p: errors.get(p, ErrorCode.OPERATION_NOT_ATTEMPTED) for p in partitions})
        return answer
    producer = ProducerEpoch(wanted["producer_id"], wanted["producer_epoch"])
    transactional_id = wanted["transactional_id"]
    if wanted["verify_only"]:
        verify = VerifyPartitions(
            transactional_id=transactional_id, producer=producer, partitions=frozenset(partitions)
        )
        return broker.transactions.ask(verify)
    add = AddPartitions(
        transactional_id=transactional_id, producer=producer, partitions=frozenset(partitions)
    )
    return broker.transactions.ask(add).map(lambda error: dict.fromkeys(partitions, for_version(error, call)))


def _result(transactional_id: str, errors: Errors) -> dict[str, Any]:
    return {"transactional_id": transactional_id, "topic_results": _topics(errors)}


def _topics(errors: Errors) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, index), error in errors.items():
        topics.setdefault(topic, []).append({"partition_index": index, "partition_error_code": error})
    return [{"name": name, "results_by_partition": partitions} for name, partitions in topics.items()]
