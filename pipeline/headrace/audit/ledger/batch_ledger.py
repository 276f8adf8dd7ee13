"""What is known of the topics that are counted by their batch headers, from round to round.

Owns the logs of their partitions, up to what is folded, and what became of blocks that both clusters are past: sums by window
and what was found. Invariant: a block is in a log or in the sums, never in both; a round judges the partitions that changed.
Bounded: the youngest windows and findings are kept one by one. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from headrace.audit.batch_counts import BLOCK_SIZE, Sums
from headrace.audit.latency import SourcePartition
from headrace.audit.ledger.batch_aggregates import AggregateSums, judge_aggregate
from headrace.audit.ledger.batch_judge import (
    BatchJudged,
    Uncompared,
    WindowSums,
    counted_alone,
    judge_blocks,
    merged,
    merged_uncompared,
    sequence_findings,
)
from headrace.audit.ledger.batch_logs import BatchLog, Next
from headrace.audit.ledger.coverage import Coverage, Link
from headrace.audit.outcome import Finding, Incomplete, Topic
from headrace.audit.parcels import Counter
from headrace.audit.records import Counted
from headrace.audit.windows import Stream

WINDOWS_MAX: Final = 8_640
"""Windows of a topic that are kept one by one: those of a day."""
FOUND_MAX: Final = 1_000
"""Findings of a topic that are kept one by one, and offsets that are not comparable."""
BLOCKS_MAX: Final = 10_000
"""Blocks of a partition that wait for the other cluster; of older ones nothing is compared."""


@dataclass(slots=True)
class BatchFacts:
    """Of one topic, what both clusters are past."""

    windows: dict[int, WindowSums] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    uncompared: list[Uncompared] = field(default_factory=list)

    def take(self, judged: BatchJudged) -> None:
        for window, sums in judged.windows.items():
            self.windows.setdefault(window, WindowSums()).add(sums)
        while len(self.windows) > WINDOWS_MAX:
            del self.windows[min(self.windows)]
        if judged.findings:
            found = merged([*self.findings, *judged.findings])
            self.findings = sorted(found, key=lambda item: item.window_start)[-FOUND_MAX:]
        if judged.uncompared:
            uncompared = merged_uncompared([*self.uncompared, *judged.uncompared])
            self.uncompared = sorted(uncompared, key=lambda item: item.until_ms)[-FOUND_MAX:]


@dataclass(slots=True)
class BatchLedger:
    """See the module's text."""

    logs: dict[Counter, BatchLog] = field(default_factory=dict)
    counters: set[Counter] = field(default_factory=set)
    """Those whose batch headers were counted."""
    facts: dict[Topic, BatchFacts] = field(default_factory=dict)
    _judged: dict[SourcePartition, BatchJudged] = field(default_factory=dict)
    _changed: set[SourcePartition] = field(default_factory=set)

    def note(self, counter: Counter, record: Link) -> None:
        """Take that a range of a partition came, which is judged from the coverage."""
        if isinstance(record, Counted) and record.batches is not None:
            self.counters.add(counter)
        if counter in self.counters:
            self._changed.add(counter.place)

    def on_folded(self, counter: Counter, links: Sequence[Link]) -> None:
        """Take ranges for good."""
        if counter not in self.counters or not links:
            return
        log = self.logs.setdefault(counter, BatchLog())
        for link in links:
            log.take(link)
        place = counter.place
        facts = self.facts.setdefault(place[:2], BatchFacts())
        if counter.tier == "live" or not place.datacenter:
            facts.take(BatchJudged(findings=sequence_findings(place, log.faults)))
        log.faults.clear()
        log.forget_producers()
        self._changed.add(place)
        self._settle(place, facts)

    def judged(self, coverage: Mapping[Counter, Coverage]) -> Mapping[SourcePartition, BatchJudged]:
        """Return what is to be said of each partition beyond the facts."""
        for place in self._changed:
            self._judged[place] = self._judge(place, coverage)
        self._changed.clear()
        return self._judged

    def topics(self) -> set[Topic]:
        return {counter.place[:2] for counter in self.counters}

    def uncounted(self, topic: Topic) -> list[str]:
        """Return the clusters in which nobody counts a topic by its headers."""
        if not topic[0]:
            return []  # An aggregate is in one cluster alone.
        tiers = self._tiers(topic) | ({"offline"} if self.is_brought(topic) else set())
        return [tier for tier in ("live", "offline") if tier not in tiers]

    def aggregates(self) -> set[str]:
        """Return the names of the aggregates."""
        return {counter.place.topic for counter in self.counters if not counter.place.datacenter}

    def is_brought(self, topic: Topic) -> bool:
        """Whether a topic of a datacenter may be brought into an aggregate, and has no copy."""
        return bool(topic[0]) and "offline" not in self._tiers(topic) and topic[1] in self.aggregates()

    def _tiers(self, topic: Topic) -> set[str]:
        return {counter.tier for counter in self.counters if counter.place[:2] == topic}

    def aggregate(self, topic: str, coverage: Mapping[Counter, Coverage]) -> AggregateSums:
        """Compare an aggregate with its sources."""
        logs = {
            counter: self._followed(counter, coverage)
            for counter in self.counters
            if counter.place.topic == topic
        }
        return judge_aggregate(topic, logs)

    def _judge(self, place: SourcePartition, coverage: Mapping[Counter, Coverage]) -> BatchJudged:
        live, offline = (
            self._followed(counter, coverage) if counter in self.counters else None
            for counter in (Counter("live", place), Counter("offline", place))
        )
        if live is not None and offline is not None:
            return judge_blocks(place, live, offline, is_last=True)
        if live is not None:
            return counted_alone(place, live, is_live=True)
        return BatchJudged() if offline is None else counted_alone(place, offline, is_live=False)

    def _followed(self, counter: Counter, coverage: Mapping[Counter, Coverage]) -> BatchLog:
        log = self.logs.get(counter, BatchLog()).followed()
        found = coverage.get(counter)
        for link in found.chain if found is not None else ():
            log.take(link)
        return log

    def _settle(self, place: SourcePartition, facts: BatchFacts) -> None:
        """Compare, and forget, the blocks that both clusters are past; and the oldest of too many."""
        live, offline = (self.logs.get(Counter(tier, place)) for tier in ("live", "offline"))
        if live is not None and offline is not None:
            facts.take(judge_blocks(place, live, offline, is_last=False))
            end = min(live.position, offline.position) // BLOCK_SIZE * BLOCK_SIZE
            live.forget_below(end)
            offline.forget_below(end)
        for log in (live, offline):
            if log is not None and len(log.blocks) > BLOCKS_MAX:
                log.forget_below(sorted(log.blocks)[-BLOCKS_MAX] * BLOCK_SIZE)


