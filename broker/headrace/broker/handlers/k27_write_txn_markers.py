"""WriteTxnMarkers (key 27), versions 0-1: ends transactions of producers in partitions that this broker leads, each with a
control batch; answered once all replicas in sync have them.

Deviations: a mirror's copy takes none: POLICY_VIOLATION. A producer id or epoch below 0 gets UNKNOWN_SERVER_ERROR for its
own marker alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from headrace.broker.auth.operations import Operation
from headrace.broker.coordinators.decision import ProducerEpoch
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
from headrace.broker.wire.partitions import TopicPartition

API = k27_write_txn_markers.API
VERSIONS = (0, 1)
ALL = -1
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)

logger = get_logger(__name__)


class Ending(NamedTuple):
    """A producer's transaction, how it ends, and the partitions that are to have its marker."""

    producer: ProducerEpoch
    marker: Marker
    partitions: Collection[TopicPartition]


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
    endings = [_ending(marker) for marker in request["markers"]]
    written = write(broker, *endings)
    if isinstance(written, Deferred):
        return written.map(lambda outcomes: _answer(endings, outcomes))
    return _answer(endings, written)


def _refused(markers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The response has no error of its own: each partition says it."""
    error = ClusterAuthorizationError("the client is no broker")
    endings = [_ending(marker) for marker in markers]
    outcomes = [Outcome(*place, None, None, error) for ending in endings for place in ending.partitions]
    return _answer(endings, outcomes)


def _ending(wanted: dict[str, Any]) -> Ending:
    kind = COMMIT if wanted["transaction_result"] else ABORT
    return Ending(
        ProducerEpoch(wanted["producer_id"], wanted["producer_epoch"]),
        Marker(kind, wanted["coordinator_epoch"]),
        [TopicPartition(t["name"], index) for t in wanted["topics"] for index in t["partition_indexes"]],
    )


def write(broker: Services, *endings: Ending) -> list[Outcome] | Deferred[list[Outcome]]:
    """Write what this broker leads; what became of each partition of each transaction, in their order."""
    outcomes = [_write(broker, ending, *place) for ending in endings for place in ending.partitions]
    settled = all_certain(outcomes, ALL)
    if settled is not None:
        return settled
    timeout_ms = broker.config.network.request_timeout_ms
    return park(broker.waiting, outcomes, ALL, timeout_ms, lambda settled: settled)


def _write(broker: Services, ending: Ending, topic: str, index: int) -> Outcome:
    partition = broker.partitions.get(topic, index)
    (producer_id, epoch), marker, _ = ending
    try:
        if producer_id < 0 or epoch < 0:
            raise error_of(ErrorCode.UNKNOWN_SERVER_ERROR, "a marker needs a producer's id and epoch")
        if partition is None:
            raise UnknownTopicOrPartitionError(f"no transaction can be ended in {topic}-{index} here")
        committed_before = partition.log.high_watermark
        result = partition.append_marker(producer_id, epoch, marker, now_ms=broker.clock.now_ms())
    except KafkaError as error:
        if error.code in FENCED:
            logger.info(
                "marker refused",
                partition=f"{topic}-{index}",
                error=error.code.name,
                producer=f"{producer_id}/{epoch}",
                coordinator_epoch=marker.coordinator_epoch,
            )
        return refusal(broker, topic, index, partition, error)
    note_append(broker, topic, partition, 1, MARKER_SIZE, committed_before)
    if topic == OFFSETS_TOPIC:
        broker.groups.transaction_ended(index, producer_id, is_commit=marker.kind == COMMIT)
    return Outcome(topic, index, partition, result, leadership=partition.leadership)


def _answer(endings: Iterable[Ending], outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """By producer and topic, as often as they were named."""
    found: dict[int, dict[str, list[dict[str, int]]]] = {}
    producers = [ending.producer.producer_id for ending in endings for _ in ending.partitions]
    for producer_id, outcome in zip(producers, outcomes, strict=True):
        partitions = found.setdefault(producer_id, {}).setdefault(outcome.topic, [])
        partitions.append({"partition_index": outcome.partition_index, "error_code": outcome.error_code})
    return {
        "markers": [
            {
                "producer_id": producer_id,
                "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
            }
            for producer_id, topics in found.items()
        ]
    }
