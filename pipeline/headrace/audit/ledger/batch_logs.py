"""One partition in one cluster, by what counters say of its batch headers: sums of open blocks, gaps, sequences that break off.

Owns what a counted range adds. A range of which nobody read the headers is a hole, behind which no sequence is expected. Pure.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.audit.batch_counts import BLOCK_SIZE, SEQUENCES, BatchCounts, SequenceRun, Sums
from headrace.audit.ledger.coverage import Link
from headrace.audit.records import Counted

PRODUCERS_MAX: Final = 10_000
"""Idempotent producers of a partition whose next sequence is remembered, the last ones."""
FAULTS_MAX: Final = 1_000
"""Sequences of a partition that break off or come again, and are named; the youngest ones."""


class SequenceFault(NamedTuple):
    """An idempotent producer's sequences: `missing` ones before an offset, or (`is_repeat`) as many there once more."""

    is_repeat: bool
    producer_id: int
    epoch: int
    first: int
    missing: int
    offset: int
    window_start: int


class Next(NamedTuple):
    """What an idempotent producer's next batch begins with."""

    epoch: int
    sequence: int


@dataclass(slots=True)
class BatchLog:
    """See the module's text; ranges come in the order of their offsets, each where the one before ends."""

    position: int = -1
    holes: list[tuple[int, int]] = field(default_factory=list)
    """Offsets [first, next) of which no headers were read."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Offsets first to last that no batch has."""
    blocks: dict[int, dict[int, Sums]] = field(default_factory=dict)
    """By block and window."""
    producers: MutableMapping[int, Next] = field(default_factory=dict)
    faults: list[SequenceFault] = field(default_factory=list)
    is_compacted: bool = False
    messages: int = 0
    """In all ranges so far, but for those of aborted transactions."""
    missing: int = 0
    """Messages so far that idempotent producers' sequences miss, less those that are there once more."""
    is_whole: bool = True
    """Whether the headers of all offsets were read, from the first one on."""

    def take(self, link: Link) -> None:
        if self.position < 0:
            self._add_hole(0, link.first)
        self.position = link.next
        if not isinstance(link, Counted) or link.batches is None:
            self._add_hole(link.first, link.next)
            self.producers = {}
            return
        self.is_compacted |= link.is_compacted
        self._add(link.batches)

    def followed(self) -> BatchLog:
        """Return a copy that further ranges can be given to."""
        return BatchLog(
            position=self.position,
            holes=list(self.holes),
            gaps=list(self.gaps),
            blocks={block: dict(windows) for block, windows in self.blocks.items()},
            producers=ChainMap({}, self.producers),
            is_compacted=self.is_compacted,
            messages=self.messages,
            missing=self.missing,
            is_whole=self.is_whole,
        )

    def forget_producers(self) -> None:
        """Forget those that were seen longest ago."""
        for producer in list(self.producers)[:-PRODUCERS_MAX]:
            del self.producers[producer]

    def forget_below(self, offset: int) -> None:
        """Forget the blocks that end no later than an offset at the beginning of a block."""
        self.blocks = {block: sums for block, sums in self.blocks.items() if block * BLOCK_SIZE >= offset}
        self.holes = [
            (max(first, offset), following) for first, following in self.holes if following > offset
        ]
        self.gaps = [(max(first, offset), last) for first, last in self.gaps if last >= offset]

    def _add(self, found: BatchCounts) -> None:
        for block, window_start, sums in found.entries:
            windows = self.blocks.setdefault(block, {})
            windows[window_start] = windows.get(window_start, Sums()).plus(sums)
            self.messages += sums.messages
        self.gaps += found.gaps
        for run in found.runs:
            self._follow(run)

    def _follow(self, run: SequenceRun) -> None:
        before = self.producers.get(run.producer_id)
        if before is not None and before.epoch == run.epoch and before.sequence != run.first:
            missing = (run.first - before.sequence) % SEQUENCES
            if not self.is_compacted:
                fault = _fault(run, before, missing)
                self.missing += -fault.missing if fault.is_repeat else fault.missing
                self.faults.append(fault)
                del self.faults[:-FAULTS_MAX]
        self.producers.pop(run.producer_id, None)
        self.producers[run.producer_id] = Next(run.epoch, (run.last + 1) % SEQUENCES)

    def _add_hole(self, first: int, following: int) -> None:
        if self.holes and self.holes[-1][1] == first:
            first = self.holes.pop()[0]
        if first < following:
            self.holes.append((first, following))
            self.is_whole = False


def _fault(run: SequenceRun, before: Next, missing: int) -> SequenceFault:
    """Return what is between two runs of one producer: what lies nearer, a gap or a repetition."""
    is_repeat = missing > SEQUENCES // 2
    again = min(SEQUENCES - missing, (run.last - run.first) % SEQUENCES + 1)
    return SequenceFault(
        is_repeat=is_repeat,
        producer_id=run.producer_id,
        epoch=run.epoch,
        first=run.first if is_repeat else before.sequence,
        missing=again if is_repeat else missing,
        offset=run.offset,
        window_start=run.window_start,
    )


def clipped(spans: list[tuple[int, int]], first: int, following: int) -> list[tuple[int, int]]:
    """Return what of spans [first, next) lies within another."""
    return [
        (max(begin, first), min(end, following)) for begin, end in spans if begin < following and end > first
    ]
