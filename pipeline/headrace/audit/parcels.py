"""What is counted of a partition in a tier, in parcels: the ledger keeps them until the neighbours have passed.

Owns the tiers, which of them are neighbours, and how parcels are made and joined. Pure. What becomes of a parcel is
`ledger`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np

from headrace.audit.latency import SourcePartition
from headrace.audit.windows import EMPTY, Depth, Int64s, Tally, depth, total
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.avro_schemas import REJECTED_SUFFIX
from headrace.load.tables import split_topic

Tier = Literal["live", "offline", "warehouse"]
TIERS: Final[tuple[Tier, ...]] = ("live", "offline", "warehouse")
COUNTED_TIERS: Final[tuple[Tier, ...]] = ("live", "offline")
"""The tiers that counters count; the warehouse is counted by the auditor itself."""


class Counter(NamedTuple):
    """One partition in one tier."""

    tier: Tier
    place: SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """Copies of each producer's sequences in offsets [first, next) of one partition."""

    first: int
    next: int
    copies: Mapping[str, Depth]
    at_ms: int = 0
    """The counter's clock when it counted; 0 where that does not matter."""


PlacedTallies = tuple[SourcePartition, int, int, tuple[Tally, ...]]
"""A partition, the offsets [first, next) of it, and their tallies."""


def neighbours(counter: Counter) -> tuple[Tier, ...]:
    """Return the tiers that a tier's counts are compared with; dead-letter topics are not loaded."""
    if counter.tier == "offline":
        return ("live",) if is_rejected(counter.place.topic) else ("live", "warehouse")
    return ("offline",)


def is_rejected(topic: str) -> bool:
    """Whether a topic is a dead-letter topic of lines that did not parse."""
    return topic.endswith(REJECTED_SUFFIX)


def copies_of(tallies: Iterable[Tally]) -> dict[str, Depth]:
    """Return each producer's copies."""
    runs: dict[str, list[Int64s]] = {}
    for item in tallies:
        runs.setdefault(item.producer, []).append(item.runs)
    return {producer: depth(np.concatenate(found)) for producer, found in runs.items()}


def joined_parcel(parcels: list[Parcel]) -> Parcel:
    producers = {producer for parcel in parcels for producer in parcel.copies}
    return Parcel(
        first=parcels[0].first,
        next=max(parcel.next for parcel in parcels),
        at_ms=max(parcel.at_ms for parcel in parcels),
        copies={
            producer: total(parcel.copies.get(producer, EMPTY) for parcel in parcels)
            for producer in producers
        },
    )


def place_of(partition: TopicPartition) -> SourcePartition:
    """Return the live partition that a partition of the offline cluster copies."""
    return SourcePartition(*split_topic(partition.topic), partition.partition)
