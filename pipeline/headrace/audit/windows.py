"""What a tier was seen to hold, as pure values: runs of sequences, tallies by producer and window, and their arithmetic.

A run is a first and a last sequence (inclusive); runs of one tally may overlap, and a sequence is there as often as runs
hold it. `Depth` is the same as a step function over sequences, in which adding and comparing tiers is cheap whatever the
number of events. Pure: numpy, no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from headrace.events.fingerprint_columns import fingerprint_sum

Key = TypeVar("Key")
Int64s = npt.NDArray[np.int64]
RUNS_OF_WINDOW_MAX: Final = 8
"""Runs of sequences that are remembered of a window; beyond it those are joined that lie nearest."""
WINDOW_SIZE_MS: Final = 10_000
SEQUENCES_OF_RUNS_MAX: Final = 50_000_000
"""Bound of the sequences that the runs of one record may claim, so that a forged one costs no memory."""


AGAIN: Final = "\tagain"
"""Behind a producer's name: its stream of further copies of events that were settled."""


class Stream(NamedTuple):
    """Sequences are counted from 0 by producer and topic."""

    datacenter: str
    topic: str
    producer: str

    @property
    def is_again(self) -> bool:
        return self.producer.endswith(AGAIN)

    @property
    def producer_name(self) -> str:
        """The producer, of whatever copies."""
        return self.producer.removesuffix(AGAIN)


class ProducerName(NamedTuple):
    """Where a producer runs, which says more to people than its uuid; its process is known from its accounts alone."""

    server: str
    service: str
    host: str = ""
    pid: int = 0
    started_ms: int = 0


class Run(NamedTuple):
    """Sequences first to last, each `copies` times."""

    first: int
    last: int
    copies: int

    @property
    def total(self) -> int:
        return (self.last - self.first + 1) * self.copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Events of one producer and event-time window."""

    producer: str
    window_start: int
    count: int
    fingerprint: int
    runs: Int64s
    """Shape (n, 2): first and last sequence of each run."""

    @property
    def is_sound(self) -> bool:
        """Whether count and fingerprint are those of the runs: a tally that is not is no evidence of anything."""
        sizes = self.runs[:, 1] - self.runs[:, 0] + 1
        # Bounded one by one first, so that no sum of forged ones overflows.
        if len(sizes) and (self.runs.min() < 0 or sizes.min() < 1 or sizes.max() > SEQUENCES_OF_RUNS_MAX):
            return False
        if int(sizes.sum()) != self.count or self.count > SEQUENCES_OF_RUNS_MAX:
            return False
        return fingerprint_sum(self.producer, expand(self.runs)) == self.fingerprint


def expand(runs: Int64s) -> Int64s:
    """Return every sequence of the runs, as often as they hold it."""
    sizes = runs[:, 1] - runs[:, 0] + 1
    begins = np.concatenate(([0], np.cumsum(sizes)[:-1])) if len(sizes) else sizes
    return np.arange(int(sizes.sum()), dtype=np.int64) + np.repeat(runs[:, 0] - begins, sizes)


def runs_of(ordered: Int64s) -> Int64s:
    """Return the runs of ascending sequences; a sequence that is there twice is in two runs."""
    if not len(ordered):
        return np.empty((0, 2), dtype=np.int64)
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    return np.stack(
        (ordered[np.concatenate(([0], breaks + 1))], ordered[np.append(breaks, len(ordered) - 1)]), axis=1
    )


def joined(runs: Int64s, count_max: int) -> Int64s:
    """Return ascending runs that hold all these sequences: no more than the bound, joined where the gaps are smallest."""
    order = runs[np.argsort(runs[:, 0], kind="stable")]
    reached = np.maximum.accumulate(order[:, 1])
    gaps = order[1:, 0] - reached[:-1] - 1
    breaks = np.flatnonzero(gaps > 0)
    if len(breaks) >= count_max:
        widest = np.argsort(gaps[breaks], kind="stable")[len(breaks) - count_max + 1 :]
        breaks = np.sort(breaks[widest])
    firsts, lasts = order[np.concatenate(([0], breaks + 1)), 0], reached[np.append(breaks, len(order) - 1)]
    return np.stack((firsts, lasts), axis=1)


def tally(
    names: Sequence[str],
    producer: npt.NDArray[np.intp],
    time_ms: Int64s,
    sequence: Int64s,
    window_size_ms: int = WINDOW_SIZE_MS,
) -> list[Tally]:
    """Count events by producer and window; `producer` holds each event's index in `names`."""
    window = time_ms - time_ms % window_size_ms
    order = np.lexsort((sequence, window, producer))
    producer, window, sequence = producer[order], window[order], sequence[order]
    borders = np.flatnonzero((np.diff(producer) != 0) | (np.diff(window) != 0)) + 1
    tallies = []
    for begin, end in zip([0, *borders.tolist()], [*borders.tolist(), len(sequence)], strict=True):
        if begin == end:
            continue
        name, members = names[producer[begin]], sequence[begin:end]
        tallies.append(
            Tally(
                producer=name,
                window_start=int(window[begin]),
                count=end - begin,
                fingerprint=fingerprint_sum(name, members),
                runs=runs_of(members),
            )
        )
    return tallies


