"""The judgements of all open streams, kept from round to round: what did not change is not judged again.

Owns what a judgement depends on. Invariant: a book that follows a ledger says the same as one that is made anew. Pure.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from headrace.audit.judging import compaction
from headrace.audit.judging.evidence import Evidence, gather
from headrace.audit.judging.judge import Judged, findings_of, judge
from headrace.audit.judging.watermark import WHOLE, Held, Standing, held_by, is_whole
from headrace.audit.latency import HOPS
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import Finding
from headrace.audit.windows import Stream, excess, within

OVERDUE: Final = "it came after its window had been told to be whole"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one stream, and what follows from it."""

    evidence: Evidence
    judged: Judged
    late: list[Finding]
    held: Held
    standing: Standing | None
    """Where it is the same at any time."""


@dataclass(slots=True)
class Book:
    """See the module's text. One book at most follows a ledger."""

    entries: dict[Stream, Entry] = field(default_factory=dict)
    touched: int = 0
    """Streams that were judged by the last update."""
    follows: Ledger | None = None

    def follow(self, ledger: Ledger) -> None:
        """Judge what changed since the last time; all of a ledger that was not followed before."""
        changed = ledger.changed()
        if self.follows is not ledger:
            self.entries, self.follows, changed = {}, ledger, None
        self._judge(ledger, changed)

    def read(self, ledger: Ledger) -> None:
        """Judge all of a ledger, as another book may follow it."""
        self._judge(ledger, None)

    def _judge(self, ledger: Ledger, changed: set[Stream] | None) -> None:
        if changed is None:
            self.entries.clear()
            streams = ledger.streams()
        else:
            compacted = {stream[:2] for stream in changed if compaction.is_compacted(ledger, *stream[:2])}
            streams = changed.union(*(ledger.known.get(topic, ()) for topic in compacted))
            for stream in streams:
                self.entries.pop(stream, None)
        gathered = gather(ledger, streams) if streams else []
        for evidence in _with_compaction(ledger, gathered):
            judged = judge(evidence)
            self.entries[evidence.stream] = Entry(
                evidence,
                judged,
                list(late_of(ledger, evidence)),
                held_by(evidence, judged),
                WHOLE if is_whole(evidence) else None,
            )
        self.touched = len(gathered)


def late_of(ledger: Ledger, evidence: Evidence) -> Iterable[Finding]:
    """Name what came after its window, and what came late by its latencies, once each."""
    overdue = evidence.overdue
    yield from findings_of("late", HOPS[0], evidence, overdue, OVERDUE)
    for hop in HOPS:
        known = ledger.latencies.late.get((hop, evidence.stream))
        if known is not None:
            late = evidence.of_period(known)
            yield from findings_of("late", hop, evidence, excess(late, within(late, overdue)))


def _with_compaction(ledger: Ledger, gathered: list[Evidence]) -> list[Evidence]:
    """Add to each stream which faults of its topic compaction explains, all streams of the topic together."""
    faults: dict[tuple[str, str], Multiset[compaction.Fault]] = {}
    for evidence in gathered:
        if compaction.is_compacted(ledger, *evidence.topic):
            found = faults.setdefault(evidence.topic, Multiset())
            for hop, counts in judge(evidence).hops.items():
                found.update({(hop, "loss"): counts.lost, (hop, "duplicate"): counts.duplicated})
    explained = {topic: compaction.explained(ledger, *topic, found) for topic, found in faults.items()}
    return [
        replace(evidence, compacted=explained[evidence.topic]) if evidence.topic in explained else evidence
        for evidence in gathered
    ]
