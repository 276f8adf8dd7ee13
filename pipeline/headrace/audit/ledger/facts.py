"""What is settled: facts by datacenter, topic, tier and window, and what was found there. Nothing here is ever judged again.

Owns the sums of all that left the ledger, by topic, and the facts of single windows. Invariant: a fact that is added stays;
what comes to be known of a settled window later is a fact of its own. Bounded: the youngest windows and findings are kept one
by one, older ones in the sums alone. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from headrace.audit.latency import HOPS, Hop
from headrace.audit.outcome import Counts, Finding, Incomplete, Loss
from headrace.audit.period import ALWAYS, END_MS, Period
from headrace.audit.windows import WINDOW_SIZE_MS, Depth, Stream, depth_from_json

Topic = tuple[str, str]
"""Datacenter and topic."""
HopCounts = dict[Hop, Counts]
WINDOWS_MAX: Final = 8_640
"""Windows of a topic that are kept one by one: those of a day."""
FOUND_MAX: Final = 10_000
"""Findings, and reasons, of a topic that are kept one by one."""
LOSSES_MAX: Final = 1_000
"""Losses of a topic that hold the watermark until they are accepted; further ones hold it whatever is accepted."""
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
    losses: list[Loss] = field(default_factory=list)
    """Those that hold the watermark until they are accepted."""
    unresolved_ms: int = END_MS
    """The first window of which something is lost that is not among these."""
    complete_until: int = 0
    """The latest promise of a producer that is gone."""
    unwritten: dict[int, tuple[Counts, HopCounts]] = field(default_factory=dict)
    """Windows that are in no batch yet."""
    unwritten_found: list[Finding | Incomplete] = field(default_factory=list)

    def add_window(self, start: int, counts: Counts, hops: HopCounts) -> None:
        """Take what one stream had in a window."""
        self.counts.add(counts)
        for hop, found in hops.items():
            self.hops[hop].add(found)
        known, by_hop = self.unwritten.setdefault(start, (Counts(), {}))
        known.add(counts)
        for hop, found in hops.items():
            by_hop.setdefault(hop, Counts()).add(found)
        if len(self.unwritten) > WINDOWS_MAX:
            del self.unwritten[min(self.unwritten)]
        self.take_window(start, counts, hops)

    def take_window(self, start: int, counts: Counts, hops: HopCounts) -> None:
        """Keep what is told of a window one by one."""
        self.windows.setdefault(start, Counts()).add(counts)
        for hop, found in hops.items():
            if found != Counts():
                self.hop_faults.setdefault((start, hop), Counts()).add(found)
        while len(self.windows) > WINDOWS_MAX:
            oldest = min(self.windows)
            del self.windows[oldest]
            for hop in HOPS:
                self.hop_faults.pop((oldest, hop), None)

    def hold(self, since_ms: int, losses: Iterable[Loss], is_accepted: Callable[[Loss], bool]) -> None:
        """Let losses hold the watermark; where they are too many, those that are accepted are forgotten first."""
        self.unresolved_ms = min(self.unresolved_ms, since_ms)
        self.losses += losses
        if len(self.losses) > LOSSES_MAX:
            self.losses = [item for item in self.losses if not is_accepted(item)]
        for item in self.losses[LOSSES_MAX:]:
            self.unresolved_ms = min(self.unresolved_ms, item.since_ms)
        del self.losses[LOSSES_MAX:]

    def forget_written(self) -> None:
        """Forget what is in the tables: the windows, and what was found of those that ended a day before the last ones."""
        self.windows, self.hop_faults = {}, {}
        for start, found in self.unwritten.items():
            self.take_window(start, *found)
        since_ms = self.until_ms - WINDOWS_MAX * WINDOW_SIZE_MS
        self.findings = [item for item in self.findings if not 0 <= item.window_end < since_ms]
        self.incomplete = [item for item in self.incomplete if item.period.until_ms >= since_ms]

    def begin_reading(self) -> None:
        """Forget all that is in the tables, which are going to tell it."""
        self.forget_written()
        self.findings, self.incomplete = [], []
        self.keep_found(self.unwritten_found)

    def add_found(self, findings: Iterable[Finding], incomplete: Iterable[Incomplete]) -> None:
        found: list[Finding | Incomplete] = [*findings, *incomplete]
        self.unwritten_found += found
        del self.unwritten_found[:-FOUND_MAX]
        self.keep_found(found)

    def keep_found(self, found: Iterable[Finding | Incomplete]) -> None:
        """Keep findings and reasons one by one."""
        for item in found:
            if isinstance(item, Finding):
                self.findings.append(item)
            else:
                self.incomplete.append(item)
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


def topic_of(item: Finding | Incomplete) -> Topic:
    place = item.stream if isinstance(item, Finding) else item
    return place.datacenter, place.topic


@dataclass(slots=True)
class Batch:
    """What is appended to the tables at once; `topics`: the sums of all that is settled with it."""

    number: int
    windows: list[tuple[Topic, int, Counts, HopCounts]]
    found: list[Finding | Incomplete]
    topics: list[list[Any]]


@dataclass(slots=True)
class Facts:
    """All that is settled; `batch`: the last one that is in the tables, `pending`: the one that may be."""

    topics: dict[Topic, TopicFacts] = field(default_factory=dict)
    gone: dict[Stream, Depth] = field(default_factory=dict)
    """The settled sequences of streams of which nothing is open, the youngest ones."""
    batch: int = 0
    pending: Batch | None = None

    @property
    def last_number(self) -> int:
        return self.batch if self.pending is None else self.pending.number

    def begin_batch(self) -> bool:
        """Make a batch of what is in none, when the one before is written; returns whether there is one now."""
        if self.pending is None and any(
            item.unwritten or item.unwritten_found for item in self.topics.values()
        ):
            self.pending = Batch(
                self.batch + 1,
                [
                    (key, start, *found)
                    for key, facts in self.topics.items()
                    for start, found in facts.unwritten.items()
                ],
                [item for facts in self.topics.values() for item in facts.unwritten_found],
                [[*key, scalars(facts)] for key, facts in self.topics.items()],
            )
            for facts in self.topics.values():
                facts.unwritten, facts.unwritten_found = {}, []
        return self.pending is not None

    def take_pending(self) -> None:
        """Keep the windows and findings of the batch that is not in the tables one by one."""
        if self.pending is None:
            return
        for key, start, counts, hops in self.pending.windows:
            self.topics[key].take_window(start, counts, hops)
        for item in self.pending.found:
            self.topics[topic_of(item)].keep_found([item])

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
        "batch": facts.batch,
        "pending": None if facts.pending is None else _batch_fields(facts.pending),
    }


def from_fields(fields: Any) -> Facts:
    """Undo `as_fields`; None: nothing is settled."""
    facts = Facts()
    for datacenter, topic, found in (fields or {}).get("topics", ()):
        facts.topics[datacenter, topic] = _to_topic(found)
    for *stream, settled in (fields or {}).get("gone", ()):
        facts.gone[Stream(*stream)] = depth_from_json(settled)
    facts.batch = (fields or {}).get("batch", 0)
    pending = (fields or {}).get("pending")
    facts.pending = None if pending is None else _to_batch(pending)
    return facts


def scalars(facts: TopicFacts) -> dict[str, Any]:
    """Return the sums of a topic as JSON types."""
    return {
        "until_ms": facts.until_ms,
        "counts": _values(facts.counts),
        "hops": _hop_values(facts.hops),
        # A release that does not know the losses one by one is held by all of them.
        "unresolved_ms": min([facts.unresolved_ms, *(item.since_ms for item in facts.losses)]),
        "beyond_losses_ms": facts.unresolved_ms,
        "losses": facts.losses,
        "complete_until": facts.complete_until,
    }


def with_scalars(fields: Any) -> TopicFacts:
    """Undo `scalars`; of single windows nothing is known."""
    return TopicFacts(
        until_ms=fields["until_ms"],
        counts=Counts(*fields["counts"]),
        hops={hop: Counts(*fields["hops"][hop]) for hop in HOPS},
        losses=[Loss(*item) for item in fields.get("losses", ())],
        unresolved_ms=fields.get("beyond_losses_ms", fields["unresolved_ms"]),
        complete_until=fields["complete_until"],
    )


def _hop_values(hops: HopCounts) -> dict[str, list[int]]:
    return {hop: _values(found) for hop, found in hops.items()}


def _to_hops(fields: Any) -> HopCounts:
    return {hop: Counts(*fields[hop]) for hop in HOPS if hop in fields}


def _batch_fields(batch: Batch) -> dict[str, Any]:
    return {
        "number": batch.number,
        "windows": [
            [*key, start, _values(counts), _hop_values(hops)] for key, start, counts, hops in batch.windows
        ],
        "found": _found_fields(batch.found),
        "topics": batch.topics,
    }


def _to_batch(fields: Any) -> Batch:
    return Batch(
        fields["number"],
        [
            ((datacenter, topic), start, Counts(*counts), _to_hops(hops))
            for datacenter, topic, start, counts, hops in fields["windows"]
        ],
        _to_found(fields["found"]),
        fields["topics"],
    )


def _found_fields(found: Iterable[Finding | Incomplete]) -> list[dict[str, Any]]:
    return [asdict(item) for item in found]


def _to_found(fields: Any) -> list[Finding | Incomplete]:
    return [_to_finding(item) if "kind" in item else _to_incomplete(item) for item in fields]


def _to_finding(item: Any) -> Finding:
    return Finding(**{**item, "stream": Stream(*item["stream"])})


def _to_incomplete(item: Any) -> Incomplete:
    return Incomplete(**{**item, "period": Period(*item["period"])})


def _topic_fields(facts: TopicFacts) -> dict[str, Any]:
    return {
        **scalars(facts),
        "windows": [[start, *_values(found)] for start, found in facts.windows.items()],
        "hop_faults": [[*key, *_values(found)] for key, found in facts.hop_faults.items()],
        "findings": _found_fields(facts.findings),
        "incomplete": _found_fields(facts.incomplete),
        "unwritten": [
            [start, _values(counts), _hop_values(hops)] for start, (counts, hops) in facts.unwritten.items()
        ],
        "unwritten_found": _found_fields(facts.unwritten_found),
    }


def _to_topic(fields: Any) -> TopicFacts:
    facts = with_scalars(fields)
    facts.windows = {start: Counts(*values) for start, *values in fields["windows"]}
    facts.hop_faults = {(start, hop): Counts(*values) for start, hop, *values in fields["hop_faults"]}
    facts.findings = [_to_finding(item) for item in fields["findings"]]
    facts.incomplete = [_to_incomplete(item) for item in fields["incomplete"]]
    facts.unwritten = {
        start: (Counts(*counts), _to_hops(hops)) for start, counts, hops in fields["unwritten"]
    }
    facts.unwritten_found = _to_found(fields["unwritten_found"])
    return facts


def _values(counts: Counts) -> list[int]:
    return [getattr(counts, name) for name in Counts.__slots__]
