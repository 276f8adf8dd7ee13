"""What changed since the ledger was last folded, and since it was last judged: a round touches nothing else. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from headrace.audit.latency import SourcePartition
from headrace.audit.parcels import Counter, Parcel
from headrace.audit.windows import Stream

OpenParcels = Callable[[Iterable[SourcePartition]], Iterable[tuple[Counter, Parcel]]]


@dataclass(slots=True)
class Changes:
    """`streams`, `topics` and `judged_places` are of those not judged since; `is_all`: nothing is known to be as it was."""

    is_all: bool = True
    streams: set[Stream] = field(default_factory=set)
    topics: set[tuple[str, str]] = field(default_factory=set)
    places: set[SourcePartition] = field(default_factory=set)
    """Those that were not folded since."""
    judged_places: set[SourcePartition] = field(default_factory=set)

    def note(self, place: SourcePartition) -> None:
        """Something is counted further, or was passed over: what lies there means something else to its neighbours."""
        self.places.add(place)
        self.judged_places.add(place)

    def taken_places(self) -> set[SourcePartition]:
        """Return the partitions that changed since they were last folded."""
        found, self.places = self.places, set()
        return found

    def taken(
        self, judged_anew: OpenParcels, streams: Callable[[tuple[str, str]], set[Stream]]
    ) -> set[Stream] | None:
        """Return the streams that changed since this was last asked; None: all may have."""
        is_all, found = self.is_all, self.streams
        if not is_all:
            for counter, parcel in judged_anew(self.judged_places):
                found |= {
                    Stream(counter.place.datacenter, counter.place.topic, producer)
                    for producer in parcel.copies
                }
            for topic in self.topics:
                found |= streams(topic)
        self.is_all, self.streams, self.topics, self.judged_places = False, set(), set(), set()
        return None if is_all else found
