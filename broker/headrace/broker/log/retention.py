"""Which segments retention takes away. Pure: facts about segments, a policy and the time in, a list of reasons out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SegmentFacts(NamedTuple):
    """One segment as retention sees it; `timestamp_ms` is its largest, or its file's age without timestamps."""

    base_offset: int
    next_offset: int
    size: int
    timestamp_ms: int


def retired(
    segments: Sequence[SegmentFacts],
    *,
    retention_ms: int,
    retention_bytes: int,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[str]:
    """Why each of the first segments goes, oldest first, one reason a segment; the rest stay.

    -1 switches a bound off. A segment goes only when all of it lies below the high watermark.
    """
    reasons: list[str] = []
    excess = sum(segment.size for segment in segments) - retention_bytes if retention_bytes >= 0 else -1
    for segment in segments:
        if segment.next_offset > high_watermark:
            break
        reason = None
        if segment.next_offset <= log_start_offset:
            reason = f"it ends at or below the log start offset {log_start_offset}"
        elif retention_ms >= 0 and now_ms - segment.timestamp_ms > retention_ms:
            reason = f"its newest record is older than retention.ms={retention_ms}"
        elif excess >= segment.size > 0:
            reason = f"the log is larger than retention.bytes={retention_bytes}"
        if reason is None:
            break
        excess -= segment.size
        reasons.append(reason)
    return reasons
