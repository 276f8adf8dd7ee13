"""Which open transactions hang: those that no coordinator will ever end (KIP-664).

Takes what leaders say of their producers and coordinators of their transactional ids; asks nobody. The rule is that of Apache
Kafka 3.9's TransactionsCommand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.broker.wire.partitions import PartitionKey

NO_TRANSACTION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """A producer as the leader of a partition remembers it; `start_offset` is below 0 while it has no transaction open there."""

    place: PartitionKey
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int

    @property
    def is_open(self) -> bool:
        return self.start_offset > NO_TRANSACTION


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A transactional id as its coordinator tells; `partitions` are those that have or get no marker yet."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: tuple[PartitionKey, ...]


def overdue(producers: Iterable[ProducerState], now_ms: int, open_ms_max: int) -> list[ProducerState]:
    """Those with an open transaction that has had no record for longer than a transaction may last."""
    return [each for each in producers if each.is_open and now_ms - each.last_timestamp_ms >= open_ms_max]


def hanging(overdue: Iterable[ProducerState], known: Iterable[Described]) -> list[ProducerState]:
    """Those whose coordinator does not know of the transaction in that partition, or that have none."""
    awaited: Mapping[int, tuple[PartitionKey, ...]] = {each.producer_id: each.partitions for each in known}
    return [each for each in overdue if each.place not in awaited.get(each.producer_id, ())]
