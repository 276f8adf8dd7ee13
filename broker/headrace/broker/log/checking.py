"""Checking a segment that lies on a disk, all of it, without changing anything.

Holes between batches are no finding: compaction leaves them, and copies of a mirror have those of their source. Must not
know: which segments there are, and whether a broker is appending to this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from headrace.broker.log.soundness import Bytes, after_damage, check_batch
from headrace.broker.wire.batches import BatchHeader


class Damage(NamedTuple):
    """`size` bytes at `position` that are no sound batch; `offset` is the first that they hide."""

    position: int
    size: int
    offset: int
    reason: str


@dataclass(slots=True)
class SegmentAtRest:
    """A segment's file of `size` bytes; `next_offset` is the offset after the last sound batch so far.

    `following_offset` is where the next segment begins, None of the last one; below `synced_offset` all is on the disk.
    """

    base_offset: int
    size: int
    log: Bytes
    following_offset: int | None
    synced_offset: int
    next_offset: int

    @property
    def may_end(self) -> bool:
        """Whether what follows may be a batch that is being written, or room for those to come."""
        return self.following_offset is None and self.next_offset >= self.synced_offset


def damages(segment: SegmentAtRest) -> Iterator[Damage]:
    """Every stretch of bad bytes, in order; it ends with the first that the disk cannot read."""
    position, damage_end = 0, -1
    try:
        while position < segment.size:
            header, problem = check_batch(segment, position)
            if header is not None and problem is None and position != damage_end:
                problem = _displacement(segment, position, header)
            if header is not None and problem is None:
                segment.next_offset, position = header.next_offset, position + header.size
                continue
            following = after_damage(segment, position, header)
            if following is None and segment.may_end:
                return
            damage_end = segment.size if following is None else following
            yield Damage(position, damage_end - position, segment.next_offset, problem or "")
            position = damage_end
    except OSError as error:
        reason = f"the rest cannot be read: {error.strerror or error}"
        yield Damage(position, segment.size - position, segment.next_offset, reason)


def _displacement(segment: SegmentAtRest, position: int, header: BatchHeader) -> str | None:
    """What is wrong with the base offset of a sound batch, which no checksum covers: what follows lies below it."""
    if header.base_offset == segment.next_offset:
        return None
    end, following_offset = position + header.size, segment.following_offset
    if end < segment.size:
        following, problem = check_batch(segment, end)
        following_offset = following.base_offset if following is not None and problem is None else None
    if following_offset is None or header.last_offset < following_offset:
        return None
    return f"the base offset {header.base_offset} is not where it belongs"
