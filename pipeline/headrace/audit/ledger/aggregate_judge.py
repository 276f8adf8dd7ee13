"""One partition of an aggregate topic is compared with the same partition of one live datacenter.

Owns the rules. An aggregate has offsets of its own, so they say nothing; but of each source's partition it has all messages in
the order of the source:
- live ranges before the last one of which something arrived are passed: what is missing of them is lost. What is missing of
  that one and of later ones is on its way;
- ranges before the first one of which something arrived are not judged, and what is missing of that one is unknown: the
  aggregate may have begun there;
- an event that both have, the aggregate more often, is doubled once the live log is known to be counted beyond it;
- a further copy of an event that is settled is doubled; one that no count of the live cluster tells of is unknown.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.audit.parcels import Parcel
from headrace.audit.windows import EMPTY, Depth, excess, once, total, within, without

Copies = dict[str, Depth]
"""By producer."""


class Source(NamedTuple):
    """A datacenter's partition: its counted ranges in order, and whether earlier ones of them arrived and are forgotten."""

    parcels: Sequence[Parcel]
    has_begun: bool
    whole_until_ms: int
    """What the aggregate's counter counted before this time, the live log is counted beyond."""


@dataclass(slots=True)
class AggregateJudged:
    """By producer. `passed`: how many of the live ranges are judged for good."""

    passed: int = 0
    is_part: bool = False
    """Whether anything of this datacenter arrived."""
    live: Copies = field(default_factory=dict)
    """What is compared."""
    arrived: Copies = field(default_factory=dict)
    lost: Copies = field(default_factory=dict)
    doubled: Copies = field(default_factory=dict)
    under_way: Copies = field(default_factory=dict)
    unknown: Copies = field(default_factory=dict)

    def of(self, chosen: Callable[[Copies], Copies]) -> AggregateJudged:
        """Return the same of what is chosen of each kind of copies."""
        return AggregateJudged(
            self.passed,
            self.is_part,
            chosen(self.live),
            chosen(self.arrived),
            chosen(self.lost),
            chosen(self.doubled),
            chosen(self.under_way),
            chosen(self.unknown),
        )


def judge_source(
    source: Source, aggregate: Sequence[Parcel], settled: Mapping[str, Depth]
) -> AggregateJudged:
    """Compare; `aggregate` are its ranges, of which the producers of this datacenter matter alone."""
    producers = {name for parcel in source.parcels for name in parcel.copies} | settled.keys()
    arrived = copies_in(aggregate, producers)
    seen = _seen(source.parcels, arrived)
    judged = AggregateJudged(is_part=source.has_begun or bool(seen), arrived=arrived)
    if not judged.is_part:
        return judged
    begin, first = (0, 0) if source.has_begun else (seen[0], seen[0] + 1)
    judged.passed = seen[-1] if seen else 0
    known = copies_in(source.parcels, producers)
    judged.live = copies_in(source.parcels[begin:], producers)
    expected = copies_in(source.parcels[first : max(first, judged.passed)], producers)
    moving = copies_in(source.parcels[max(first, judged.passed) :], producers)
    past = copies_in([item for item in aggregate if item.at_ms < source.whole_until_ms], producers)
    for name in producers:
        here, there = judged.live.get(name, EMPTY), arrived.get(name, EMPTY)
        _put(judged.lost, name, excess(expected.get(name, EMPTY), there))
        missing = excess(excess(here, there), judged.lost.get(name, EMPTY))
        waiting = within(missing, moving.get(name, EMPTY))
        _put(judged.under_way, name, waiting)
        surplus = excess(there, known.get(name, EMPTY))
        again = within(surplus, settled.get(name, EMPTY))
        shared = within(excess(past.get(name, EMPTY), known.get(name, EMPTY)), known.get(name, EMPTY))
        _put(judged.doubled, name, total((again, without(shared, again))))
        early = excess(surplus, judged.doubled.get(name, EMPTY))
        _put(judged.unknown, name, total((early, excess(missing, waiting))))
    return judged


def copies_in(parcels: Sequence[Parcel], producers: set[str]) -> Copies:
    """Return the copies of some producers in ranges together."""
    found: dict[str, list[Depth]] = {}
    for parcel in parcels:
        for name in parcel.copies.keys() & producers:
            found.setdefault(name, []).append(parcel.copies[name])
    return {name: total(items) for name, items in found.items()}


def _seen(parcels: Sequence[Parcel], arrived: Mapping[str, Depth]) -> list[int]:
    """Return the indexes of the ranges of which something arrived, by events that no other range has."""
    everything = copies_in(parcels, {name for parcel in parcels for name in parcel.copies})
    telling = {}
    for name, copies in everything.items():
        several = once(excess(copies, once(copies)))
        telling[name] = without(within(arrived.get(name, EMPTY), copies), several)
    return [
        at
        for at, parcel in enumerate(parcels)
        if any(within(telling[name], copies).count for name, copies in parcel.copies.items())
    ]


def _put(copies: Copies, name: str, found: Depth) -> None:
    if found.count:
        copies[name] = found
