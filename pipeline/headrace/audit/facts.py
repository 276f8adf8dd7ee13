"""What is settled: facts by datacenter, topic, tier and window, and what was found there. Nothing here is ever judged again.

Owns the sums of all that left the ledger, by topic, and the facts of single windows. Invariant: a fact that is added stays;
what comes to be known of a settled window later is a fact of its own. Bounded: the youngest windows and findings are kept one
by one, older ones in the sums alone. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from headrace.audit.latency import HOPS, Hop
from headrace.audit.outcome import Counts, Finding, Incomplete
from headrace.audit.period import ALWAYS, END_MS, Period
from headrace.audit.windows import WINDOW_SIZE_MS, Depth, Stream, depth_from_json

Topic = tuple[str, str]
"""Datacenter and topic."""
HopCounts = dict[Hop, Counts]
WINDOWS_MAX: Final = 8_640
"""Windows of a topic that are kept one by one: those of a day."""
FOUND_MAX: Final = 10_000
"""Findings, and reasons, of a topic that are kept one by one."""
GONE_MAX: Final = 10_000
"""Streams that are remembered by their sequences after all of them were settled."""


@dataclass(slots=True)
class TopicFacts:
    """Of one topic; `until_ms`: windows that end no later are settled."""

    until_ms: int = 0
    counts: Counts = field(default_factory=Counts)
    hops: HopCounts = field(default_factory=lambda: {hop: Counts() for hop in HOPS})
    windows: dict[int, Counts] = field(default_factory=dict)
    hop_faults: dict[tuple[int, Hop], Counts] = field(default_factory=dict)
    """By window and hop, where something was lost, doubled, unknown or compacted."""
    findings: list[Finding] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)
    unresolved_ms: int = END_MS
    """The first window of which something is lost."""
    complete_until: int = 0
    """The latest promise of a producer that is gone."""

    def add_window(self, start: int, counts: Counts, hops: HopCounts) -> None:
        """Take what one stream had in a window."""
        self.windows.setdefault(start, Counts()).add(counts)
        self.counts.add(counts)
        for hop, found in hops.items():
            self.hops[hop].add(found)
            if found != Counts():
                self.hop_faults.setdefault((start, hop), Counts()).add(found)
        while len(self.windows) > WINDOWS_MAX:
            oldest = min(self.windows)
            del self.windows[oldest]
            for hop in HOPS:
                self.hop_faults.pop((oldest, hop), None)

    def add_found(self, findings: Iterable[Finding], incomplete: Iterable[Incomplete]) -> None:
        self.findings += findings
        self.incomplete += incomplete
        del self.findings[:-FOUND_MAX]
        del self.incomplete[:-FOUND_MAX]

    def of_period(self, period: Period) -> tuple[Counts, HopCounts]:
        """Return the sums of the windows that reach into a period."""
        if period == ALWAYS:
            return self.counts, self.hops
        counts, hops = Counts(), {hop: Counts() for hop in HOPS}
        for start, found in self.windows.items():
            if period.overlaps(start, start + WINDOW_SIZE_MS):
                counts.add(found)
        for (start, hop), found in self.hop_faults.items():
            if period.overlaps(start, start + WINDOW_SIZE_MS):
                hops[hop].add(found)
        return counts, hops


@dataclass(slots=True)
class Facts:
    """All that is settled."""

    topics: dict[Topic, TopicFacts] = field(default_factory=dict)
    gone: dict[Stream, Depth] = field(default_factory=dict)
    """The settled sequences of streams of which nothing is open, the youngest ones."""

    def until_ms(self, datacenter: str, topic: str) -> int:
        """Return up to when the windows of a topic are settled; 0: none is."""
        facts = self.topics.get((datacenter, topic))
        return 0 if facts is None else facts.until_ms

    def note_gone(self, stream: Stream, settled: Depth) -> None:
        self.gone[stream] = settled
        while len(self.gone) > GONE_MAX:
            del self.gone[next(iter(self.gone))]

    def named_producers(self) -> set[str]:
        """Return the producers that findings and reasons name."""
        found = {item.stream.producer for facts in self.topics.values() for item in facts.findings}
        return found | {item.producer for facts in self.topics.values() for item in facts.incomplete}


def as_fields(facts: Facts) -> dict[str, Any]:
    """Return all of it as JSON types."""
    return {
        "topics": [[*key, _topic_fields(found)] for key, found in facts.topics.items()],
        "gone": [[*stream, settled.as_json()] for stream, settled in facts.gone.items()],
    }


def from_fields(fields: Any) -> Facts:
    """Undo `as_fields`; None: nothing is settled."""
    facts = Facts()
    for datacenter, topic, found in (fields or {}).get("topics", ()):
        facts.topics[datacenter, topic] = _to_topic(found)
    for *stream, settled in (fields or {}).get("gone", ()):
        facts.gone[Stream(*stream)] = depth_from_json(settled)
    return facts


def _topic_fields(facts: TopicFacts) -> dict[str, Any]:
    return {
        "until_ms": facts.until_ms,
        "counts": _values(facts.counts),
        "hops": {hop: _values(found) for hop, found in facts.hops.items()},
        "windows": [[start, *_values(found)] for start, found in facts.windows.items()],
        "hop_faults": [[*key, *_values(found)] for key, found in facts.hop_faults.items()],
        "findings": [asdict(item) for item in facts.findings],
        "incomplete": [asdict(item) for item in facts.incomplete],
        "unresolved_ms": facts.unresolved_ms,
        "complete_until": facts.complete_until,
    }


def _to_topic(fields: Any) -> TopicFacts:
    return TopicFacts(
        until_ms=fields["until_ms"],
        counts=Counts(*fields["counts"]),
        hops={hop: Counts(*fields["hops"][hop]) for hop in HOPS},
        windows={start: Counts(*values) for start, *values in fields["windows"]},
        hop_faults={(start, hop): Counts(*values) for start, hop, *values in fields["hop_faults"]},
        findings=[Finding(**{**item, "stream": Stream(*item["stream"])}) for item in fields["findings"]],
        incomplete=[
            Incomplete(**{**item, "period": Period(*item["period"])}) for item in fields["incomplete"]
        ],
        unresolved_ms=fields["unresolved_ms"],
        complete_until=fields["complete_until"],
    )


def _values(counts: Counts) -> list[int]:
    return [getattr(counts, name) for name in Counts.__slots__]
