"""The copies of open streams by tier: in parcels until all neighbours have passed, then in one step function a stream and tier.

Owns the folding. Invariant: each copy that is counted and not settled is in one range that is held, one parcel or one step
function. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import permutations
from typing import Final, TypeGuard

from headrace.audit.latency import SourcePartition
from headrace.audit.ledger.changes import Changes
from headrace.audit.ledger.coverage import Coverage, Link
from headrace.audit.ledger.reach import Reach
from headrace.audit.parcels import COUNTED_TIERS, TIERS, Counter, Parcel, Tier, joined_parcel, neighbours
from headrace.audit.records import Counted
from headrace.audit.windows import EMPTY, Depth, Stream, Tally, once, remove_from, total

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
    _judged: dict[SourcePartition, int] = field(default_factory=dict)
    """Up to where all tiers were counted when parcels were last judged."""

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

    def judged_anew(self, places: Iterable[SourcePartition]) -> Iterator[tuple[Counter, Parcel]]:
        """Yield of the open parcels of some partitions those that mean something else than when this was last asked.

        A parcel below the positions of all tiers means what it meant, unless offsets there were never counted.
        """
        for place in places:
            judged = self._judged_until(place)
            self._judged[place] = min(self.reach.position(tier, place) for tier in TIERS)
            for coverage in self._coverages(place):
                coverage.is_relinked = False
            for counter, parcel in self.open_parcels([place]):
                if parcel.next > judged:
                    yield counter, parcel

    def moving(self, places: Iterable[SourcePartition]) -> dict[str, Depth]:
        """Return by producer what of some partitions is counted in a tier, and not folded."""
        found: dict[str, list[Depth]] = {}
        for _, parcel in self.open_parcels(places):
            for producer, copies in parcel.copies.items():
                found.setdefault(producer, []).append(copies)
        return {producer: once(total(copies)) for producer, copies in found.items()}

    def _judged_until(self, place: SourcePartition) -> int:
        """Return below which offset parcels were judged, and what was counted there cannot mean something else since."""
        has_doubts = any(coverage.may_skip or coverage.is_relinked for coverage in self._coverages(place))
        if has_doubts or place in self.reach.passed_over or place in self.reach.passings.renewed:
            return -1
        return self._judged.get(place, -1)

    def _coverages(self, place: SourcePartition) -> Iterator[Coverage]:
        found = (self.reach.coverage.get(Counter(tier, place)) for tier in COUNTED_TIERS)
        return (coverage for coverage in found if coverage is not None)

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
        judged = self._judged_until(counter.place)
        for parcel in parcels:
            tiers = neighbours(counter)
            if all(self.reach.has_passed(tier, counter, parcel) for tier in tiers):
                unjudged = [tier for tier in tiers if not self.reach.is_judged(tier, counter, parcel)]
                is_judged = parcel.next <= judged
                if counter.tier == "offline":
                    self.reach.passings.settle(counter.place, parcel.first, parcel.next, parcel.copies)
                for producer, copies in parcel.copies.items():
                    stream = Stream(counter.place.datacenter, counter.place.topic, producer)
                    key = (counter.tier, stream)
                    if not is_judged:
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
