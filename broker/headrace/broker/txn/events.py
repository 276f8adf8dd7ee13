"""What a shard of the transaction coordinator is told (events), what its requests are answered, and what it orders.

Events are nouns. A `Request` comes from a client or another broker and names the type of its one answer; the others come from
timers and from the runtime. All are frozen: a script of events replays a shard. Knows nothing of sockets, logs or clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.errors import ErrorCode
from headrace.broker.txn.transaction import State, Transaction
from headrace.broker.wire.partitions import TopicPartition
from headrace.broker.wire.special_values import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

Answer = TypeVar("Answer", covariant=True)


class Request(Generic[Answer]):
    """An event from outside; `Answer` is the type of its one reply."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerAnswer:
    """InitProducerId's reply."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAnswer:
    """DescribeTransactions' reply for one transactional id."""

    error: ErrorCode = ErrorCode.NONE
    transaction: Transaction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer(Request[ProducerAnswer]):
    """A producer begins under a transactional id; with `expected` it goes on after an error (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerEpoch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions(Request[ErrorCode]):
    """A producer is about to write to partitions in its transaction."""

    transactional_id: str
    producer: ProducerEpoch
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitions(Request[Mapping[TopicPartition, ErrorCode]]):
    """A broker that is about to take a producer's first batch asks whether its transaction has the partition (KIP-890)."""

    transactional_id: str
    producer: ProducerEpoch
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction(Request[ErrorCode]):
    """A producer commits or aborts."""

    transactional_id: str
    producer: ProducerEpoch
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransaction(Request[DescribeAnswer]):
    """Somebody asks for the state of a transactional id."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLoaded:
    """The partition's log has been replayed; what was decided is brought to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTimedOut:
    """A transaction has been open for its producer's time-out."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """Partitions of a transaction that this producer's epoch ends have their markers, or are gone for good."""

    transactional_id: str
    producer: ProducerEpoch
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdExpiryDue:
    """Time to look whether a transactional id is of any use still."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMarkers:
    """An order: have the leaders of these partitions write the markers of a transaction whose end is decided.

    `is_late` is one of a transaction whose time was over.
    """

    transactional_id: str
    producer: ProducerEpoch
    is_commit: bool
    partitions: frozenset[TopicPartition]
    is_late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One line of ListTransactions, with what its filters ask about."""

    transactional_id: str
    producer_id: int
    state: State
    start_ms: int


TransactionRequest = InitProducer | AddPartitions | VerifyPartitions | EndTransaction | DescribeTransaction
Event = TransactionRequest | ShardLoaded | TransactionTimedOut | MarkersWritten | IdExpiryDue
