"""Which offsets the next round of a load reads: a pure decision.

Owns the plan. From the positions that the table's last snapshot names, the log start and end offsets of the brokers
and the limits it makes one range a partition. Invariants: a range begins exactly at the position, so ranges never
overlap and leave no gap; a partition whose next offset the log no longer (or not yet again) has gets a finding and no
range, so nothing is skipped in silence. Must not know Spark, Iceberg, sockets or clocks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from headrace.broker.wire.partitions import TopicPartition
from headrace.load.fences import Fence

FindingKind = Literal["truncation", "recreation", "retention", "corruption", "unsupported"]
ROTTEN: Final = ("corruption", "unsupported")
"""Batches that are in the log but cannot be read."""
OTHER_LOG: Final = ("truncation", "recreation")
"""The log is not the one that was read."""


class LogOffsets(NamedTuple):
    """What the leader says of a partition: `end` is the last stable offset, the next one to be readable."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets [first_offset, next_offset) of one partition."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    fence: Fence | None = None
    """What the log must have before `first_offset`; None where nothing is known of it."""
    topic_id: str | None = None
    """Which topic of this name is meant; None where the brokers give no ids."""
    life: int = 0
    """How often a person has let the partition go on in another log."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        return self.next_offset - self.first_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFinding:
    """Why a partition stands still; `offset` is the first offset that the table does not have."""

    kind: FindingKind
    topic: str
    partition: int
    offset: int
    detail: str
    go_on_at: int | None = None
    """Where a person may let the load go on; None where that has to be chosen."""

    @property
    def sentence(self) -> str:
        """The detail, and what to run."""
        order = "skip" if self.kind in ROTTEN else "resume"
        command = f"headrace load {order} {self.topic} {self.partition}"
        if self.go_on_at is None:
            way_on = f"`{command}` says where it can go on"
        else:
            way_on = f"`{command} --from {self.offset} --at {self.go_on_at}` lets it go on"
        return f"{self.topic}-{self.partition} stands still at offset {self.offset}: {self.detail}; {way_on}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """A person let a partition go on at `next_offset` that stood still at `first_offset`.

    In the same life of the partition the offsets between are passed over. In a new one the log is another: what it has
    from `next_offset` on is loaded, whatever the former one had there.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    kind: FindingKind
    reason: str
    life: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def is_new_life(self) -> bool:
        return self.kind in OTHER_LOG


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one round, so that a long backlog is committed in pieces that fit in memory."""

    records_per_range_max: int = 1_000_000
    bytes_per_range_max: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    ranges: tuple[OffsetRange, ...]
    findings: tuple[LoadFinding, ...]
    lag: int
    """Offsets that were readable when the plan was made and that the table does not have."""


def plan(
    positions: Mapping[TopicPartition, int],
    log_offsets: Mapping[TopicPartition, LogOffsets],
    limits: Limits,
    stopped: Collection[TopicPartition] = (),
    strangers: Mapping[TopicPartition, str] = MappingProxyType({}),
    fences: Mapping[TopicPartition, Fence] = MappingProxyType({}),
    topic_ids: Mapping[str, str] = MappingProxyType({}),
    lives: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> Plan:
    """Plan one range a partition that has something to read.

    A partition without a position is new to the table and begins at its log start offset: what retention removed
    before the first load was never promised to the table. `stopped` partitions (corruption was found there) are
    left out, but count in the lag. `strangers` are those of another topic than the one whose offsets the table holds, and why.
    """
    ranges: list[OffsetRange] = []
    findings: list[LoadFinding] = []
    lag = 0
    for partition in sorted(log_offsets):
        offsets = log_offsets[partition]
        first = positions.get(partition, offsets.start)
        lag += max(0, offsets.end - first)
        finding = standstill(partition, first, offsets, strangers.get(partition))
        if finding is not None:
            findings.append(finding)
        elif offsets.end > first and partition not in stopped:
            next_offset = min(offsets.end, first + limits.records_per_range_max)
            ranges.append(
                OffsetRange(
                    topic=partition.topic,
                    partition=partition.partition,
                    first_offset=first,
                    next_offset=next_offset,
                    fence=fences.get(partition),
                    topic_id=topic_ids.get(partition.topic),
                    life=lives.get(partition, 0),
                )
            )
    return Plan(ranges=tuple(ranges), findings=tuple(findings), lag=lag)


def assign(ranges: Sequence[OffsetRange], task_count_max: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """Spread ranges over at most `task_count_max` tasks, longest first, each to the task with the least to read."""
    count = min(task_count_max, len(ranges))
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    loads = [0] * count
    for item in sorted(ranges, key=lambda item: (-item.count, item.topic, item.partition)):
        index = loads.index(min(loads))
        tasks[index].append(item)
        loads[index] += item.count
    return tuple(tuple(task) for task in tasks)


def standstill(
    partition: TopicPartition, first: int, offsets: LogOffsets, stranger: str | None
) -> LoadFinding | None:
    """Say why a partition cannot go on at `first`, by what its leader says of the log; None: nothing speaks against it."""
    if stranger is not None:
        return _finding("recreation", partition, first, stranger, offsets.start)
    if first < offsets.start:
        detail = (
            f"offsets {first} to {offsets.start - 1} were deleted before they were loaded (the log now starts at "
            f"{offsets.start})"
        )
        return _finding("retention", partition, first, detail, offsets.start)
    if first > offsets.end:
        detail = (
            f"the table holds offsets up to {first - 1} but the log ends at {offsets.end}: it lost its end"
        )
        return _finding("truncation", partition, first, detail, offsets.end)
    return None


def with_way_on(finding: LoadFinding, go_on_at: int | None) -> LoadFinding:
    return replace(finding, go_on_at=go_on_at)


def _finding(
    kind: FindingKind, partition: TopicPartition, first: int, detail: str, go_on_at: int
) -> LoadFinding:
    return LoadFinding(
        kind=kind,
        topic=partition.topic,
        partition=partition.partition,
        offset=first,
        detail=detail,
        go_on_at=go_on_at,
    )
