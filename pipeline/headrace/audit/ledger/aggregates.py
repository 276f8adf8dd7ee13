"""Aggregate topics: what several datacenters' topics of one name have, and what of it arrived in the one topic they share.

Owns what is kept of live and aggregated ranges until both are compared for good, and the facts that follow: sums by window and
findings, by datacenter and topic. A topic of the offline cluster whose name has no datacenter is an aggregate of the topics of
that name. Invariants: a range is in the pieces or in the facts, never in both; what is settled stays. Bounded: the youngest
windows, findings and pieces are kept. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np

from headrace.audit.latency import Hop, SourcePartition
from headrace.audit.ledger.accounts import CLOCK_SKEW_MS
from headrace.audit.ledger.aggregate_judge import AggregateJudged, Copies, Source, copies_in, judge_source
from headrace.audit.ledger.coverage import Coverage, Link
from headrace.audit.outcome import Counts, Finding, Kind, Topic
from headrace.audit.parcels import Counter, Parcel, copies_of
from headrace.audit.period import ALWAYS, Period, WindowTable, sequences_of
from headrace.audit.records import Counted
from headrace.audit.windows import (
    EMPTY,
    RUNS_OF_WINDOW_MAX,
    WINDOW_SIZE_MS,
    Depth,
    Int64s,
    Stream,
    Tally,
    depth,
    depth_from_json,
    joined,
    once,
    remove_from,
    runs_in,
    total,
    within,
    without,
)

HOP: Final[Hop] = "live_to_aggregate"
HELD_MS: Final = 600_000
"""A range is forgotten when it was counted so long ago, and is compared for good."""
PIECES_MAX: Final = 4_096
"""Ranges of a partition and cluster that wait to be compared; of older ones nothing is said."""
WINDOWS_MAX: Final = 8_640
"""Windows of a topic that are kept one by one: those of a day."""
FOUND_MAX: Final = 1_000
"""Findings of a topic that are kept one by one."""
SETTLED_MAX: Final = 10_000
"""Producers of a topic whose compared sequences are remembered, to know a further copy."""

WholeAt = Mapping[Topic, int]


@dataclass(slots=True)
class AggregateFacts:
    """Of one datacenter's topic, what is compared for good."""

    windows: dict[int, Counts] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, window: int, counts: Counts) -> None:
        self.windows.setdefault(window, Counts()).add(counts)
        while len(self.windows) > WINDOWS_MAX:
            del self.windows[min(self.windows)]

    def of_period(self, period: Period) -> Counts:
        found = Counts()
        for start, counts in self.windows.items():
            if period.overlaps(start, start + WINDOW_SIZE_MS):
                found.add(counts)
        return found


