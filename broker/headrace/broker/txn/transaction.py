"""One transactional id in memory: its producer, and the transaction that is under way or was the last one.

Owns the facts and what follows from them alone; which request may change them is in `machine`. A transaction is a value: what
changes makes another one. Follows Apache Kafka 3.9's TransactionMetadata.scala.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from headrace.broker.wire.partitions import TopicPartition
from headrace.broker.wire.special_values import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

EPOCH_MAX = 2**15 - 1
NOT_STARTED_MS = -1


class State(Enum):
    """Kafka's states, by the number in a record and the name that DescribeTransactions shows."""

    EMPTY = (0, "Empty")
    ONGOING = (1, "Ongoing")
    PREPARE_COMMIT = (2, "PrepareCommit")
    PREPARE_ABORT = (3, "PrepareAbort")
    COMPLETE_COMMIT = (4, "CompleteCommit")
    COMPLETE_ABORT = (5, "CompleteAbort")
    # These two are never stored: they are known as filters of ListTransactions, and when somebody stored them.
    DEAD = (6, "Dead")
    PREPARE_EPOCH_FENCE = (7, "PrepareEpochFence")

    @property
    def number(self) -> int:
        return self.value[0]

    @property
    def shown(self) -> str:
        return self.value[1]


BY_NUMBER = {state.number: state for state in State}
BY_NAME = {state.shown: state for state in State}
AT_REST = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Transaction(NamedTuple):
    """`partitions` are those whose markers are not written yet.

    No record keeps the last producer id and epoch, nor when the last transaction began once the producer has begun anew.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    updated_ms: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NOT_STARTED_MS

    @property
    def is_prepared(self) -> bool:
        """Whether it is decided how it ends, and markers are on their way."""
        return self.state in PREPARED

    @property
    def is_at_rest(self) -> bool:
        """Whether there is no transaction."""
        return self.state in AT_REST

    @property
    def is_epoch_exhausted(self) -> bool:
        """The last epoch is kept for fencing: no client gets it."""
        return is_exhausted(self.producer_epoch)

    @property
    def as_stored(self) -> Transaction:
        """Without what no record keeps."""
        return self._replace(
            last_producer_id=NO_PRODUCER_ID,
            last_producer_epoch=NO_PRODUCER_EPOCH,
            start_ms=self.stored_start_ms,
        )

    @property
    def stored_start_ms(self) -> int:
        """When the transaction began, or that there is none."""
        return NOT_STARTED_MS if self.state is State.EMPTY else self.start_ms

    def with_epoch(self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """A producer begins, or goes on after an error."""
        return self._replace(
            producer_epoch=epoch,
            last_producer_id=self.producer_id,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=State.EMPTY,
            partitions=frozenset(),
            updated_ms=now_ms,
        )

    def with_producer(self, producer_id: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """The epochs of the producer's id are used up: it gets another one."""
        return self.with_epoch(0, last_epoch, timeout_ms, now_ms)._replace(producer_id=producer_id)

    def with_partitions(self, partitions: frozenset[TopicPartition], now_ms: int) -> Transaction:
        """A transaction begins, or takes more partitions in."""
        return self._replace(
            state=State.ONGOING,
            partitions=self.partitions | partitions,
            start_ms=now_ms if self.is_at_rest else self.start_ms,
            updated_ms=now_ms,
        )

    def prepared(self, *, is_commit: bool, now_ms: int) -> Transaction:
        """How it ends is decided."""
        state = State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT
        return self._replace(state=state, updated_ms=now_ms)

    def fenced(self, now_ms: int) -> Transaction:
        """It is aborted in an epoch that its producer does not have, which is thereby fenced."""
        return self.prepared(is_commit=False, now_ms=now_ms)._replace(
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def awaits_more(self, marked: frozenset[TopicPartition]) -> bool:
        """Whether there are partitions without a marker beside those."""
        return not self.partitions <= marked

    def without(self, marked: frozenset[TopicPartition]) -> Transaction:
        """Those partitions have their markers."""
        return self._replace(partitions=self.partitions - marked)

    def completed(self, now_ms: int) -> Transaction:
        """All partitions have their markers."""
        is_commit = self.state is State.PREPARE_COMMIT
        state = State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT
        return self._replace(state=state, partitions=frozenset(), updated_ms=now_ms)


def is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1
