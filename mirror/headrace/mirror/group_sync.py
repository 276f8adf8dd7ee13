"""Where the groups of a source would go on in its copies: their committed offsets, clamped to what the copies hold. Pure.

A group of the offline cluster that has members is left alone, and none is ever moved back: it may have read on here already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.broker.wire.partitions import PartitionKey

Offsets = Mapping[PartitionKey, int]
IDLE_STATES = frozenset({"Empty", "Dead", ""})
"""Of groups without members; the last is of one that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Of one source: its name, and where each partition of its copies begins and ends, by the copy's topic."""

    source: str
    starts: Offsets
    ends: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove:
    """One group: `offsets` to commit, by the copy's partition.

    `not_yet` counts committed messages that are not in the copy yet and would be read twice, `lost` those that the copy's
    retention took before the group read them. `refusal` says why it is left alone.
    """

    group: str
    offsets: Mapping[PartitionKey, int]
    not_yet: int = 0
    lost: int = 0
    refusal: str = ""


def group_move(group: str, committed: Offsets, copies: Copies, *, state: str, here: Offsets) -> GroupMove:
    """What to commit for a group; `state` and `here` are its state and its committed offsets in the offline cluster."""
    if state not in IDLE_STATES:
        return GroupMove(
            group=group, offsets={}, refusal=f"it has members in the offline cluster (it is {state})"
        )
    offsets: dict[PartitionKey, int] = {}
    not_yet = lost = 0
    for (topic, partition), offset in sorted(committed.items()):
        place = f"{copies.source}.{topic}", partition
        if offset < 0 or place not in copies.starts or place not in copies.ends:
            continue
        start, end = copies.starts[place], copies.ends[place]
        wanted = max(start, min(offset, end))
        if wanted <= here.get(place, -1):
            continue
        offsets[place] = wanted
        not_yet += max(0, offset - end)
        lost += max(0, start - offset)
    return GroupMove(group=group, offsets=offsets, not_yet=not_yet, lost=lost)
