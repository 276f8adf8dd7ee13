"""Markers on their way to the leaders of partitions: those that this broker leads first, then one connection a broker.

Invariants: a marker is sent again until its partition's leader has it, the partition is gone, or a leader says that another
coordinator or another epoch of the producer took over; a broker has one request at a time, which takes all that waits for it,
whatever transactions it is of. Must not know what follows once markers are written.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.broker.coordinators.runtime import Scheduler
from headrace.broker.coordinators.topics import TRANSACTIONS_TOPIC
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.k27_write_txn_markers import Ending
from headrace.broker.handlers.produce.outcome import Outcome
from headrace.broker.log.producers import ABORT, COMMIT, Marker
from headrace.broker.replication.model import Endpoint, PartitionMetadata
from headrace.broker.server.peers.broker_links import BrokerLinks
from headrace.broker.server.peers.requests import Connect
from headrace.broker.structured_log import get_logger
from headrace.broker.txn.events import SendMarkers
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k27_write_txn_markers
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import TopicPartition

VERSION = 1
RETRY_MS = 200
# A request names at most so many transactions.
MARKERS_COUNT_MAX = 1_000

_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
# No transaction has anything in such a partition.
_SETTLED = (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.POLICY_VIOLATION)

logger = get_logger(__name__)

Written = Callable[[SendMarkers, frozenset[TopicPartition]], None]
WriteLocal = Callable[[Ending], list[Outcome] | Deferred[list[Outcome]]]
"""What became of each partition."""
Batch = dict["Sending", set[TopicPartition]]
Errors = Mapping[TopicPartition, ErrorCode]


class Leaders(Protocol):
    """What is known of leaders."""

    def topics(self, name: str) -> object | None: ...

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None: ...

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None: ...


class TaskStarter(Protocol):
    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class Sending:
    """An order, by the coordinator that is the leader of that partition in that epoch."""

    index: int
    coordinator_epoch: int
    order: SendMarkers


class MarkerSender:
    """`written(order, partitions)` is told of markers that are there; `write_local(ending)` writes those of partitions that this
    broker leads.
    """

    def __init__(
        self,
        broker_id: int,
        metadata: Leaders,
        *,
        listener: str,
        timeout_ms: int,
        connect: Connect,
        tasks: TaskStarter,
        scheduler: Scheduler,
        written: Written,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        name = f"headrace-transactions-{broker_id}"
        self._links = BrokerLinks(metadata, name, listener=listener, timeout_ms=timeout_ms, connect=connect)
        self._tasks = tasks
        self._scheduler = scheduler
        self.write_local: WriteLocal = _nothing_led
        self._written = written
        self._sendings: dict[str, Sending] = {}
        self._queues: dict[int, Batch] = {}
        self._asked: set[int] = set()

    def send(self, index: int, coordinator_epoch: int, order: SendMarkers) -> None:
        """Have the markers of a transaction written; a later order for the same transactional id takes its place."""
        sending = self._sendings[order.transactional_id] = Sending(index, coordinator_epoch, order)
        if order.partitions:
            self._route(sending, order.partitions)
        else:
            self._done(sending, ())

    def forget(self, index: int) -> None:
        """Another broker coordinates the transactions of that partition, or nobody."""
        self._sendings = {key: sending for key, sending in self._sendings.items() if sending.index != index}

    def close(self) -> None:
        """Send nothing more."""
        self._sendings.clear()
        self._links.close()

    def _is_wanted(self, sending: Sending) -> bool:
        return self._sendings.get(sending.order.transactional_id) is sending

    def _route(self, sending: Sending, partitions: Iterable[TopicPartition]) -> None:
        """To the queues of the partitions' leaders; what has none waits."""
        if not self._is_wanted(sending):
            return
        gone, leaderless = set(), set()
        led: dict[int, set[TopicPartition]] = {}
        for partition in partitions:
            known = self._metadata.partition(*partition)
            if known is None and self._metadata.topics(TRANSACTIONS_TOPIC) is not None:
                gone.add(partition)
            elif known is None or known.leader < 0:
                leaderless.add(partition)
            else:
                led.setdefault(known.leader, set()).add(partition)
        if leaderless:
            self._retry(sending, leaderless)
        if gone:
            logger.info(
                "markers of deleted partitions left out",
                transactional_id=sending.order.transactional_id,
                partitions=len(gone),
            )
            self._done(sending, gone)
        own = led.pop(self._broker_id, None)
        for leader, its in led.items():
            self._queues.setdefault(leader, {}).setdefault(sending, set()).update(its)
        if own:
            self._write(sending, own)
        for leader in sorted(led):
            self._pump(leader)

    def _retry(self, sending: Sending, partitions: Iterable[TopicPartition]) -> None:
        self._scheduler.call_later(RETRY_MS / 1000, self._route, sending, frozenset(partitions))

    def _done(self, sending: Sending, partitions: Iterable[TopicPartition]) -> None:
        if self._is_wanted(sending):
            self._written(sending.order, frozenset(partitions))

    def _pump(self, broker_id: int) -> None:
        """Send what waits for a broker, if it has no request to answer."""
        if broker_id in self._asked:
            return
        batch = self._batch(broker_id)
        if not batch:
            return
        self._asked.add(broker_id)
        self._tasks.start(f"markers-{broker_id}", self._ask(broker_id, batch))

    def _write(self, sending: Sending, partitions: set[TopicPartition]) -> None:
        """Write what this broker leads."""
        order = sending.order
        marker = Marker(COMMIT if order.is_commit else ABORT, sending.coordinator_epoch)
        answer = self.write_local(Ending(order.producer, marker, sorted(partitions)))
        if isinstance(answer, Deferred):
            answer.then(
                lambda outcomes: self._settle(sending, partitions, _errors(outcomes)),
                lambda _: self._retry(sending, partitions),
            )
        else:
            self._settle(sending, partitions, _errors(answer))

    def _batch(self, broker_id: int) -> Batch:
        queue = self._queues.get(broker_id, {})
        batch: Batch = {}
        while queue and len(batch) < MARKERS_COUNT_MAX:
            sending = next(iter(queue))
            partitions = queue.pop(sending)
            if self._is_wanted(sending):
                batch[sending] = partitions
        return batch

    async def _ask(self, broker_id: int, batch: Batch) -> None:
        try:
            link = self._links.to(broker_id)
            if link is None:
                self._retry_all(batch)
                return
            self._settle_answer(
                batch, await link.ask(k27_write_txn_markers.API, VERSION, {"markers": _markers(batch)})
            )
        except OSError as error:
            logger.warning("markers not sent", broker=broker_id, reason=repr(error))
            self._retry_all(batch)
        finally:
            self._asked.discard(broker_id)
            if self._queues.get(broker_id):
                self._scheduler.call_soon(self._pump, broker_id)

    def _retry_all(self, batch: Batch) -> None:
        for sending, partitions in batch.items():
            self._retry(sending, partitions)

    def _settle_answer(self, batch: Batch, answer: Message) -> None:
        """Tell of what another broker wrote, and send again what it did not."""
        errors = {
            (marker["producer_id"], TopicPartition(topic["name"], partition["partition_index"])): ErrorCode(
                partition["error_code"]
            )
            for marker in answer["markers"]
            for topic in marker["topics"]
            for partition in topic["partitions"]
        }
        for sending, partitions in batch.items():
            producer_id = sending.order.producer.producer_id
            found = {p: errors[producer_id, p] for p in partitions if (producer_id, p) in errors}
            self._settle(sending, partitions, found)

    def _settle(self, sending: Sending, partitions: set[TopicPartition], found: Errors) -> None:
        """Tell of what is written, and send again what is not, or of which nothing was said."""
        settled = {p for p, error in found.items() if error in _SETTLED}
        if len(settled) == len(partitions):
            self._done(sending, settled)
            return
        if any(error in _FENCED for error in found.values()):
            self._give_up(sending, found)
            return
        if settled:
            self._done(sending, settled)
        self._retry(sending, partitions - settled)

    def _give_up(self, sending: Sending, found: Errors) -> None:
        """Another coordinator, or another epoch of the producer, took over: this order is void."""
        if self._is_wanted(sending):
            del self._sendings[sending.order.transactional_id]
            partition, error = next((p, e) for p, e in found.items() if e in _FENCED)
            logger.warning(
                "markers refused",
                transactional_id=sending.order.transactional_id,
                partition=f"{partition.topic}-{partition.partition}",
                error=error.name,
            )


def _nothing_led(ending: Ending) -> list[Outcome]:
    """Before the broker leads anything: all of it is sent again."""
    return []


def _errors(outcomes: Iterable[Outcome]) -> Errors:
    return {TopicPartition(o.topic, o.partition_index): o.error_code for o in outcomes}


def _markers(batch: Batch) -> list[Message]:
    return [
        {
            "producer_id": sending.order.producer.producer_id,
            "producer_epoch": sending.order.producer.epoch,
            "transaction_result": sending.order.is_commit,
            "topics": _topics(partitions),
            "coordinator_epoch": sending.coordinator_epoch,
        }
        for sending, partitions in batch.items()
    ]


def _topics(partitions: Iterable[TopicPartition]) -> list[Message]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]
