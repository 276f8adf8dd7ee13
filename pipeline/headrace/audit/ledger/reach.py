"""How far each tier is counted, and so what may be said of a neighbour's counts.

Owns the positions of counters, mirror and load, and the offsets that nobody will ever count. Invariant: a position never goes
back, so a parcel that a tier has passed stays passed. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.audit.latency import SourcePartition
from headrace.audit.ledger.accounts import CLOCK_SKEW_MS
from headrace.audit.ledger.coverage import Coverage, Uncounted
from headrace.audit.ledger.passings import Passings
from headrace.audit.parcels import Counter, Parcel, Tier
from headrace.audit.period import BEGIN_MS
from headrace.audit.records import Counted


@dataclass(slots=True)
class Reach:
    """See the module's text."""

    coverage: dict[Counter, Coverage] = field(default_factory=dict)
    places: dict[tuple[str, str], set[SourcePartition]] = field(default_factory=dict)
    """The partitions of each (datacenter, topic) that are counted in any tier."""
    removed: dict[Counter, int] = field(default_factory=dict)
    """Offsets without any record, of what is folded."""
    whole_at: dict[tuple[str, str], int] = field(default_factory=dict)
    """By (datacenter, topic): the live log's ends at this time are counted."""
    passed_over: dict[SourcePartition, set[tuple[int, int]]] = field(default_factory=dict)
    """Offsets [first, next) that the mirror says will never be in the copy."""
    loaded: dict[SourcePartition, int] = field(default_factory=dict)
    """The offset up to which the warehouse holds a partition, or passed it over."""
    passings: Passings = field(default_factory=Passings)

    def note(self, place: SourcePartition) -> None:
        """Remember a partition that is counted somewhere."""
        self.places.setdefault((place.datacenter, place.topic), set()).add(place)

    def position(self, tier: Tier, place: SourcePartition) -> int:
        """Return the offset up to which a partition is counted in a tier; -1 where nothing is."""
        if tier == "warehouse":
            return self.loaded.get(place, -1)
        coverage = self.coverage.get(Counter(tier, place))
        position = coverage.position if coverage is not None else -1
        for first, following in sorted(self.passed_over.get(place, ())) if tier == "offline" else ():
            # What the mirror passed over at the copy's end never comes.
            position = following if position == first else position
        return position

    def has_passed(self, tier: Tier, counter: Counter, parcel: Parcel) -> bool:
        """Whether a tier is counted beyond a neighbour's parcel.

        Where the live log's ends were counted later than the offline parcel, the live log has nothing beyond them.
        """
        if self.position(tier, counter.place) >= parcel.next:
            return True
        if (tier, counter.tier) == ("warehouse", "offline"):
            return self.passings.is_of_former_life(counter.place, parcel.at_ms)
        if (tier, counter.tier) != ("live", "offline"):
            return False
        whole_at = self.whole_at.get((counter.place.datacenter, counter.place.topic), 0)
        return whole_at > parcel.at_ms + CLOCK_SKEW_MS

    def is_judged(self, tier: Tier, counter: Counter, parcel: Parcel) -> bool:
        """Whether a tier counted all of a neighbour's parcel, so that what is missing there was lost or doubled."""
        return self.has_passed(tier, counter, parcel) and self.is_whole(tier, counter, parcel)

    def is_whole(self, tier: Tier, counter: Counter, parcel: Parcel) -> bool:
        """Whether a tier that has passed a neighbour's parcel counted all of it."""
        if counter.place in self.passings.renewed and "warehouse" in (tier, counter.tier):
            return False
        return not self._has_hole(tier, counter.place, parcel.first, parcel.next)

    def is_counted(self, tier: Tier, place: SourcePartition, first: int, following: int) -> bool:
        """Whether a tier counted all of these offsets."""
        is_reached = first >= following or self.position(tier, place) >= following
        return is_reached and not self._has_hole(tier, place, first, following)

    def _has_hole(self, tier: Tier, place: SourcePartition, first: int, following: int) -> bool:
        return any(hole.overlaps(first, following) for hole in self._holes(Counter(tier, place)))

    def live_positions(self, datacenter: str, topic: str) -> dict[int, int]:
        """Return how far each partition of a topic is counted in its live cluster."""
        return {
            place.partition: self.position("live", place)
            for place in self.places.get((datacenter, topic), ())
            if Counter("live", place) in self.coverage
        }

    def removed_offsets(self, tier: Tier, datacenter: str, topic: str) -> int:
        """Return how many of a topic's counted offsets have no record in a tier, but for those that the mirror passed over."""
        counters = [Counter(tier, place) for place in self.places.get((datacenter, topic), ())]
        return sum(
            self.removed.get(counter, 0)
            + sum(link.removed for link in coverage.chain if isinstance(link, Counted))
            - (self._passed_over_below(counter.place, coverage.position) if tier == "offline" else 0)
            for counter in counters
            if (coverage := self.coverage.get(counter)) is not None
        )

    def _passed_over_below(self, place: SourcePartition, position: int) -> int:
        spans = self.passed_over.get(place, ())
        return sum(following - first for first, following in spans if following <= position)

    def _holes(self, counter: Counter) -> Iterator[Uncounted]:
        """Yield what a tier never counted, but for rot that the mirror passed over: what is missing of that is lost."""
        coverage = self.coverage.get(counter)
        if coverage is None or not coverage.has_uncounted:
            return
        passed_over = self.passed_over.get(counter.place, ())
        for hole in coverage.uncounted():
            if (hole.first, hole.next) not in passed_over:
                yield hole

    def unseen_until(self, datacenter: str, topic: str) -> int:
        """Return when the last of a topic's offsets was written that the live tier never counted."""
        holes = (
            hole
            for place in self.places.get((datacenter, topic), ())
            for hole in self._holes(Counter("live", place))
        )
        return max((hole.until_ms for hole in holes), default=BEGIN_MS)
