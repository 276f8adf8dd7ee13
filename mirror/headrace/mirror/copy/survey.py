"""What a source's answer to a survey says of the copy: whether the copy's end is still where the source's log was. Pure.

Leader epochs: KIP-101, KIP-320. `request.log_end_offset` is where the copy ends.
"""

from __future__ import annotations

from headrace.mirror.questions import Survey, Surveyed


def truncation(request: Survey, found: Surveyed) -> tuple[tuple[int, int], str] | None:
    """The copied offsets that the source no longer has, and why; None when it has all of them."""
    end = request.log_end_offset
    if not (is_diverged(request, found) or is_cut(request, found) or is_other(request, found)):
        return None
    firsts = [found.log_end_offset, end - 1]
    reason = f"the source's log ends at {found.log_end_offset}, the copy at {end}"
    if is_diverged(request, found):
        firsts.append(found.epoch_end)
        reason += f"; leader epoch {request.epoch} was copied, the source has epoch {found.epoch} up to {found.epoch_end}"
    elif request.tail is not None and is_other(request, found):
        firsts.append(request.tail.base_offset)
        reason += f"; the batches at offset {request.tail.base_offset} differ, and maybe some before"
    return (min(firsts), end - 1), reason


def is_diverged(request: Survey, found: Surveyed) -> bool:
    """The source has other batches, or none, where the copy has its last ones."""
    return 0 <= found.epoch_end < request.log_end_offset


def is_cut(request: Survey, found: Surveyed) -> bool:
    """The source's log is shorter than the copy."""
    return found.log_end_offset < request.log_end_offset


def is_other(request: Survey, found: Surveyed) -> bool:
    """The source has another batch where the copy ends: it lost its tail and wrote on within one leader epoch."""
    own, there = request.tail, found.tail
    if own is None or there is None:
        return False
    return (own.base_offset, own.crc) != (there.base_offset, there.crc)