def reasons(topic: Topic, uncompared: Iterable[Uncompared]) -> Iterator[Incomplete]:
    for item in merged_uncompared(uncompared):
        yield item.reason(*topic)


def as_fields(ledger: BatchLedger) -> dict[str, Any]:
    """Return all of it as JSON types."""
    return {
        "counters": sorted([counter.tier, *counter.place] for counter in ledger.counters),
        "logs": [[counter.tier, *counter.place, _log(log)] for counter, log in ledger.logs.items()],
        "facts": [
            [
                *topic,
                [[window, sums.live, sums.offline] for window, sums in found.windows.items()],
                [asdict(item) for item in found.findings],
                found.uncompared,
            ]
            for topic, found in ledger.facts.items()
        ],
    }


def from_fields(fields: Any) -> BatchLedger:
    """Undo `as_fields`; None: no topic was counted by its headers."""
    fields = fields or {"counters": (), "logs": (), "facts": ()}
    ledger = BatchLedger(counters={_counter(*key) for key in fields["counters"]})
    ledger.logs = {_counter(*key): _to_log(log) for *key, log in fields["logs"]}
    for datacenter, topic, windows, findings, uncompared in fields["facts"]:
        ledger.facts[datacenter, topic] = BatchFacts(
            windows={window: WindowSums(Sums(*live), Sums(*offline)) for window, live, offline in windows},
            findings=[Finding(**{**item, "stream": Stream(*item["stream"])}) for item in findings],
            uncompared=[Uncompared(*item) for item in uncompared],
        )
    ledger._changed = {counter.place for counter in ledger.counters}
    return ledger


def _counter(tier: Any, *place: Any) -> Counter:
    return Counter(tier, SourcePartition(*place))


def _log(log: BatchLog) -> list[Any]:
    blocks = [
        [block, [[window, *sums] for window, sums in windows.items()]]
        for block, windows in log.blocks.items()
    ]
    producers = [[producer, *following] for producer, following in log.producers.items()]
    sums = [log.messages, log.missing, log.is_whole]
    return [log.position, log.holes, log.gaps, blocks, producers, log.is_compacted, *sums]


def _to_log(fields: Any) -> BatchLog:
    position, holes, gaps, blocks, producers, is_compacted, *sums = fields
    # A release that did not sum them up does not know all of them.
    messages, missing, is_whole = sums or (0, 0, False)
    return BatchLog(
        position=position,
        holes=[(first, following) for first, following in holes],
        gaps=[(first, last) for first, last in gaps],
        blocks={block: {window: Sums(*sums) for window, *sums in windows} for block, windows in blocks},
        producers={producer: Next(*following) for producer, *following in producers},
        is_compacted=is_compacted,
        messages=messages,
        missing=missing,
        is_whole=is_whole,
    )
