"""Whether a log is still the one that a position was read from: a pure comparison.

Owns the fence of a position: the last batch that was read below it, by its leader epoch, its offsets and its checksum. A
log that lost its end and grew past the position again, in the same leader epoch or another, has another batch there.
Invariants: a log that only grew, lost its beginning or was compacted never differs; where the batch itself is gone or was
rewritten by compaction, the leader epochs are all that is left to compare (KIP-101, KIP-320), which does not see a log
that was cut and grew again within one leader epoch. Must not know sockets, tables or clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from headrace.broker.wire.batches import BatchHeader

Comparison = Literal["same", "cleaned", "other"]
NO_EPOCH: Final = -1


class Fence(NamedTuple):
    """The last batch below a position, which may lie inside it."""

    leader_epoch: int
    base_offset: int
    next_offset: int
    crc: int


class EpochEnd(NamedTuple):
    """What a leader says of an epoch: the newest one it knows up to the one asked for, and where that ends; -1: none."""

    leader_epoch: int
    end_offset: int


def fence_of(header: BatchHeader) -> Fence:
    return Fence(header.leader_epoch, header.base_offset, header.next_offset, header.crc)


def fence_at(headers: Sequence[BatchHeader], position: int) -> Fence | None:
    """Return the fence of a position among batches in the order of offsets; None when all of them lie beyond it."""
    last = next((header for header in reversed(headers) if header.base_offset < position), None)
    return None if last is None else fence_of(last)


def compare(fence: Fence, found: BatchHeader) -> Comparison:
    """Compare the fence with the first batch that the log has from the fence's base offset on.

    Compaction keeps a batch's offsets and epoch, and leaves fewer records than offsets or a delete horizon (KIP-534);
    an appended batch has neither. Or it removes the whole batch.
    """
    if found.base_offset >= fence.next_offset:
        return "cleaned"
    if fence_of(found) == fence:
        return "same"
    is_rewritten = found.record_count <= found.last_offset_delta or found.delete_horizon_ms is not None
    is_in_place = fence_of(found)[:3] == fence[:3]
    return "cleaned" if is_rewritten and is_in_place else "other"


def has_epoch_until(fence: Fence, position: int, told: EpochEnd) -> bool:
    """Whether the fence's epoch, by what the leader says of it, does not end below the position."""
    if fence.leader_epoch == NO_EPOCH:
        return True
    return told.end_offset >= position