@dataclass(slots=True)
class AggregateLedger:
    """See the module's text."""

    topics: set[str] = field(default_factory=set)
    """Their names."""
    pieces: dict[Counter, list[Parcel]] = field(default_factory=dict)
    """Of a live datacenter, or of the aggregate itself, whose datacenter is empty; in the order of offsets."""
    windows: dict[Stream, dict[int, Int64s]] = field(default_factory=dict)
    settled: dict[Stream, Depth] = field(default_factory=dict)
    begun: set[SourcePartition] = field(default_factory=set)
    """Live partitions of which something arrived."""
    facts: dict[Topic, AggregateFacts] = field(default_factory=dict)

    def note(self, counter: Counter) -> None:
        """Take that a partition is counted."""
        if is_aggregate(counter):
            self.topics.add(counter.place.topic)

    def on_folded(self, counter: Counter, links: Iterable[Link]) -> None:
        """Take ranges for good."""
        if counter.place.topic not in self.topics or not (counter.tier == "live" or is_aggregate(counter)):
            return
        links = [*links]
        if is_aggregate(counter) and len(_behind_hole(links)) < len(links):
            self._begin_anew(counter.place)
            links = _behind_hole(links)
        found = self.pieces.setdefault(counter, [])
        found += self._parcels(counter, links)
        del found[:-PIECES_MAX]

    def judged(
        self, topic: str, coverage: Mapping[Counter, Coverage], whole_at: WholeAt
    ) -> Iterator[tuple[SourcePartition, AggregateJudged]]:
        """Yield what is to be said beyond the facts, of each live partition that arrives in an aggregate."""
        for place in sorted(self._sources(topic, coverage)):
            live = self._followed(Counter("live", place), coverage)
            key = Counter("offline", place._replace(datacenter=""))
            aggregate = self._followed(key, coverage)
            source = self._source(place, live, whole_at)
            if key in coverage and len(_behind_hole(coverage[key].chain)) < len(coverage[key].chain):
                aggregate = [*self._parcels(key, _behind_hole(coverage[key].chain))]
                source = source._replace(has_begun=False)
            judged = judge_source(source, aggregate, self._settled_of(place))
            if judged.is_part:
                yield place, judged

    def settle(self, whole_at: WholeAt, before_ms: int) -> None:
        """Make facts of the ranges that are compared for good."""
        for topic in self.topics:
            for place in sorted(self._sources(topic, {})):
                self._settle(place, whole_at, before_ms)

    def span(self, stream: Stream, found: Depth) -> Period:
        """Return the time of the windows of some sequences."""
        table = WindowTable(self.windows.get(stream, {}), WINDOW_SIZE_MS)
        return table.span(found) or ALWAYS

    def within(self, place: SourcePartition, judged: AggregateJudged, period: Period) -> AggregateJudged:
        """Return what of a judgement belongs to the windows that reach into a period."""

        def chosen(copies: Copies) -> Copies:
            found = {}
            for producer, item in copies.items():
                windows = self.windows.get(Stream(place.datacenter, place.topic, producer), {})
                inside, known = (
                    sequences_of(windows, time, WINDOW_SIZE_MS, are_all_known=True)
                    for time in (period, ALWAYS)
                )
                # What is of no known window, as a further copy of what is settled, is of any time.
                found[producer] = without(item, without(known, inside))
            return {producer: item for producer, item in found.items() if item.count}

        return judged.of(chosen)

    def findings_of(self, place: SourcePartition, judged: AggregateJudged) -> Iterator[Finding]:
        """Yield what of a partition was lost or doubled."""
        kinds: tuple[tuple[Kind, Copies], ...] = (("loss", judged.lost), ("duplicate", judged.doubled))
        for kind, copies in kinds:
            for producer, found in sorted(copies.items()):
                stream = Stream(place.datacenter, place.topic, producer)
                for run in found.runs()[:FOUND_MAX]:
                    period = self.span(stream, depth(np.array([run[:2]], dtype=np.int64)))
                    yield Finding(
                        kind=kind,
                        hop=HOP,
                        stream=stream,
                        first_sequence=run.first,
                        last_sequence=run.last,
                        count=run.total,
                        window_start=-1 if period == ALWAYS else period.since_ms,
                        window_end=-1 if period == ALWAYS else period.until_ms,
                    )

    def _sources(self, topic: str, coverage: Mapping[Counter, Coverage]) -> set[SourcePartition]:
        return {
            counter.place
            for counter in (*self.pieces, *coverage)
            if counter.tier == "live" and counter.place.topic == topic
        }

    def _source(self, place: SourcePartition, live: Sequence[Parcel], whole_at: WholeAt) -> Source:
        return Source(live, place in self.begun, whole_at.get(place[:2], 0) - CLOCK_SKEW_MS)

    def _settled_of(self, place: SourcePartition) -> dict[str, Depth]:
        return {stream.producer: found for stream, found in self.settled.items() if stream[:2] == place[:2]}

    def _followed(self, counter: Counter, coverage: Mapping[Counter, Coverage]) -> list[Parcel]:
        found = coverage.get(counter)
        links = found.chain if found is not None else []
        return [*self.pieces.get(counter, []), *self._parcels(counter, links)]

    def _parcels(self, counter: Counter, links: Iterable[Link]) -> Iterator[Parcel]:
        for link in links:
            if isinstance(link, Counted) and link.tallies:
                if counter.tier == "live":
                    self._note_windows(counter.place, link.tallies)
                yield Parcel(
                    first=link.first, next=link.next, copies=copies_of(link.tallies), at_ms=link.at_ms
                )

    def _note_windows(self, place: SourcePartition, tallies: Iterable[Tally]) -> None:
        for item in tallies:
            windows = self.windows.setdefault(Stream(place.datacenter, place.topic, item.producer), {})
            known = windows.get(item.window_start)
            runs = item.runs if known is None else np.concatenate((known, item.runs))
            windows[item.window_start] = joined(runs, RUNS_OF_WINDOW_MAX)

    def _begin_anew(self, place: SourcePartition) -> None:
        """Forget a partition's ranges: what arrived in offsets that nobody counted is not known."""
        for counter in [item for item in self.pieces if item.place[1:] == place[1:]]:
            del self.pieces[counter]
        self.begun = {item for item in self.begun if item[1:] != place[1:]}

    def _settle(self, place: SourcePartition, whole_at: WholeAt, before_ms: int) -> None:
        live_key, key = Counter("live", place), Counter("offline", place._replace(datacenter=""))
        live, aggregate = self.pieces.get(live_key, []), self.pieces.get(key, [])
        source = self._source(place, live, whole_at)
        judged = judge_source(source, aggregate, self._settled_of(place))
        if not judged.is_part:
            return
        self.begun.add(place)
        number = next(
            (at for at, parcel in enumerate(live[: judged.passed]) if parcel.at_ms > before_ms), judged.passed
        )
        producers = {name for parcel in live for name in parcel.copies}
        done, rest = copies_in(live[:number], producers), copies_in(live[number:], producers)
        is_past = all(item.at_ms < source.whole_until_ms for item in aggregate if item.at_ms <= before_ms)
        # An event that comes again in the live log is settled with its last copy.
        if not number or not is_past or any(within(done[name], rest.get(name, EMPTY)).count for name in done):
            return
        self._take(place, judged, done)
        self.pieces[live_key] = live[number:]
        self.pieces[key] = [_without(parcel, done) for parcel in aggregate]
        self.pieces[key] = [parcel for parcel in self.pieces[key] if parcel.copies]

    def _take(self, place: SourcePartition, judged: AggregateJudged, done: Copies) -> None:
        """Make facts of some sequences, and remember them."""
        facts = self.facts.setdefault(place[:2], AggregateFacts())
        part = judged.of(
            lambda copies: {who: within(item, done.get(who, EMPTY)) for who, item in copies.items()}
        )
        facts.findings += self.findings_of(place, part)
        del facts.findings[:-FOUND_MAX]
        for producer, found in done.items():
            stream = Stream(place.datacenter, place.topic, producer)
            windows = self.windows.get(stream, {})
            left = once(found)
            for start in sorted(windows):
                of_window = within(left, depth(windows[start]))
                left = without(left, of_window)
                kinds = (part.live, part.arrived, part.lost, part.doubled)
                values = [within(copies.get(producer, EMPTY), of_window).count for copies in kinds]
                if any(values):
                    live, arrived, lost, doubled = values
                    facts.add(start, Counts(live=live, offline=arrived, lost=lost, duplicated=doubled))
            self.settled[stream] = once(total((self.settled.pop(stream, EMPTY), found)))
            remove = {start: depth(runs) for start, runs in windows.items()}
            remove_from(remove, [*remove], once(found))
            self.windows[stream] = {start: runs_in(item) for start, item in remove.items()}
            if not remove:
                del self.windows[stream]
        while len(self.settled) > SETTLED_MAX:
            del self.settled[next(iter(self.settled))]


