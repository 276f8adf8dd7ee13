"""What a tier was seen to hold, as pure values: runs of sequences, tallies by producer and window, and their arithmetic.

A run is a first and a last sequence (inclusive); runs of one tally may overlap, and a sequence is there as often as runs
hold it. `Depth` is the same as a step function over sequences, in which adding and comparing tiers is cheap whatever the
number of events. Pure: numpy, no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul, sub
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


Column = tuple[int, ...] | Int64s
SMALL_STEPS: Final = 32
"""Steps up to which plain numbers are quicker than arrays; most streams have two."""


@dataclass(frozen=True, slots=True, eq=False)
class Depth:
    """Copies of each sequence: `copies[i]` of those from `edges[i]` up to before `edges[i + 1]`, none outside.

    Each step changes something. Both are tuples up to `SMALL_STEPS` steps, and arrays beyond.
    """

    edges: Column
    copies: Column

    @property
    def is_small(self) -> bool:
        return type(self.edges) is tuple

    @property
    def count(self) -> int:
        """All copies together."""
        if not len(self.edges):
            return 0
        if self.is_small:
            return sum(map(mul, self.copies, map(sub, self.edges[1:], self.edges)))
        return int(np.dot(self.copies[:-1], np.diff(self.edges)))

    @property
    def first(self) -> int:
        """The lowest sequence; only where there is one."""
        return int(self.edges[0])

    def runs(self) -> list[Run]:
        """Return maximal runs with equal numbers of copies, in ascending order."""
        edges, copies = self._lists()
        return [
            Run(*item)
            for item in zip(edges, [edge - 1 for edge in edges[1:]], copies, strict=False)
            if item[2]
        ]

    def as_json(self) -> list[list[int]]:
        return [*self._lists()]

    def _lists(self) -> tuple[list[int], list[int]]:
        return np.asarray(self.edges).tolist(), np.asarray(self.copies).tolist()


def runs_in(found: Depth) -> Int64s:
    """Return its runs of sequences, whatever the number of their copies."""
    return np.array([run[:2] for run in found.runs()], dtype=np.int64).reshape(-1, 2)


def depth_from_json(fields: Any) -> Depth:
    edges, copies = fields
    return _made(edges, copies)


EMPTY: Final = Depth((), ())


def depth(runs: Int64s) -> Depth:
    """Return how often the runs hold each sequence."""
    if 2 * len(runs) <= SMALL_STEPS:
        steps: dict[int, int] = {}
        for first, last in runs.tolist():
            steps[first] = steps.get(first, 0) + 1
            steps[last + 1] = steps.get(last + 1, 0) - 1
        return _stepped(steps)
    changes = np.repeat(np.array([1, -1], dtype=np.int64), len(runs))
    return _accumulated(np.concatenate((runs[:, 0], runs[:, 1] + 1)), changes)


def total(depths: Iterable[Depth]) -> Depth:
    """Return all copies of all depths together."""
    members = [item for item in depths if len(item.edges)]
    if len(members) <= 1:
        return members[0] if members else EMPTY
    if all(item.is_small for item in members):
        steps: dict[int, int] = {}
        for item in members:
            before = 0
            for edge, copies in zip(item.edges, item.copies, strict=True):
                steps[edge] = steps.get(edge, 0) + copies - before
                before = copies
        return _stepped(steps)
    columns = [_arrays(item) for item in members]
    return _accumulated(
        np.concatenate([edges for edges, _ in columns]),
        np.concatenate([_changes(copies) for _, copies in columns]),
    )


def is_same(left: Depth, right: Depth) -> bool:
    """Whether both hold the same sequences as often."""
    if left.is_small and right.is_small:
        return left.edges == right.edges and left.copies == right.copies
    return np.array_equal(left.edges, right.edges) and np.array_equal(left.copies, right.copies)


def excess(left: Depth, right: Depth) -> Depth:
    """Return the copies that left has more than right."""
    if not len(left.edges) or not len(right.edges):
        return left
    if is_same(left, right):
        return EMPTY
    if left.is_small and right.is_small:
        return _merged(left, right, lambda ours, theirs: ours - theirs if ours > theirs else 0)
    (edges, copies), (further, less) = _arrays(left), _arrays(right)
    difference = _arrays(
        _accumulated(np.concatenate((edges, further)), np.concatenate((_changes(copies), -_changes(less))))
    )
    return _normal(difference[0], np.maximum(difference[1], 0))


def once(item: Depth) -> Depth:
    """Return each sequence that is there, once."""
    if item.is_small:
        if max(item.copies, default=0) <= 1:
            return item
        return _stepped_to(zip(item.edges, (min(copies, 1) for copies in item.copies), strict=True))
    edges, copies = _arrays(item)
    return item if copies.max() <= 1 else _normal(edges, np.minimum(copies, 1))


def within(item: Depth, mask: Depth) -> Depth:
    """Return the copies of those sequences that the mask holds."""
    if not len(item.edges) or not len(mask.edges):
        return EMPTY
    if len(mask.edges) == 2 and mask.edges[0] <= item.edges[0] and item.edges[-1] <= mask.edges[1]:
        return item
    if item.is_small and mask.is_small:
        return _merged(item, mask, lambda copies, held: copies if held else 0)
    edges = np.union1d(item.edges, mask.edges)
    return _normal(edges, np.where(_at(mask, edges) > 0, _at(item, edges), 0))


def without(item: Depth, mask: Depth) -> Depth:
    """Return the copies of those sequences that the mask does not hold."""
    return excess(item, within(item, mask))


def _made(edges: Sequence[int], copies: Sequence[int]) -> Depth:
    if len(edges) <= SMALL_STEPS:
        return Depth(tuple(edges), tuple(copies))
    return Depth(np.array(edges, dtype=np.int64), np.array(copies, dtype=np.int64))


def _stepped(steps: Mapping[int, int]) -> Depth:
    """Return the depth that changes by so much at these edges."""
    edges = sorted(steps)
    return _stepped_to(zip(edges, accumulate(map(steps.__getitem__, edges)), strict=True))


def _stepped_to(levels: Iterable[tuple[int, int]]) -> Depth:
    """Return the depth that has so many copies from each of these ascending edges on."""
    edges: list[int] = []
    found: list[int] = []
    before = 0
    for edge, copies in levels:
        if copies != before:
            edges.append(edge)
            found.append(copies)
            before = copies
    return _made(edges, found)


def _merged(left: Depth, right: Depth, rule: Callable[[int, int], int]) -> Depth:
    """Return what a rule makes of the copies of both, edge by edge."""
    ours, theirs = (dict(zip(item.edges, item.copies, strict=True)) for item in (left, right))
    levels: list[tuple[int, int]] = []
    here = there = 0
    for edge in sorted(ours.keys() | theirs.keys()):
        here, there = ours.get(edge, here), theirs.get(edge, there)
        levels.append((edge, rule(here, there)))
    return _stepped_to(levels)


def _arrays(item: Depth) -> tuple[Int64s, Int64s]:
    return np.asarray(item.edges, dtype=np.int64), np.asarray(item.copies, dtype=np.int64)


def _at(item: Depth, sequences: Int64s) -> Int64s:
    """Return the copies of each sequence."""
    edges, copies = _arrays(item)
    found = np.searchsorted(edges, sequences, side="right")
    return np.concatenate((np.zeros(1, dtype=np.int64), copies))[found]


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
    edges, copies = edges[changes], copies[changes]
    return _made(edges.tolist(), copies.tolist()) if len(edges) <= SMALL_STEPS else Depth(edges, copies)


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
