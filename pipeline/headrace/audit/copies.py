"""The copies of open streams by tier: in parcels until all neighbours have passed, then in one step function a stream and tier.

Owns the folding. Invariant: each copy that is counted and not settled is in one range that is held, one parcel or one step
function. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import permutations
from typing import Final, TypeGuard

from headrace.audit.changes import Changes
from headrace.audit.coverage import Link
from headrace.audit.latency import SourcePartition
from headrace.audit.parcels import TIERS, Counter, Parcel, Tier, joined_parcel, neighbours
from headrace.audit.reach import Reach
from headrace.audit.records import Counted
from headrace.audit.windows import EMPTY, Depth, Stream, Tally, remove_from, total

BACKLOG_MAX: Final = 128
"""Parcels of a partition and tier; beyond it neighbouring ones are joined."""


@dataclass(slots=True)
class Copies:
    """See the module's text; `copies_of` tells whose copies tallies of a partition are, `folded_links` hears of all ranges."""

    reach: Reach
    changes: Changes
    copies_of: Callable[[SourcePartition, Iterable[Tally]], dict[str, Depth]]
    folded_links: Callable[[Counter, list[Link]], None] = lambda _counter, _links: None
    folded: dict[tuple[Tier, Stream], Depth] = field(default_factory=dict)
    """What all neighbours are past."""
    unjudged: dict[tuple[Tier, Tier, Stream], Depth] = field(default_factory=dict)
    """What is folded of a tier, but may lie in offsets that a neighbour never counted."""
    backlog: dict[Counter, list[Parcel]] = field(default_factory=dict)
    """What is counted for good, but not yet by all neighbours; in the order of offsets."""
    held: set[Counter] = field(default_factory=set)
    """Those with ranges that are held."""
    _parcels: dict[Counter, dict[tuple[int, int], Parcel]] = field(default_factory=dict)
    """Of the ranges that are held, by their offsets."""

    def settle(self, changed: set[SourcePartition], before_ms: int) -> None:
        """Fold what all neighbours are past, where something changed or ranges were counted before a time."""
        due = {counter.place for counter in self.held if self.reach.coverage[counter].is_due(before_ms)}
        counters = [Counter(tier, place) for place in changed | due for tier in TIERS]
        for counter in counters:
            self._fold(counter, before_ms)
        for counter in counters:
            if self.backlog.get(counter):
                self.backlog[counter] = self._settle_backlog(counter, self.backlog[counter])

    def forget_warehouse(self) -> None:
        """Forget what the warehouse has."""
        for (tier, stream), copies in self.folded.items():
            if tier == "offline" and stream.is_again:
                # Which rows are further copies is not known any more.
                self.unjudged["offline", "warehouse", stream] = copies
        self.backlog = {key: value for key, value in self.backlog.items() if key.tier != "warehouse"}
        self.folded = {key: value for key, value in self.folded.items() if key[0] != "warehouse"}
        self.unjudged = {key: value for key, value in self.unjudged.items() if key[0] != "warehouse"}

    def remove(self, stream: Stream, found: Depth) -> None:
        """Take sequences out that are settled."""
        remove_from(self.folded, [(tier, stream) for tier in TIERS], found)
        remove_from(self.unjudged, [(*pair, stream) for pair in permutations(TIERS, 2)], found)

    def open_parcels(
        self, places: Iterable[SourcePartition] | None = None
    ) -> Iterator[tuple[Counter, Parcel]]:
        """Yield what is counted but not folded, of some partitions or of all."""
        if places is None:
            places = {place for found in self.reach.places.values() for place in found}
        for counter in (Counter(tier, place) for place in places for tier in TIERS):
            yield from ((counter, parcel) for parcel in self.backlog.get(counter, ()))
            coverage = self.reach.coverage.get(counter)
            if coverage is None:
                continue
            known = self._parcels.get(counter, {})
            found = {
                (link.first, link.next): known.get((link.first, link.next)) or self._parcel(counter, link)
                for link in coverage.chain
                if _has_events(link)
            }
            self._parcels[counter] = found
            yield from ((counter, parcel) for parcel in found.values())

    def _fold(self, counter: Counter, before_ms: int) -> None:
        coverage = self.reach.coverage.get(counter)
        if coverage is None:
            return
        folded_links = coverage.fold(before_ms)
        self.folded_links(counter, folded_links)
        links = [link for link in folded_links if _has_events(link)]
        parcels = self._parcels.get(counter, {})
        folded = [parcels.get((link.first, link.next)) or self._parcel(counter, link) for link in links]
        if folded:
            self.backlog.setdefault(counter, []).extend(folded)
        removed = sum(link.removed for link in links)
        self.reach.removed[counter] = self.reach.removed.get(counter, 0) + removed
        if coverage.chain:
            self.held.add(counter)
        else:
            self.held.discard(counter)

    def _settle_backlog(self, counter: Counter, parcels: list[Parcel]) -> list[Parcel]:
        """Fold what all neighbours have passed; of a long rest, neighbouring parcels become one."""
        rest: list[Parcel] = []
        for parcel in parcels:
            tiers = neighbours(counter)
            if all(self.reach.has_passed(tier, counter, parcel) for tier in tiers):
                unjudged = [tier for tier in tiers if not self.reach.is_judged(tier, counter, parcel)]
                if counter.tier == "offline":
                    self.reach.passings.settle(counter.place, parcel.first, parcel.next, parcel.copies)
                for producer, copies in parcel.copies.items():
                    stream = Stream(counter.place.datacenter, counter.place.topic, producer)
                    key = (counter.tier, stream)
                    self.changes.streams.add(stream)
                    self.folded[key] = total((self.folded.get(key, EMPTY), copies))
                    for tier in unjudged:
                        pair = (counter.tier, tier, stream)
                        self.unjudged[pair] = total((self.unjudged.get(pair, EMPTY), copies))
            else:
                rest.append(parcel)
        if len(rest) <= BACKLOG_MAX:
            return rest
        return [joined_parcel(rest[at : at + 2]) for at in range(0, len(rest), 2)]

    def _parcel(self, counter: Counter, link: Counted) -> Parcel:
        copies = self.copies_of(counter.place, link.tallies)
        return Parcel(first=link.first, next=link.next, copies=copies, at_ms=link.at_ms)


def _has_events(link: Link) -> TypeGuard[Counted]:
    return isinstance(link, Counted) and link.batches is None
