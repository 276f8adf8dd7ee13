"""Asks the coordinators of transactions whether these have the partitions that their producers write to (KIP-890, part 1).

Invariants: a broker has one request at a time, which takes all that waits for it, whatever transactions it is of; each
question has one answer, an error where the coordinator cannot be reached. What is asked again for the same producer while it
waits goes along; a higher epoch takes the place of a lower one. Must not know what is done with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.coordinators.topics import TRANSACTIONS_TOPIC
from headrace.broker.errors import ErrorCode
from headrace.broker.server.coordinators.markers import Leaders, TaskStarter
from headrace.broker.server.peers.broker_links import BrokerLinks
from headrace.broker.server.peers.requests import Connect
from headrace.broker.structured_log import get_logger
from headrace.broker.txn.events import VerifyPartitions
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k24_add_partitions_to_txn
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import TopicPartition

VERSION = 4
# Transactions that wait for one broker; what comes then is refused, to be sent again.
QUESTIONS_MAX = 10_000
# What those who wait keep of their batches; what would be more is refused, to be sent again.
HELD_SIZE_MAX = 256 * 1024 * 1024
# A request names at most so many transactions.
REQUEST_COUNT_MAX = 1_000

Errors = Mapping[TopicPartition, ErrorCode]
"""Of each partition; NONE of those that are in."""
AskLocal = Callable[[VerifyPartitions], Deferred[Errors]]

logger = get_logger(__name__)


@dataclass(slots=True, eq=False)
class Question:
    """What waits to be asked of one transaction, and those who wait for the answer."""

    transactional_id: str
    producer: ProducerEpoch
    partitions: set[TopicPartition] = field(default_factory=set)
    held_size: int = 0
    readers: list[Deferred[Errors]] = field(default_factory=list)


class Verifier:
    """See the module's text; `partition_for(id)` is the partition of `__transaction_state` that keeps an id,
    `ask_local(request)` asks the coordinator in this broker, and `is_in(id, producer, partition)` tells what that says at once.
    """

    def __init__(
        self,
        broker_id: int,
        metadata: Leaders,
        *,
        partition_for: Callable[[str], int],
        ask_local: AskLocal,
        is_in: Callable[[str, ProducerEpoch, TopicPartition], bool],
        listener: str,
        timeout_ms: int,
        connect: Connect,
        tasks: TaskStarter,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._partition_for = partition_for
        self._ask_local = ask_local
        self._is_in = is_in
        self._tasks = tasks
        name = f"headrace-verifier-{broker_id}"
        self._links = BrokerLinks(metadata, name, listener=listener, timeout_ms=timeout_ms, connect=connect)
        self._queues: dict[int, dict[str, Question]] = {}
        self._asked: set[int] = set()
        self._held_size = 0

    def is_in(self, transactional_id: str, producer: ProducerEpoch, partition: TopicPartition) -> bool:
        """Whether this broker is the coordinator, and says at once that the producer's transaction has the partition."""
        known = self._metadata.partition(TRANSACTIONS_TOPIC, self._partition_for(transactional_id))
        return (
            known is not None
            and known.leader == self._broker_id
            and self._is_in(transactional_id, producer, partition)
        )

    def verify(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Iterable[TopicPartition], size: int
    ) -> Deferred[Errors]:
        """What the coordinator says of each partition, at once where that is this broker; who asks keeps `size` bytes until
        then.
        """
        wanted = frozenset(partitions)
        known = self._metadata.partition(TRANSACTIONS_TOPIC, self._partition_for(transactional_id))
        if known is None or known.leader < 0:
            return _refused(wanted, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if known.leader == self._broker_id:
            request = VerifyPartitions(
                transactional_id=transactional_id, producer=producer, partitions=wanted
            )
            return self._ask_local(request).map(_for_producers)
        if self._held_size + size > HELD_SIZE_MAX:
            return _refused(wanted, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        question = self._question(known.leader, transactional_id, producer)
        if isinstance(question, ErrorCode):
            return _refused(wanted, question)
        question.partitions |= wanted
        question.held_size += size
        self._held_size += size
        reader: Deferred[Errors] = Deferred()
        question.readers.append(reader)
        if known.leader not in self._asked:
            self._asked.add(known.leader)
            self._tasks.start(f"verifier-{known.leader}", self._empty(known.leader))
        return reader

    def close(self) -> None:
        """Ask nothing more."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            for question in queue.values():
                self._refuse(question, ErrorCode.NETWORK_EXCEPTION)
        self._links.close()

    def _question(
        self, broker_id: int, transactional_id: str, producer: ProducerEpoch
    ) -> Question | ErrorCode:
        """What the producer's partitions are asked with, or why they are not."""
        queue = self._queues.setdefault(broker_id, {})
        question = queue.get(transactional_id)
        if question is not None and question.producer != producer:
            if producer.epoch < question.producer.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            is_fenced = producer.epoch > question.producer.epoch
            del queue[transactional_id]
            self._refuse(
                question, ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION
            )
            question = None
        if question is None:
            if len(queue) >= QUESTIONS_MAX:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            question = queue[transactional_id] = Question(transactional_id, producer)
        return question

    def _answer(self, question: Question, errors: Errors) -> None:
        self._held_size -= question.held_size
        for reader in question.readers:
            reader.complete(errors)

    def _refuse(self, question: Question, error: ErrorCode) -> None:
        self._answer(question, dict.fromkeys(question.partitions, error))

    async def _empty(self, broker_id: int) -> None:
        """Ask until nothing waits for that broker."""
        try:
            while batch := self._batch(broker_id):
                await self._ask(broker_id, batch)
        finally:
            self._asked.discard(broker_id)

    def _batch(self, broker_id: int) -> list[Question]:
        queue = self._queues.get(broker_id, {})
        names = list(queue)[:REQUEST_COUNT_MAX]
        return [queue.pop(name) for name in names]

    async def _ask(self, broker_id: int, batch: list[Question]) -> None:
        errors: dict[str, Errors] = {}
        refusal = ErrorCode.NETWORK_EXCEPTION
        try:
            link = self._links.to(broker_id)
            if link is None:
                raise ConnectionError("nobody knows where it is")
            answer = await link.ask(k24_add_partitions_to_txn.API, VERSION, _request(batch))
            if answer["error_code"]:
                refusal = _of_request(ErrorCode(answer["error_code"]))
                logger.warning("transactions not verified", broker=broker_id, error=refusal.name)
            errors = _answers(answer)
        except OSError as error:
            logger.warning("transactions not verified", broker=broker_id, reason=repr(error))
        finally:
            for question in batch:
                found = errors.get(question.transactional_id)
                if found is None:
                    self._refuse(question, refusal)
                else:
                    self._answer(question, found)


def _refused(partitions: frozenset[TopicPartition], error: ErrorCode) -> Deferred[Errors]:
    refused: Deferred[Errors] = Deferred()
    refused.complete(dict.fromkeys(partitions, error))
    return refused


def _for_producers(errors: Errors) -> Errors:
    """As those who write expect it: to them a fenced producer has a bad epoch."""
    fenced = ErrorCode.PRODUCER_FENCED
    return {p: ErrorCode.INVALID_PRODUCER_EPOCH if error is fenced else error for p, error in errors.items()}


def _of_request(error: ErrorCode) -> ErrorCode:
    """That this broker may not ask is no matter of the producer's."""
    return ErrorCode.INVALID_TXN_STATE if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else error


def _request(batch: Iterable[Question]) -> Message:
    return {
        "transactions": [
            {
                "transactional_id": question.transactional_id,
                "producer_id": question.producer.producer_id,
                "producer_epoch": question.producer.epoch,
                "verify_only": True,
                "topics": _topics(question.partitions),
            }
            for question in batch
        ]
    }


def _topics(partitions: Iterable[TopicPartition]) -> list[Message]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return [{"name": name, "partitions": indexes} for name, indexes in topics.items()]


def _answers(answer: Message) -> dict[str, Errors]:
    """By transactional id."""
    return {
        result["transactional_id"]: _for_producers(
            {
                TopicPartition(topic["name"], partition["partition_index"]): ErrorCode(
                    partition["partition_error_code"]
                )
                for topic in result["topic_results"]
                for partition in topic["results_by_partition"]
            }
        )
        for result in answer["results_by_transaction"]
    }