@dataclass(frozen=True, slots=True, eq=False)
class Depth:
    """Copies of each sequence: `copies[i]` of those from `edges[i]` up to before `edges[i + 1]`, none outside."""

    edges: Int64s
    copies: Int64s

    @property
    def count(self) -> int:
        """All copies together."""
        return int(np.dot(self.copies[:-1], np.diff(self.edges))) if len(self.edges) else 0

    @property
    def first(self) -> int:
        """The lowest sequence; only where there is one."""
        return int(self.edges[0])

    def runs(self) -> list[Run]:
        """Return maximal runs with equal numbers of copies, in ascending order."""
        return [
            Run(int(self.edges[at]), int(self.edges[at + 1]) - 1, int(self.copies[at]))
            for at in np.flatnonzero(self.copies)
        ]

    def as_json(self) -> list[list[int]]:
        return [self.edges.tolist(), self.copies.tolist()]


def runs_in(found: Depth) -> Int64s:
    """Return its runs of sequences, whatever the number of their copies."""
    return np.array([run[:2] for run in found.runs()], dtype=np.int64).reshape(-1, 2)


def depth_from_json(fields: Any) -> Depth:
    edges, copies = fields
    return Depth(np.array(edges, dtype=np.int64), np.array(copies, dtype=np.int64))


EMPTY: Final = Depth(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def depth(runs: Int64s) -> Depth:
    """Return how often the runs hold each sequence."""
    steps = np.repeat(np.array([1, -1], dtype=np.int64), len(runs))
    return _accumulated(np.concatenate((runs[:, 0], runs[:, 1] + 1)), steps)


def total(depths: Iterable[Depth]) -> Depth:
    """Return all copies of all depths together."""
    members = [item for item in depths if len(item.edges)]
    if len(members) <= 1:
        return members[0] if members else EMPTY
    return _accumulated(
        np.concatenate([item.edges for item in members]), np.concatenate([_steps(item) for item in members])
    )


def is_same(left: Depth, right: Depth) -> bool:
    """Whether both hold the same sequences as often."""
    return np.array_equal(left.edges, right.edges) and np.array_equal(left.copies, right.copies)


def excess(left: Depth, right: Depth) -> Depth:
    """Return the copies that left has more than right."""
    if not len(left.edges) or not len(right.edges):
        return left
    if is_same(left, right):
        return EMPTY
    difference = _accumulated(
        np.concatenate((left.edges, right.edges)), np.concatenate((_steps(left), -_steps(right)))
    )
    return _normal(difference.edges, np.maximum(difference.copies, 0))


def once(item: Depth) -> Depth:
    """Return each sequence that is there, once."""
    if not len(item.edges) or item.copies.max() <= 1:
        return item
    return _normal(item.edges, np.minimum(item.copies, 1))


def within(item: Depth, mask: Depth) -> Depth:
    """Return the copies of those sequences that the mask holds."""
    if not len(item.edges) or not len(mask.edges):
        return EMPTY
    if len(mask.edges) == 2 and mask.edges[0] <= item.edges[0] and item.edges[-1] <= mask.edges[1]:
        return item
    edges = np.union1d(item.edges, mask.edges)
    return _normal(edges, np.where(_at(mask, edges) > 0, _at(item, edges), 0))


def without(item: Depth, mask: Depth) -> Depth:
    """Return the copies of those sequences that the mask does not hold."""
    return excess(item, within(item, mask))


def _at(item: Depth, sequences: Int64s) -> Int64s:
    """Return the copies of each sequence."""
    found = np.searchsorted(item.edges, sequences, side="right")
    return np.concatenate((np.zeros(1, dtype=np.int64), item.copies))[found]


def _steps(item: Depth) -> Int64s:
    return _changes(item.copies)


def _accumulated(edges: Int64s, steps: Int64s) -> Depth:
    order = np.argsort(edges, kind="stable")
    edges = edges[order]
    copies = np.cumsum(steps[order])
    is_last = np.ones(len(edges), dtype=np.bool_)
    np.not_equal(edges[1:], edges[:-1], out=is_last[:-1])
    return _normal(edges[is_last], copies[is_last])


def _normal(edges: Int64s, copies: Int64s) -> Depth:
    """Leave out the edges at which nothing changes."""
    changes = _changes(copies) != 0
    return Depth(edges[changes], copies[changes])


def _changes(copies: Int64s) -> Int64s:
    """Return the difference of each element to the one before, of the first to 0."""
    changes = copies.copy()
    changes[1:] -= copies[:-1]
    return changes


def remove_from(copies: dict[Key, Depth], keys: Iterable[Key], found: Depth) -> None:
    """Take sequences out of what some keys of a mapping hold."""
    for key in keys:
        rest = without(copies.get(key, EMPTY), found)
        if len(rest.edges):
            copies[key] = rest
        else:
            copies.pop(key, None)
