"""AddPartitionsToTxn (key 24), versions 0-5: a producer's transaction takes partitions in, all that are named or none.

From version 4 on brokers ask, for many transactions at once, and may only verify that partitions are in (KIP-890).

Deviations: a request for no transaction at all is answered with none; Kafka never answers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.errors import ErrorCode
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
BATCHED_VERSION = 4

Errors = Mapping[TopicPartition, ErrorCode]


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    if call.header.version >= BATCHED_VERSION:
        transactions = {each["transactional_id"]: each for each in request["transactions"]}
        asked = [
            _ask(broker, call, each).map(partial(_result, transactional_id))
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
    return _ask(broker, call, single).map(lambda errors: {"results_by_topic_v3_and_below": _topics(errors)})


def _ask(broker: Services, call: Call, wanted: dict[str, Any]) -> Deferred[Errors]:
    """What becomes of each partition of one transaction."""
    partitions = [TopicPartition(t["name"], index) for t in wanted["topics"] for index in t["partitions"]]
    unknown = {p for p in partitions if broker.metadata.partition(*p) is None}
    if unknown:
        refused: Deferred[Errors] = Deferred()
        refused.complete(
            {
                p: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if p in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
                for p in partitions
            }
        )
        return refused
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
