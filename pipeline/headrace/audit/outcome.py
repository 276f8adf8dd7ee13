"""What the audit says, as values: findings, reasons, counts and verdicts, of a period and of its windows.

Owns how a verdict follows from findings and reasons. A verdict is of windows: that of a period is the worst of those that
reach into it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Literal, NamedTuple

from headrace.audit.batch_counts import Sums
from headrace.audit.histogram import Histogram
from headrace.audit.latency import Hop
from headrace.audit.parcels import Tier
from headrace.audit.period import ALWAYS, BEGIN_MS, END_MS, Period
from headrace.audit.windows import Stream

Topic = tuple[str, str]
"""Datacenter and topic."""
Verdict = Literal["complete", "loss", "duplicates", "incomplete"]
Kind = Literal["loss", "duplicate", "late", "truncation", "recreation"]
RANKS: Final[Mapping[Verdict, int]] = {"complete": 0, "incomplete": 1, "duplicates": 2, "loss": 3}
"""Of several verdicts the highest holds."""
VERDICTS: Final[Mapping[Kind, Verdict]] = {
    "loss": "loss",
    "duplicate": "duplicates",
    "late": "complete",
    "truncation": "incomplete",
    "recreation": "incomplete",
}
OVERALL: Final = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Windows in milliseconds, -1 where unknown: the start of the first sequence's, the end of the last one's.

    Offsets only where sequences are not known.
    """

    kind: Kind
    hop: Hop
    stream: Stream
    first_sequence: int
    last_sequence: int
    count: int
    window_start: int
    window_end: int = -1
    partition: int = -1
    first_offset: int = -1
    last_offset: int = -1
    reason: str = ""
    warehouse: str = ""
    """The further warehouse that it is about; empty: the first one, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incomplete:
    """Why the report is not complete, and for which time; the producer is empty where it is a whole topic's matter."""

    datacenter: str
    topic: str
    producer: str
    reason: str
    period: Period = ALWAYS
    hop: Hop | Literal[""] = ""
    """Where it is of one hop alone."""
    warehouse: str = ""
    """As in `Finding`."""


@dataclass(slots=True)
class Counts:
    """Events by tier (all copies), and the faults between them."""

    produced: int = 0
    live: int = 0
    offline: int = 0
    warehouse: int = 0
    lost: int = 0
    duplicated: int = 0
    under_way: int = 0
    unknown: int = 0
    """Of a hop: events that it cannot judge, because the tier before or behind it does not know of them."""
    compacted: int = 0
    """Events that compaction removed before they were counted."""

    def add(self, other: Counts) -> None:
        self.produced += other.produced
        self.live += other.live
        self.offline += other.offline
        self.warehouse += other.warehouse
        self.lost += other.lost
        self.duplicated += other.duplicated
        self.under_way += other.under_way
        self.unknown += other.unknown
        self.compacted += other.compacted


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTopic:
    """What is known of a topic that is counted by its batch headers; what its producers sent nobody claims."""

    live: Sums
    offline: Sums
    under_way: int
    lost: int
    duplicated: int
    verdict: Verdict
    is_brought: bool = False
    """Whether the offline cluster has it in an aggregate alone."""


@dataclass(slots=True, kw_only=True)
class AggregateTopic:
    """What of a datacenter's topic is in the aggregate of that name; `counts.offline` are the aggregate's.

    Without a datacenter: of all of them together, counted by batch headers.
    """

    counts: Counts
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherWarehouse:
    """What is known of a further warehouse: by topic what the offline cluster and it have, and the faults of the hop to it."""

    topics: Mapping[Topic, Counts]
    watermarks: Mapping[Topic, int]
    """As in `Outcome`, of this warehouse's tables."""
    latencies: Mapping[str, Histogram]
    """Those that end in it, by span."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the audit says of a period."""

    period: Period
    verdict: Verdict = "complete"
    watermarks: dict[tuple[str, str], int] = field(default_factory=dict)
    """Up to when each (datacenter, topic) is whole, in milliseconds, and all of them (`OVERALL`), where that is known."""
    beyond: Counts = field(default_factory=Counts)
    """What is lost, doubled and under way outside of the period."""
    topics: dict[tuple[str, str], Counts] = field(default_factory=dict)
    batches: dict[Topic, BatchTopic] = field(default_factory=dict)
    """The topics that are counted by their batch headers."""
    aggregates: dict[Topic, AggregateTopic] = field(default_factory=dict)
    further: dict[str, FurtherWarehouse] = field(default_factory=dict)
    """By name; what was found there is among `findings` and `incomplete`, and in no other number here."""
    off: set[Topic] = field(default_factory=set)
    """The topics that are not audited now: nothing here is about them."""
    hops: dict[tuple[str, str, Hop], Counts] = field(default_factory=dict)
    """Faults by datacenter, topic and hop."""
    uncounted: set[tuple[Tier, str, str]] = field(default_factory=set)
    """Tiers of (datacenter, topic) that no counter counts although there are events."""
    unacknowledged: dict[Topic, int] = field(default_factory=dict)
    """Events that failed, or whose fate their producers do not know, and that are nowhere; of what is not settled."""
    findings: list[Finding] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)

    @property
    def complete_until(self) -> int | None:
        return self.watermarks.get(OVERALL)


