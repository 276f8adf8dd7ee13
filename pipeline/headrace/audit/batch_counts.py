"""What the headers of a partition's batches say, counted: no record is unpacked, so that any client's topic can be compared.

Owns the sums by block of offsets and time window. A batch belongs to the block of its base offset, whole, and to the window of
its largest timestamp: of the times in a header that one alone says the same in a copy, in a compacted batch and where brokers
stamp the records. Blocks begin at the same offsets in every cluster, so that two clusters can be compared up to the end of a
block, however far each is counted beyond it. The checksum is the sum, modulo 2^64, of each batch's CRC32C times its odd place
(twice its base offset, and one): it does not depend on who counted which ranges, and each batch that changed or moved changes
it. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.audit.windows import Int64s
from headrace.broker.wire.batches import CONTROL_BIT, LENGTH_END, BatchHeader
from headrace.events.fingerprint import MASK
from headrace.load.header_table import table_of

BLOCK_SIZE: Final = 1000
"""Offsets of a block."""
SEQUENCES: Final = 1 << 31
"""Behind the last sequence of an idempotent producer comes 0 (KIP-98)."""
EPOCH_BITS: Final = 16
EPOCH_MASK: Final = (1 << EPOCH_BITS) - 1


class Sums(NamedTuple):
    """Of the batches of one block and window. Of what was aborted only `aborted` speaks; size and checksum are of all batches."""

    messages: int = 0
    size_bytes: int = 0
    checksum: int = 0
    control: int = 0
    """Control batches: the markers that end transactions."""
    aborted: int = 0
    """Messages of transactions that were aborted."""
    thinned: int = 0
    """Offsets within batches that have no record any more: compaction was there."""

    def plus(self, other: Sums) -> Sums:
        return Sums(
            self.messages + other.messages,
            self.size_bytes + other.size_bytes,
            (self.checksum + other.checksum) & MASK,
            self.control + other.control,
            self.aborted + other.aborted,
            self.thinned + other.thinned,
        )


class Entry(NamedTuple):
    """Offsets [block * BLOCK_SIZE, (block + 1) * BLOCK_SIZE), and the start of a window."""

    block: int
    window_start: int
    sums: Sums


class SequenceRun(NamedTuple):
    """Sequences first to last that an idempotent producer's batches have one after another, the first batch at an offset."""

    producer_id: int
    epoch: int
    first: int
    last: int
    offset: int
    window_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """Of all batches in a range of offsets; it begins and ends where batches do."""

    entries: tuple[Entry, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    """Offsets first to last that no batch has."""
    runs: tuple[SequenceRun, ...] = ()
    """By the offsets of their first batches."""

    @property
    def messages(self) -> int:
        return sum(item.sums.messages + item.sums.aborted for item in self.entries)


def census(
    headers: Sequence[BatchHeader], aborted: Collection[int], first: int, window_size_ms: int
) -> BatchCounts:
    """Count batches from the offset `first` on, in the order of their offsets; `aborted` has the base offsets of those that were.

    A batch that begins before it is not counted: whoever counted up to there has it.
    """
    columns: Any = table_of(headers).columns
    base_offset = columns.base_offset
    following = base_offset + columns.last_offset_delta + 1
    expected = np.maximum(first, np.concatenate(([first], following[:-1])))
    is_counted = base_offset >= first
    is_behind_gap = is_counted & (base_offset > expected)
    if not is_counted.all():
        columns = BatchHeader(*(column[is_counted] for column in columns))
    window_start = np.maximum(columns.max_timestamp - columns.max_timestamp % window_size_ms, 0)
    return BatchCounts(
        entries=_entries(columns, aborted, window_start),
        gaps=tuple(
            (begin, base - 1)
            for begin, base in zip(
                expected[is_behind_gap].tolist(),
                base_offset[is_behind_gap].tolist(),
                strict=True,
            )
        ),
        runs=_runs(columns, window_start),
    )


def _entries(columns: Any, aborted: Collection[int], window_start: Int64s) -> tuple[Entry, ...]:
    if not len(window_start):
        return ()
    block = columns.base_offset // BLOCK_SIZE
    is_control = columns.attributes & CONTROL_BIT != 0
    is_aborted = np.isin(columns.base_offset, list(aborted)) & ~is_control
    data = np.where(is_control, 0, columns.record_count)
    sums = (
        np.where(is_aborted, 0, data),
        columns.length + LENGTH_END,
        columns.crc * (2 * columns.base_offset + 1),
        is_control,
        np.where(is_aborted, data, 0),
        np.maximum(columns.last_offset_delta + 1 - columns.record_count, 0),
    )
    starts = np.flatnonzero(_borders(block, window_start))
    rows = np.stack(sums).astype(np.uint64)
    found: dict[tuple[int, int], Sums] = {}
    for place, row in zip(
        zip(block[starts].tolist(), window_start[starts].tolist(), strict=True),
        np.add.reduceat(rows, starts, axis=1).T.tolist(),
        strict=True,
    ):
        found[place] = found.get(place, Sums()).plus(Sums(*row))
    return tuple(Entry(*place, item) for place, item in found.items())


def _runs(columns: Any, window_start: Int64s) -> tuple[SequenceRun, ...]:
    numbered = np.flatnonzero(columns.base_sequence >= 0)
    if not len(numbered):
        return ()
    # Batches of many producers lie between each other; the order of one producer's stays.
    life = (columns.producer_id << EPOCH_BITS | columns.producer_epoch & EPOCH_MASK)[numbered]
    order = numbered[np.argsort(life, kind="stable")]
    producer, epoch = columns.producer_id[order], columns.producer_epoch[order]
    first = columns.base_sequence[order]
    last = (first + columns.last_offset_delta[order]) & (SEQUENCES - 1)
    is_start = _borders(producer, epoch)
    is_start[1:] |= first[1:] != (last[:-1] + 1) & (SEQUENCES - 1)
    starts = np.flatnonzero(is_start)
    ends = np.append(starts[1:], len(order)) - 1
    at = (producer[starts], epoch[starts], first[starts], last[ends])
    begin = order[starts]
    rows = np.stack((*at, columns.base_offset[begin], window_start[begin])).T
    return tuple(SequenceRun(*row) for row in rows[np.argsort(rows[:, 4])].tolist())


def _borders(*columns: Int64s) -> npt.NDArray[np.bool_]:
    """Return where another value begins in any of the columns."""
    found = np.ones(len(columns[0]), dtype=np.bool_)
    found[1:] = False
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def as_json(item: BatchCounts) -> dict[str, Any]:
    """Return counts as JSON types."""
    return {
        "entries": [[entry.block, entry.window_start, *entry.sums] for entry in item.entries],
        "gaps": [list(gap) for gap in item.gaps],
        "runs": [list(run) for run in item.runs],
    }


def from_json(fields: Any, first: int, following: int) -> BatchCounts:
    """Undo `as_json` for the offsets [first, following); raises ValueError for what cannot be of these."""
    found = BatchCounts(
        entries=tuple(
            Entry(int(block), int(start), Sums(*map(int, sums))) for block, start, *sums in fields["entries"]
        ),
        gaps=tuple((int(begin), int(end)) for begin, end in fields["gaps"]),
        runs=tuple(SequenceRun(*map(int, run)) for run in fields["runs"]),
    )
    blocks = range(first // BLOCK_SIZE, (following - 1) // BLOCK_SIZE + 1)
    for entry in found.entries:
        if entry.block not in blocks or min(entry.sums) < 0 or not 0 <= entry.window_start < 1 << 63:
            raise ValueError(f"batches of block {entry.block} among offsets {first} to {following - 1}")
    for begin, end in found.gaps:
        if not first <= begin <= end < following:
            raise ValueError(f"no batch at offsets {begin} to {end}, of {first} to {following - 1}")
    for run in found.runs:
        if not (0 <= run.first < SEQUENCES and 0 <= run.last < SEQUENCES and first <= run.offset < following):
            raise ValueError(f"a run of sequences {run.first} to {run.last} at offset {run.offset}")
    return found