def as_fields(ledger: AggregateLedger) -> dict[str, Any]:
    """Return all of it as JSON types."""
    return {
        "topics": sorted(ledger.topics),
        "pieces": [
            [
                counter.tier,
                *counter.place,
                [
                    [
                        item.first,
                        item.next,
                        item.at_ms,
                        {name: found.as_json() for name, found in item.copies.items()},
                    ]
                    for item in items
                ],
            ]
            for counter, items in ledger.pieces.items()
        ],
        "windows": [
            [*stream, [[start, runs.tolist()] for start, runs in windows.items()]]
            for stream, windows in ledger.windows.items()
        ],
        "settled": [[*stream, found.as_json()] for stream, found in ledger.settled.items()],
        "begun": sorted(ledger.begun),
        "facts": [
            [
                *topic,
                [[start, asdict(counts)] for start, counts in found.windows.items()],
                [*map(asdict, found.findings)],
            ]
            for topic, found in ledger.facts.items()
        ],
    }


def from_fields(fields: Any) -> AggregateLedger:
    """Undo `as_fields`; None: there is no aggregate."""
    ledger = AggregateLedger()
    if fields is None:
        return ledger
    ledger.topics = set(fields["topics"])
    for tier, datacenter, topic, partition, items in fields["pieces"]:
        ledger.pieces[Counter(tier, SourcePartition(datacenter, topic, partition))] = [
            Parcel(
                first=first,
                next=following,
                at_ms=at_ms,
                copies={name: depth_from_json(found) for name, found in copies.items()},
            )
            for first, following, at_ms, copies in items
        ]
    for *stream, windows in fields["windows"]:
        ledger.windows[Stream(*stream)] = {
            start: np.array(runs, dtype=np.int64).reshape(-1, 2) for start, runs in windows
        }
    ledger.settled = {Stream(*stream): depth_from_json(found) for *stream, found in fields["settled"]}
    ledger.begun = {SourcePartition(*place) for place in fields["begun"]}
    for datacenter, topic, windows, findings in fields["facts"]:
        ledger.facts[datacenter, topic] = AggregateFacts(
            {start: Counts(**counts) for start, counts in windows},
            [Finding(**{**item, "stream": Stream(*item["stream"])}) for item in findings],
        )
    return ledger


def is_aggregate(counter: Counter) -> bool:
    """Whether it is a partition of the offline cluster that no datacenter's name stands before."""
    return counter.tier == "offline" and not counter.place.datacenter


def _behind_hole(links: Sequence[Link]) -> Sequence[Link]:
    """Return the ranges behind the last one that tells of no event."""
    holes = [at for at, link in enumerate(links) if not isinstance(link, Counted) or link.batches is not None]
    return links[holes[-1] + 1 :] if holes else links


def _without(parcel: Parcel, done: Copies) -> Parcel:
    copies = {name: without(found, done.get(name, EMPTY)) for name, found in parcel.copies.items()}
    return replace(parcel, copies={name: found for name, found in copies.items() if found.count})
