"""Where the groups of a source would go on in its copies: their committed offsets, clamped to what the copies hold. Pure.

A group of the offline cluster that has members is left alone, and so is one that committed here itself: it reads on from there,
and its namesake at the source may be elsewhere. What was brought here is known by its metadata. None is ever moved back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror.names import CopyNames

Offsets = Mapping[PartitionKey, int]
METADATA = "headrace.mirror"
"""Of each offset that was brought here."""
IDLE_STATES = frozenset({"Empty", "Dead", ""})
"""Of groups without members; the last is of one that is not known."""


class Committed(NamedTuple):
    """A group's offset in a partition, with what who committed it wrote beside."""

    offset: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Of one source: its name, where each partition of its copies begins and ends, by the copy's topic, and its names."""

    source: str
    starts: Offsets
    ends: Offsets
    names: CopyNames = field(default_factory=CopyNames)

    def of(self, topic: str, partition: int) -> PartitionKey:
        """The copy of a partition of the source, as it is called."""
        return self.names.topic_of(f"{self.source}.{topic}"), partition


class Landing(NamedTuple):
    """Where a group goes on in a copy that begins at `start` and ends at `end`, and what that costs it.

    `not_yet` counts messages that it read and that are not in the copy yet, `lost` those that it did not read and that the
    copy's retention took.
    """

    offset: int
    not_yet: int
    lost: int


def landing(committed: int, start: int, end: int) -> Landing:
    """Of an offset that a group committed at the source."""
    return Landing(max(start, min(committed, end)), max(0, committed - end), max(0, start - committed))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove:
    """One group: `offsets` to commit, by the copy's partition.

    `not_yet` is of all its landings, `lost` of those in `offsets`. `refusal` says why it is left alone.
    """

    group: str
    offsets: Mapping[PartitionKey, int]
    not_yet: int = 0
    lost: int = 0
    refusal: str = ""


def group_move(
    group: str, committed: Offsets, copies: Copies, *, state: str, here: Mapping[PartitionKey, Committed]
) -> GroupMove:
    """What to commit for a group; `state` and `here` are its state and what it has committed in the offline cluster."""
    if reason := refusal(group, copies, state, here):
        return GroupMove(group=group, offsets={}, refusal=reason)
    offsets: dict[PartitionKey, int] = {}
    not_yet = lost = 0
    for (topic, partition), offset in sorted(committed.items()):
        place = copies.of(topic, partition)
        if offset < 0 or place not in copies.starts or place not in copies.ends:
            continue
        found = landing(offset, copies.starts[place], copies.ends[place])
        not_yet += found.not_yet
        if place in here and found.offset <= here[place].offset:
            continue
        offsets[place] = found.offset
        lost += found.lost
    return GroupMove(group=group, offsets=offsets, not_yet=not_yet, lost=lost)


def refusal(group: str, copies: Copies, state: str, here: Mapping[PartitionKey, Committed]) -> str:
    """Why the group is left alone, or nothing."""
    if state not in IDLE_STATES:
        return f"it has members in the cluster of the copies (it is {state})"
    own = sorted(
        place for place, found in here.items() if place in copies.ends and found.metadata != METADATA
    )
    if own:
        topic, partition = own[0]
        return (
            f"it committed offset {here[own[0]].offset} of {topic}-{partition} in the cluster of the copies itself; "
            f"`headrace groups delete {group}` there has it follow the source again"
        )
    return ""
