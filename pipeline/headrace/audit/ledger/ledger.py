"""Everything the audit knows: a fold of count records, accounts, arrivals, findings and the warehouse's files.

Owns what each tier was seen to hold of what is still open, per stream, and what changed since it was last judged.
Invariants: an input that comes twice changes nothing; no tier's numbers come from another tier's; what neighbours have
long passed is folded into one step function a stream and tier; windows that are settled leave it (`judging/settling`), so
memory follows what is moving and the number of faults. Pure: no I/O, no clock. What it means is `judging/reconcile`'s matter.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

import numpy as np

from headrace.audit.acceptances import Acceptances
from headrace.audit.latency import Latencies, SourcePartition
from headrace.audit.ledger.accounts import Accounts, unsound
from headrace.audit.ledger.aggregates import AggregateLedger
from headrace.audit.ledger.barriers import Barriers
from headrace.audit.ledger.batch_ledger import BatchLedger
from headrace.audit.ledger.changes import Changes
from headrace.audit.ledger.copies import Copies
from headrace.audit.ledger.coverage import Coverage, Link
from headrace.audit.ledger.facts import Facts
from headrace.audit.ledger.passings import Passed
from headrace.audit.ledger.reach import Reach
from headrace.audit.modes import ModesOverTime
from headrace.audit.parcels import (
    TIERS,
    Counter,
    Parcel,
    PlacedTallies,
    Tier,
    copies_of,
    place_of,
)
from headrace.audit.period import ALWAYS, END_MS, Period
from headrace.audit.records import Arrival, Barrier, Counted, CountRecord, MirrorFinding, Standstill
from headrace.audit.windows import (
    AGAIN,
    EMPTY,
    RUNS_OF_WINDOW_MAX,
    WINDOW_SIZE_MS,
    Depth,
    Int64s,
    ProducerName,
    Stream,
    Tally,
    depth,
    excess,
    joined,
    once,
    runs_in,
    total,
    within,
)
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.monitoring import MonitoringEvent
from headrace.load.tables import split_topic

Key = TypeVar("Key")
LATE_AFTER_MS: Final = 60_000
HELD_MS: Final = 600_000
"""Counted ranges are folded when they are so old; by then a second counter has told of the same offsets, if there is one."""
WINDOWS_MAX: Final = 10_000
"""Windows of a stream that are remembered by time, the youngest ones."""
PROBLEMS_MAX: Final = 100
SKIPS_MAX: Final = 100
"""Skipped ranges of a partition and tier whose reasons are remembered."""


class ForeignLedgerError(Exception):
    """The ledger has read more than there is: it belongs to another cluster or warehouse."""


class Promise(NamedTuple):
    """A watermark that was told, and how far the partitions of its topic were counted in the live tier by then."""

    until_ms: int
    positions: Mapping[int, int]


@dataclass(slots=True)
class Ledger:
    """See the module's text; `late_after_ms` is the bound behind which an event counts as late."""

    late_after_ms: int = LATE_AFTER_MS
    warehouse: str = ""
    """The name of the further warehouse that this is the ledger of; empty: the first one."""
    scope: str = ""
    """The topics that are read, in words; empty: all."""
    read: dict[TopicPartition, int] = field(default_factory=dict)
    """The next offset to read of each input."""
    counted: set[tuple[Tier, str, str]] = field(default_factory=set)
    """(tier, datacenter, topic) of which a counter has said anything, empty topics included."""
    compacted: set[tuple[Tier, str, str]] = field(default_factory=set)
    """(tier, datacenter, topic) that a counter saw under a cleanup.policy that compacts."""
    reach: Reach = field(default_factory=Reach)
    copies: Copies = field(init=False)
    barriers: Barriers = field(init=False)
    batches: BatchLedger = field(default_factory=BatchLedger)
    aggregates: AggregateLedger = field(default_factory=AggregateLedger)
    modes: ModesOverTime = field(default_factory=ModesOverTime)
    facts: Facts = field(default_factory=Facts)
    rebuilt: dict[tuple[str, str], int] = field(default_factory=dict)
    """While all is read again after the ledger was lost: up to when topics are settled, of which nothing that is read is new."""
    changes: Changes = field(default_factory=Changes)
    accounts: dict[Stream, Accounts] = field(default_factory=dict)
    standstills: dict[Counter, str] = field(default_factory=dict)
    skipped: dict[Counter, list[tuple[str, Period]]] = field(default_factory=dict)
    """Why offsets were never counted, and the time of the windows that may lie in them; the youngest ones."""
    mirror_findings: dict[str, MirrorFinding] = field(default_factory=dict)
    acceptances: Acceptances = field(init=False)
    files: dict[str, set[str]] = field(default_factory=dict)
    """Data files counted, by table."""
    tables: dict[str, str] = field(default_factory=dict)
    """The uuid of each table of the warehouse."""
    commits: dict[str, int] = field(default_factory=dict)
    """The sequence number of the last snapshot of each table that was read."""
    rows_forgotten: set[str] = field(default_factory=set)
    """Files whose rows were still waiting for their times when the ledger was saved."""
    known: dict[tuple[str, str], set[Stream]] = field(default_factory=dict)
    """The streams of which something is open, by (datacenter, topic)."""
    topics_of: Multiset[str] = field(default_factory=Multiset)
    """How many of these each producer has."""
    waiting: set[Stream] = field(default_factory=set)
    """Those with accounts that the live counts are not known to be past."""
    recounted: dict[SourcePartition, int] = field(default_factory=dict)
    """Rows below these offsets had been counted when the warehouse was last counted anew."""
    dead_letters: dict[tuple[str, str], int] = field(default_factory=dict)
    """Events of (datacenter, topic) that are kept as dead letters of the warehouse; they count as being there."""
    unread: set[TopicPartition] = field(default_factory=set)
    """Inputs whose leader did not answer last time."""
    foreign: dict[tuple[Tier, str, str], int] = field(default_factory=dict)
    producers: dict[str, ProducerName] = field(default_factory=dict)
    """Server and service of each producer, by what its accounts and events say."""
    windows: dict[Stream, dict[int, Int64s]] = field(default_factory=dict)
    """Runs of sequences by the start of their window."""
    unaccounted: dict[Stream, int] = field(default_factory=dict)
    """When a stream was first counted in the live tier, by the counter's clock, of which no account has arrived."""
    promised: dict[tuple[str, str], Promise] = field(default_factory=dict)
    """The watermarks that were told, by (datacenter, topic); they never go back. Two empty names: that of all."""
    overdue: dict[Stream, Depth] = field(default_factory=dict)
    """Events that were first counted after the watermark of their window was told."""
    problems: dict[str, Period] = field(default_factory=dict)
    """What could not be read of the inputs, in sentences, and for which time that matters."""
    latencies: Latencies = field(init=False)

    def __post_init__(self) -> None:
        self.latencies = Latencies(self.late_after_ms)
        self.acceptances = Acceptances(self.warehouse)
        self.barriers = Barriers(self.reach, self.changes)
        self.copies = Copies(self.reach, self.changes, self._copies_of, self._folded)

    def begun_anew(self) -> Ledger:
        """Return an empty ledger of the same warehouse and bounds, with what was promised."""
        anew = Ledger(self.late_after_ms, self.warehouse, self.scope)
        anew.promised = self.promised
        return anew

    # -- inputs

    def on_count(self, record: CountRecord) -> None:
        """Take a record of a counter."""
        for place in _places(record):
            key = (record.tier, place.datacenter, place.topic)
            if key not in self.counted:
                self.counted.add(key)
                self.changes.topics.add(key[1:])
        if isinstance(record, Barrier):
            if record.tier == "live":
                self.modes.take(record.datacenter, record.modes, record.whole, record.at_ms)
                self.barriers.add(record)
            return
        counter = Counter(record.tier, *_places(record))
        record = self._without_known(counter.place, record)
        coverage = self.reach.coverage.setdefault(counter, Coverage())
        if isinstance(record, Standstill) and record.next <= record.first:
            self.standstills[counter] = record.reason
            return
        if not coverage.add(record):
            return
        self.reach.note(counter.place)
        self.changes.note(counter.place)
        self.batches.note(counter, record)
        self.aggregates.note(counter)
        self.copies.held.add(counter)
        self.standstills.pop(counter, None)
        if isinstance(record, Standstill):
            period = Period(coverage.window_below(record.first), record.at_ms or END_MS)
            self.skipped.setdefault(counter, []).append((record.reason, period))
            del self.skipped[counter][:-SKIPS_MAX]
            return
        if record.tier == "live":
            self._note_arrival(counter.place, record)
            self._note_again(counter.place, record)
        if record.is_compacted:
            self.compacted.add((record.tier, counter.place.datacenter, counter.place.topic))
        self._note_windows(counter.place, record.tallies)
        for producer, name in record.producers.items():
            self._name(producer, self.producers.get(producer, name))
        topic = (counter.place.datacenter, counter.place.topic)
        if self.is_compacted(*topic):
            # What compaction removed is a matter of all streams of a topic.
            self.changes.topics.add(topic)
        self.foreign[record.tier, *topic] = self.foreign.get((record.tier, *topic), 0) + record.foreign

    def on_account(self, source: TopicPartition, offset: int, event: MonitoringEvent) -> None:
        """Take a monitoring event that lies at this offset of `<datacenter>.headrace.monitoring`.

        What it says counts once, however often it is there: an account names its sequences.
        """
        header, account = event.header, event.account
        datacenter = split_topic(source.topic)[0]
        stream = Stream(datacenter, event.topic, header.producer)
        self.changes.streams.add(stream)
        runs = np.array([run[:2] for run in account.acknowledgements], dtype=np.int64).reshape(-1, 2)
        claimed = Tally(
            producer=header.producer,
            window_start=account.window_start,
            count=account.count,
            fingerprint=account.fingerprint,
            runs=runs,
        )
        wrong = unsound(account) or ("" if claimed.is_sound else "does not have the fingerprint of its runs")
        if wrong:
            self.problem(
                f"server {header.server}, service {header.service}: an account of producer {header.producer} {wrong}",
                Period(account.window_start, account.window_start + max(1, account.window_size_ms)),
            )
            return
        if self.modes.at(datacenter, event.topic, account.window_start) != "events":
            # Nobody counts these events one by one; that the producer goes on, or ends, still matters to what came before.
            if stream not in self.accounts:
                return
            account = replace(account, acknowledgements=(), undelivered=())
            runs = runs[:0]
        self._name(header.producer, ProducerName(header.server, header.service, *event.process))
        self.unaccounted.pop(stream, None)
        if stream not in self.accounts:
            self.accounts[stream] = Accounts(settled=self.facts.gone.pop(stream, EMPTY))
            self.know(stream)
            if self.rebuilt and account.first_sequence > 0:
                self.accounts[stream].settled = depth(np.array([[0, account.first_sequence - 1]]))
        entry = self.accounts[stream]
        if self._is_known(stream.datacenter, stream.topic, account.window_start):
            entry.settled = once(total((entry.settled, depth(runs))))
        runs = runs_in(excess(depth(runs), within(depth(runs), entry.settled)))
        entry.take(source.partition, offset, account, runs, header.time)
        if entry.open:
            self.waiting.add(stream)
        for run in account.acknowledgements:
            self.latencies.on_acknowledged(stream, *run)
        self._note_runs(stream, claimed.window_start, runs)

    def on_arrival(self, arrival: Arrival, host: str = "") -> None:
        """Take when the broker on a host appended offsets of a copy."""
        place = place_of(arrival.partition)
        self.latencies.on_appended(place, arrival.first, arrival.last, arrival.append_ms, host)

    def on_mirror_finding(self, finding: MirrorFinding) -> None:
        self.mirror_findings[finding.id] = finding
        if finding.kind == "loss" and 0 <= finding.first_offset <= finding.last_offset:
            place = SourcePartition(finding.datacenter, finding.topic, finding.partition)
            span = (finding.first_offset, finding.last_offset + 1)
            self.reach.passed_over.setdefault(place, set()).add(span)
            self.changes.note(place)

    def on_file(self, table: str, file: str, found: Iterable[PlacedTallies]) -> None:
        """Take a data file of the warehouse, rows and dead letters alike."""
        counted = self.files.setdefault(table, set())
        if file in counted:
            return
        # All of it is read before any of it counts: a file that cannot be read is tried again.
        placed = list(found)
        counted.add(file)
        for place, first, following, tallies in placed:
            self.reach.note(place)
            self.changes.note(place)
            tallies = tuple(item for item in self._new_of(place, tallies) if self._is_by_events(place, item))
            is_again = first >= self.recounted.get(place, 0)
            if not is_again:
                tallies = tuple(item for item in tallies if self._is_open(place, item))
            copies = self._copies_of(place, tallies, with_further=is_again)
            self.changes.streams |= {Stream(place.datacenter, place.topic, producer) for producer in copies}
            parcel = Parcel(first=first, next=following, copies=copies)
            self.copies.backlog.setdefault(Counter("warehouse", place), []).append(parcel)
            self._note_windows(place, tallies)

    def on_loaded(
        self, place: SourcePartition, first: int, next_offset: int, committed_ms: int, host: str = ""
    ) -> None:
        """Take what one snapshot brought, which the driver on a host committed."""
        if next_offset > self.reach.loaded.get(place, 0):
            if place not in self.reach.passings.renewed:
                self.latencies.on_committed(place, first, next_offset - 1, committed_ms, host)
            self.reach.loaded[place] = next_offset
            self.changes.note(place)

    def on_passed(self, item: Passed) -> None:
        """Take where a person let the load go on."""
        if self.reach.passings.add(item):
            self.changes.note(item.place)
            self.reach.loaded[item.place] = max(item.next, self.reach.loaded.get(item.place, 0))

    def on_dead_letters(self, place: SourcePartition, events: int, foreign: int) -> None:
        """Take how many dead letters of a file are events, and how many are not."""
        key = (place.datacenter, place.topic)
        self.dead_letters[key] = self.dead_letters.get(key, 0) + events
        foreign_key: tuple[Tier, str, str] = ("warehouse", *key)
        self.foreign[foreign_key] = self.foreign.get(foreign_key, 0) + foreign

    def forget_warehouse(self) -> None:
        """Count the warehouse anew: files that were counted are gone. What is settled stays as it is."""
        self.recounted = dict(self.reach.loaded)
        self.copies.forget_warehouse()
        self.changes.is_all = True
        self.files.clear()
        self.latencies.waiting.clear()
        self.dead_letters.clear()
        self.foreign = {key: value for key, value in self.foreign.items() if key[0] != "warehouse"}

    def problem(self, sentence: str, period: Period = ALWAYS) -> None:
        """Note what could not be read, and the time of the windows that it may be about."""
        self.problems[sentence] = period
        while len(self.problems) > PROBLEMS_MAX:
            del self.problems[next(iter(self.problems))]

    # -- what follows

    def settle(self, now_ms: int) -> None:
        """Fold what all neighbours have passed, and observe the latencies that are known; only where something changed."""
        self.barriers.settle(self.read)
        self._settle_accounts()
        self.copies.settle(self.changes.taken_places(), now_ms - HELD_MS)
        self.aggregates.settle(self.reach.whole_at, now_ms - HELD_MS)
        self.latencies.join(now_ms)

    def _settle_accounts(self) -> None:
        """Take the accounts that the live counts are past."""
        unseen: dict[tuple[str, str], int] = {}
        for stream in sorted(self.waiting):
            topic = (stream.datacenter, stream.topic)
            if topic not in unseen:
                unseen[topic] = self.reach.unseen_until(*topic)
            if self.accounts[stream].settle(self.barriers.passed.get(topic, {}), unseen[topic]):
                self.changes.streams.add(stream)
            if not self.accounts[stream].open:
                self.waiting.discard(stream)

    def promise(self, watermarks: Mapping[tuple[str, str], int]) -> None:
        """Note watermarks, by (datacenter, topic), that are going to be told; one that was told stays."""
        for topic, until_ms in watermarks.items():
            told = self.promised.get(topic)
            if told is None or until_ms > told.until_ms:
                self.promised[topic] = Promise(until_ms, self.reach.live_positions(*topic))

    def changed(self) -> set[Stream] | None:
        """Return the streams whose evidence may differ from when this was last asked; None: of all."""
        self.changes.streams |= self.latencies.newly_late
        self.latencies.newly_late.clear()
        return self.changes.taken(self.copies.judged_anew, lambda topic: self.known.get(topic, set()))

    def streams(self) -> set[Stream]:
        """Return the streams of which something is open."""
        return set().union(*self.known.values())

    def is_compacted(self, datacenter: str, topic: str) -> bool:
        return any((tier, datacenter, topic) in self.compacted for tier in TIERS)

    def reindex(self) -> None:
        """Find out what the other fields say of open streams and places, after they were filled."""
        for place in [counter.place for counter in (*self.reach.coverage, *self.copies.backlog)]:
            self.reach.note(place)
        self.waiting = {stream for stream, entry in self.accounts.items() if entry.open}
        for stream in {*(stream for _, stream in self.copies.folded), *self.accounts, *self.windows}:
            self.know(stream)
        for counter, parcel in self.copies.open_parcels():
            for producer in parcel.copies:
                self.know(Stream(counter.place.datacenter, counter.place.topic, producer))
        self.copies.held = {counter for counter, found in self.reach.coverage.items() if found.chain}
        # What changed and was not folded when the state was written is not known any more.
        self.changes.places |= {counter.place for counter in self.copies.backlog}

    def know(self, stream: Stream) -> None:
        known = self.known.setdefault((stream.datacenter, stream.topic), set())
        if stream not in known:
            known.add(stream)
            self.topics_of[stream.producer_name] += 1

    def settled_of(self, stream: Stream) -> Depth:
        """Return the sequences of a stream that are settled, as far as they are remembered."""
        entry = self.accounts.get(stream)
        return self.facts.gone.get(stream, EMPTY) if entry is None else entry.settled

    def _note_arrival(self, place: SourcePartition, record: Counted) -> None:
        """Note whose events these are, and which of them came after the watermark of their window was told."""
        promise = self.promised.get((place.datacenter, place.topic))
        is_behind = promise is not None and record.first >= promise.positions.get(place.partition, 0)
        for item in record.tallies:
            stream = Stream(place.datacenter, place.topic, item.producer)
            if stream in self.facts.gone:
                continue
            if stream not in self.accounts:
                self.unaccounted.setdefault(stream, record.at_ms)
            if promise is not None and is_behind and item.window_start + WINDOW_SIZE_MS <= promise.until_ms:
                known = self.overdue.get(stream, EMPTY)
                self.overdue[stream] = once(total((known, depth(item.runs))))

    def _name(self, producer: str, name: ProducerName) -> None:
        self.producers[producer] = name
        self.latencies.on_producer(producer, name.server)

    def _note_windows(self, place: SourcePartition, tallies: Iterable[Tally]) -> None:
        for item in tallies if place.datacenter else ():
            stream = Stream(place.datacenter, place.topic, item.producer)
            runs = item.runs
            settled = self.settled_of(stream)
            if len(settled.edges):
                runs = runs_in(excess(depth(runs), within(depth(runs), settled)))
            self._note_runs(stream, item.window_start, runs)

    def _note_runs(self, stream: Stream, window_start: int, runs: Int64s) -> None:
        if not len(runs):
            return
        self.know(stream)
        self.changes.streams.add(stream)
        windows = self.windows.setdefault(stream, {})
        known = windows.get(window_start)
        runs = runs if known is None else np.concatenate((known, runs))
        windows[window_start] = joined(runs, RUNS_OF_WINDOW_MAX)
        if len(windows) > WINDOWS_MAX:
            del windows[min(windows)]

    def _note_again(self, place: SourcePartition, record: Counted) -> None:
        """Further copies of settled events belong to the window in which they were counted live."""
        for producer, copies in self._copies_of(place, record.tallies).items():
            stream = Stream(place.datacenter, place.topic, producer)
            if stream.is_again:
                runs = runs_in(copies)
                self._note_runs(stream, record.at_ms - record.at_ms % WINDOW_SIZE_MS, runs)

    def _copies_of(
        self, place: SourcePartition, tallies: Iterable[Tally], *, with_further: bool = True
    ) -> dict[str, Depth]:
        """Return each producer's copies; further ones of what is settled are those of a stream of their own."""
        if not place.datacenter:
            return {}  # Of an aggregate, which `aggregates` compares.
        found = copies_of(tallies)
        for producer, copies in list(found.items()):
            further = within(copies, self.settled_of(Stream(place.datacenter, place.topic, producer)))
            if further.count:
                found[producer] = excess(copies, further)
                found[producer + AGAIN] = further if with_further else EMPTY
        found = {producer: copies for producer, copies in found.items() if copies.count}
        for producer in found:
            self.know(Stream(place.datacenter, place.topic, producer))
        return found

    def _folded(self, counter: Counter, links: list[Link]) -> None:
        self.batches.on_folded(counter, links)
        self.aggregates.on_folded(counter, links)

    def _is_known(self, datacenter: str, topic: str, time_ms: int) -> bool:
        """Whether a time's window was settled before the ledger was lost."""
        end_ms = time_ms - time_ms % WINDOW_SIZE_MS + WINDOW_SIZE_MS
        return end_ms <= self.rebuilt.get((datacenter, topic), 0)

    def _without_known(self, place: SourcePartition, record: Link) -> Link:
        if isinstance(record, Standstill) or not self.rebuilt:
            return record
        return replace(record, tallies=self._new_of(place, record.tallies))

    def _new_of(self, place: SourcePartition, tallies: tuple[Tally, ...]) -> tuple[Tally, ...]:
        return tuple(
            item for item in tallies if not self._is_known(place.datacenter, place.topic, item.window_start)
        )

    def _is_by_events(self, place: SourcePartition, item: Tally) -> bool:
        return self.modes.at(place.datacenter, place.topic, item.window_start) == "events"

    def _is_open(self, place: SourcePartition, item: Tally) -> bool:
        """Whether a tally of a row that was counted before is not settled."""
        stream = Stream(place.datacenter, place.topic, item.producer)
        until_ms = self.facts.until_ms(place.datacenter, place.topic)
        return stream in self.accounts or item.window_start + WINDOW_SIZE_MS > until_ms


def _places(record: CountRecord) -> list[SourcePartition]:
    """Return the partitions that a record is about, by the names of the live datacenter that they come from."""
    partitions = record.counted if isinstance(record, Barrier) else (record.partition,)
    if record.tier == "live":
        return [SourcePartition(record.datacenter, *partition) for partition in partitions]
    return [place_of(partition) for partition in partitions]
