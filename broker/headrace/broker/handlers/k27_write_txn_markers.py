"""WriteTxnMarkers (key 27), versions 0-1: ends transactions of producers in partitions that this broker leads, each with a
control batch; answered once all replicas in sync have them.

Deviations: a mirror's copy takes none: POLICY_VIOLATION. A producer id or epoch below 0 gets UNKNOWN_SERVER_ERROR for its
own marker alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.coordinators.topics import OFFSETS_TOPIC
from headrace.broker.errors import (
    ClusterAuthorizationError,
    ErrorCode,
    KafkaError,
    UnknownTopicOrPartitionError,
    error_of,
)
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.produce.append import note_append, refusal
from headrace.broker.handlers.produce.outcome import Outcome
from headrace.broker.handlers.produce.park import all_certain, park
from headrace.broker.handlers.services import Services
from headrace.broker.log.producers import ABORT, COMMIT, MARKER_SIZE, Marker
from headrace.broker.structured_log import get_logger
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k27_write_txn_markers

API = k27_write_txn_markers.API
VERSIONS = (0, 1)
ALL = -1
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)

logger = get_logger(__name__)


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    rights = access(broker, call)
    if (
        rights
        and not rights.may_cluster(Operation.ALTER, quietly=True)
        and not rights.may_cluster(Operation.CLUSTER_ACTION)
    ):
        return _refused(request["markers"])
    return write(broker, request["markers"])


def _refused(markers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The response has no error of its own: each partition says it."""
    error = ClusterAuthorizationError("the client is no broker")
    producers, outcomes = [], []
    for marker in markers:
        for topic in marker["topics"]:
            for index in topic["partition_indexes"]:
                producers.append(marker["producer_id"])
                outcomes.append(Outcome(topic["name"], index, None, None, error))
    return _answer(producers, outcomes)


def write(broker: Services, markers: Sequence[dict[str, Any]]) -> dict[str, Any] | Deferred[dict[str, Any]]:
    """Write what this broker leads; the response."""
    producers, outcomes = [], []
    for marker in markers:
        for topic in marker["topics"]:
            for index in topic["partition_indexes"]:
                producers.append(marker["producer_id"])
                outcomes.append(_write(broker, marker, topic["name"], index))

    settled = all_certain(outcomes, ALL)
    if settled is not None:
        return _answer(producers, settled)

    def answer(settled: Sequence[Outcome]) -> dict[str, Any]:
        return _answer(producers, settled)

    return park(broker.waiting, outcomes, ALL, broker.config.network.request_timeout_ms, answer)


def _write(broker: Services, wanted: dict[str, Any], topic: str, index: int) -> Outcome:
    partition = broker.partitions.get(topic, index)
    try:
        if wanted["producer_id"] < 0 or wanted["producer_epoch"] < 0:
            raise error_of(ErrorCode.UNKNOWN_SERVER_ERROR, "a marker needs a producer's id and epoch")
        if partition is None:
            raise UnknownTopicOrPartitionError(f"no transaction can be ended in {topic}-{index} here")
        committed_before = partition.log.high_watermark
        marker = Marker(COMMIT if wanted["transaction_result"] else ABORT, wanted["coordinator_epoch"])
        result = partition.append_marker(
            wanted["producer_id"], wanted["producer_epoch"], marker, now_ms=broker.clock.now_ms()
        )
    except KafkaError as error:
        if error.code in FENCED:
            logger.info(
                "marker refused",
                partition=f"{topic}-{index}",
                error=error.code.name,
                producer=f"{wanted['producer_id']}/{wanted['producer_epoch']}",
                coordinator_epoch=wanted["coordinator_epoch"],
            )
        return refusal(broker, topic, index, partition, error)
    note_append(broker, topic, partition, 1, MARKER_SIZE, committed_before)
    if topic == OFFSETS_TOPIC:
        broker.groups.transaction_ended(
            index, wanted["producer_id"], is_commit=bool(wanted["transaction_result"])
        )
    return Outcome(topic, index, partition, result, leadership=partition.leadership)


def _answer(producers: Iterable[int], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """By producer and topic, as often as they were named."""
    found: dict[int, dict[str, list[dict[str, int]]]] = {}
    for producer_id, outcome in zip(producers, outcomes, strict=True):
        code = ErrorCode.NONE if outcome.error is None else outcome.error.code
        partitions = found.setdefault(producer_id, {}).setdefault(outcome.topic, [])
        partitions.append({"partition_index": outcome.partition_index, "error_code": code})
    return {
        "markers": [
            {
                "producer_id": producer_id,
                "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
            }
            for producer_id, topics in found.items()
        ]
    }
