"""Where the load went on after a stop: what it passed over, and which partitions began to use offsets again.

Owns what a person's orders to the load (`headrace load resume`, `headrace load skip`) mean to the audit. Offsets that were
passed over count as reached by the warehouse, so what lay there is lost and not on its way, and is known with the reason. A
partition that went on below where it stood uses offsets again for other records: from then on offsets no longer tell
which counts of it belong together, and nothing of it is judged between the offline cluster and the warehouse. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.audit.latency import SourcePartition
from headrace.audit.windows import EMPTY, Depth, Stream, total


class Passed(NamedTuple):
    """A partition went on at `next` that stood still at `first`; `at_ms` is the commit's time."""

    place: SourcePartition
    first: int
    next: int
    kind: str
    reason: str
    life: int
    at_ms: int

    @property
    def uses_offsets_again(self) -> bool:
        return self.next < self.first

    def overlaps(self, first: int, following: int) -> bool:
        return self.first < following and first < self.next


@dataclass(slots=True)
class Passings:
    """All of them, oldest first, and whose events were counted in what was passed over."""

    known: list[Passed] = field(default_factory=list)
    copies: dict[tuple[int, Stream], Depth] = field(default_factory=dict)
    """By the index of a passing: what the offline tier had there and is settled; perhaps with events beside it."""
    renewed: dict[SourcePartition, int] = field(default_factory=dict)
    """When partitions last began to use offsets again."""

    def add(self, item: Passed) -> bool:
        """Take a passing; returns whether it is new."""
        if item in self.known:
            return False
        self.known.append(item)
        if item.uses_offsets_again:
            self.renewed[item.place] = max(item.at_ms, self.renewed.get(item.place, 0))
        return True

    def over(self, place: SourcePartition, first: int, following: int) -> Iterator[int]:
        """Yield the indices of those that passed over some of these offsets."""
        for index, item in enumerate(self.known):
            if item.place == place and item.overlaps(first, following):
                yield index

    def settle(self, place: SourcePartition, first: int, following: int, copies: Mapping[str, Depth]) -> None:
        """Note whose events the offline tier had in offsets some of which were passed over."""
        for index in self.over(place, first, following):
            for producer, found in copies.items():
                key = (index, Stream(place.datacenter, place.topic, producer))
                self.copies[key] = total((self.copies.get(key, EMPTY), found))

    def is_of_former_life(self, place: SourcePartition, at_ms: int) -> bool:
        """Whether offsets that were counted at this time may be those of a log that was given up."""
        return 0 < at_ms <= self.renewed.get(place, 0)
