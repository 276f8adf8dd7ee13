"""Offsets that producers committed to a group in transactions which are open still (KIP-98, KIP-447).

Invariants: of what is committed for a partition, in a transaction or not, the one that came last into the log counts, whatever
the order in which transactions end; a partition is unstable until the last of its transactions has ended. Changes only by what
is in the log. Follows Apache Kafka 3.9's GroupMetadata.scala (pendingTransactionalOffsetCommits).
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.broker.groups.records import OffsetValue
from headrace.broker.wire.partitions import TopicPartition

Placed = tuple[int, OffsetValue | None]
"""An offset and its place in the order of all; None when a later one counts."""


class PendingOffsets:
    """Those of one group, by producer id."""

    __slots__ = ("_by_producer", "_place")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[TopicPartition, Placed]] = {}
        self._place = 0

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def has(self, partition: TopicPartition) -> bool:
        """Whether a transaction may yet change what is committed for the partition."""
        return any(partition in offsets for offsets in self._by_producer.values())

    def outlive(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether anything is left once those partitions are forgotten."""
        return any(offsets.keys() - partitions for offsets in self._by_producer.values())

    def add(self, producer_id: int, partition: TopicPartition, value: OffsetValue) -> None:
        """An offset comes into the log."""
        self._place += 1
        self._by_producer.setdefault(producer_id, {})[partition] = (self._place, value)

    def take(self, producer_id: int, *, is_commit: bool) -> dict[TopicPartition, OffsetValue]:
        """A producer's transaction ends: its offsets are not pending any more, and those that count now are answered."""
        taken = self._by_producer.pop(producer_id, {})
        held = {}
        for partition, (place, value) in taken.items():
            if is_commit and value is not None:
                self._supersede(partition, place)
                held[partition] = value
        return held

    def supersede(self, partition: TopicPartition) -> None:
        """What is committed for the partition now came after all that is pending."""
        self._supersede(partition, self._place + 1)

    def _supersede(self, partition: TopicPartition, place: int) -> None:
        for offsets in self._by_producer.values():
            if partition in offsets and offsets[partition][0] < place:
                offsets[partition] = (offsets[partition][0], None)

    def forget(self, partition: TopicPartition) -> None:
        """What is committed for the partition is deleted, and what is pending with it."""
        for offsets in self._by_producer.values():
            offsets.pop(partition, None)
        self._by_producer = {producer: offsets for producer, offsets in self._by_producer.items() if offsets}