class Loss(NamedTuple):
    """A run of lost sequences, which holds the watermark until it is accepted."""

    hop: Hop
    producer: str
    first: int
    last: int
    copies: int
    since_ms: int
    """Its first window."""


class WindowVerdict(NamedTuple):
    """Windows of one topic that follow one another and are not complete."""

    datacenter: str
    topic: str
    period: Period
    verdict: Verdict


def verdict_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst."""
    return max(verdicts, key=lambda verdict: RANKS[verdict], default="complete")


def verdicts(outcome: Outcome) -> Iterator[WindowVerdict]:
    """Yield the verdict of each finding and reason."""
    for found in outcome.findings:
        since, until = (
            (BEGIN_MS, END_MS) if found.window_start < 0 else (found.window_start, found.window_end)
        )
        place = (found.stream.datacenter, found.stream.topic)
        yield WindowVerdict(*place, Period(since, until), VERDICTS[found.kind])
    for item in outcome.incomplete:
        yield WindowVerdict(item.datacenter, item.topic, item.period, "incomplete")


def windows(outcome: Outcome) -> list[WindowVerdict]:
    """Return what of the period is not complete, by topic and in the order of time; neighbours are joined."""
    by_topic: dict[tuple[str, str], list[WindowVerdict]] = {}
    for item in verdicts(outcome):
        if item.verdict != "complete" and outcome.period.overlaps(*item.period):
            by_topic.setdefault((item.datacenter, item.topic), []).append(item)
    return [window for topic in sorted(by_topic) for window in _swept(by_topic[topic], outcome.period)]


def open_windows(outcome: Outcome, period: Period, window_size_ms: int) -> dict[tuple[str, str], int]:
    """Return how many windows of a period nobody can call complete yet, by (datacenter, topic)."""
    found = dict.fromkeys([*outcome.topics, *outcome.batches], 0)
    for window in windows(outcome):
        first = max(window.period.since_ms, period.since_ms) // window_size_ms
        following = -(-min(window.period.until_ms, period.until_ms) // window_size_ms)
        place = (window.datacenter, window.topic)
        if window.verdict == "incomplete" and following > first and place in found:
            found[place] += following - first
    return found


def _swept(items: list[WindowVerdict], period: Period) -> Iterator[WindowVerdict]:
    """Yield the worst verdict of each time, of one topic."""
    datacenter, topic = items[0].datacenter, items[0].topic
    changes: list[tuple[int, int, int]] = []
    for item in items:
        since, until = max(item.period.since_ms, period.since_ms), min(item.period.until_ms, period.until_ms)
        changes += [(since, RANKS[item.verdict], 1), (max(until, since + 1), RANKS[item.verdict], -1)]
    names = {rank: verdict for verdict, rank in RANKS.items()}
    active = dict.fromkeys(names, 0)
    begun_ms, current = 0, 0
    for at_ms, group in groupby(sorted(changes), key=lambda change: change[0]):
        for _, rank, step in group:
            active[rank] += step
        worst = max((rank for rank, count in active.items() if count), default=0)
        if worst != current:
            if current:
                yield WindowVerdict(datacenter, topic, Period(begun_ms, at_ms), names[current])
            begun_ms, current = at_ms, worst
