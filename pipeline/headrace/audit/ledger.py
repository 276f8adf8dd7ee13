"""Everything the audit knows: a fold of count records, accounts, arrivals, findings and the warehouse's files.

Owns what each tier was seen to hold, per stream, and how far each was counted. Invariants: an input that comes twice
changes nothing; no tier's numbers come from another tier's; what neighbours have long passed is folded into one step
function a stream and tier, so memory follows the number of faults, not of events. Pure: no I/O, no clock. What it means
is `reconcile`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np

from headrace.audit.coverage import Coverage
from headrace.audit.latency import Latencies, Place
from headrace.audit.records import Arrival, Barrier, Counted, CountRecord, MirrorFinding, Standstill
from headrace.audit.windows import EMPTY, Depth, Int64s, ProducerName, Stream, Tally, depth, total
from headrace.events.avro_schemas import REJECTED_SUFFIX
from headrace.events.monitoring import MonitoringEvent
from headrace.load.ranges import TopicPartition
from headrace.load.tables import split_topic

Tier = Literal["live", "offline", "warehouse"]
TIERS: Final[tuple[Tier, ...]] = ("live", "offline", "warehouse")
COUNTED_TIERS: Final[tuple[Tier, ...]] = ("live", "offline")
"""The tiers that counters count; the warehouse is counted by the auditor itself."""
LATE_AFTER_MS: Final = 60_000
BARRIERS_MAX: Final = 100
CLOCK_SKEW_MS: Final = 5_000
"""By how much the clocks of two datacenters may differ."""
BACKLOG_MAX: Final = 128
"""Parcels of a partition and tier; beyond it neighbouring ones are joined."""
WINDOWS_MAX: Final = 10_000
"""Windows of a stream that are remembered by time, the youngest ones."""
PROBLEMS_MAX: Final = 100
UNKNOWN_PAST_MS: Final = -(1 << 62)
"""Earlier than any time."""


class ForeignLedgerError(Exception):
    """The ledger has read more than there is: it belongs to another cluster or warehouse."""


class Counter(NamedTuple):
    """One partition in one tier."""

    tier: Tier
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """Copies of each producer's sequences in offsets [first, next) of one partition."""

    first: int
    next: int
    copies: Mapping[str, Depth]
    at_ms: int = 0
    """The counter's clock when it counted; 0 where that does not matter."""


PlacedTallies = tuple[Place, int, int, tuple[Tally, ...]]
"""A partition, the offsets [first, next) of it, and their tallies."""


class OpenAccount(NamedTuple):
    """What was acknowledged of one window, in an account at an offset of the monitoring topic."""

    partition: int
    offset: int
    window_start: int
    acknowledged: Depth


@dataclass(slots=True)
class Accounts:
    """What a producer says of one topic. `open`: accounts that the live counts are not known to be past yet."""

    acknowledged: Depth = EMPTY
    unjudged: Depth = EMPTY
    """Of these, what may lie in offsets that were never counted in the live tier."""
    undelivered: Depth = EMPTY
    open: list[OpenAccount] = field(default_factory=list)
    begun_ms: int = 0
    """Nothing was published before, by the account that came before the first event; 0 without one."""
    complete_until: int = 0
    heard_at: int = 0
    next_sequence: int = 0
    is_closed: bool = False


@dataclass(slots=True)
class Ledger:
    """See the module's text; `late_after_ms` is the bound behind which an event counts as late."""

    late_after_ms: int = LATE_AFTER_MS
    read: dict[TopicPartition, int] = field(default_factory=dict)
    """The next offset to read of each input."""
    coverage: dict[Counter, Coverage] = field(default_factory=dict)
    counted: set[tuple[Tier, str, str]] = field(default_factory=set)
    """(tier, datacenter, topic) of which a counter has said anything, empty topics included."""
    settled: dict[tuple[Tier, Stream], Depth] = field(default_factory=dict)
    unjudged: dict[tuple[Tier, Tier, Stream], Depth] = field(default_factory=dict)
    """What is settled of a tier, but may lie in offsets that a neighbour never counted."""
    accounts: dict[Stream, Accounts] = field(default_factory=dict)
    barriers: list[Barrier] = field(default_factory=list)
    """Of the live tiers, as long as they are not in force for all of their topics."""
    passed: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    """By (datacenter, topic): accounts below these offsets of the monitoring topic are counted in the live tier."""
    whole_at: dict[tuple[str, str], int] = field(default_factory=dict)
    """By (datacenter, topic): the live log's ends at this time are counted."""
    standstills: dict[Counter, str] = field(default_factory=dict)
    skipped: dict[Counter, str] = field(default_factory=dict)
    mirror_findings: dict[str, MirrorFinding] = field(default_factory=dict)
    files: dict[str, set[str]] = field(default_factory=dict)
    """Data files counted, by table."""
    commits: dict[str, int] = field(default_factory=dict)
    """The sequence number of the last snapshot of each table that was read."""
    rows_forgotten: set[str] = field(default_factory=set)
    """Files whose rows were still waiting for their times when the ledger was saved."""
    backlog: dict[Counter, list[Parcel]] = field(default_factory=dict)
    """What is counted for good, but not yet by all neighbours; in the order of offsets."""
    loaded: dict[Place, int] = field(default_factory=dict)
    """The offset up to which the warehouse holds a partition."""
    dead_letters: dict[tuple[str, str], int] = field(default_factory=dict)
    """Events of (datacenter, topic) that are kept as dead letters of the warehouse; they count as being there."""
    unread: set[TopicPartition] = field(default_factory=set)
    """Inputs whose leader did not answer last time."""
    foreign: dict[tuple[Tier, str, str], int] = field(default_factory=dict)
    producers: dict[str, ProducerName] = field(default_factory=dict)
    """Server and service of each producer, by what its accounts and events say."""
    windows: dict[Stream, dict[int, list[int]]] = field(default_factory=dict)
    """Lowest and highest sequence of each window."""
    problems: list[str] = field(default_factory=list)
    """What could not be read of the inputs, in sentences."""
    latencies: Latencies = field(init=False)

    def __post_init__(self) -> None:
        self.latencies = Latencies(self.late_after_ms)

    # -- inputs

    def on_count(self, record: CountRecord) -> None:
        """Take a record of a counter."""
        self.counted |= {(record.tier, place.datacenter, place.topic) for place in _places(record)}
        if isinstance(record, Barrier):
            if record.tier == "live":
                self.barriers.append(record)
                del self.barriers[:-BARRIERS_MAX]
            return
        counter = Counter(record.tier, *_places(record))
        coverage = self.coverage.setdefault(counter, Coverage())
        if isinstance(record, Standstill) and record.next <= record.first:
            self.standstills[counter] = record.reason
            return
        if not coverage.add(record):
            return
        self.standstills.pop(counter, None)
        if isinstance(record, Standstill):
            self.skipped[counter] = record.reason
            return
        self._note_windows(counter.place, record.tallies)
        for producer, name in record.producers.items():
            self.producers.setdefault(producer, name)
        key = (record.tier, counter.place.datacenter, counter.place.topic)
        self.foreign[key] = self.foreign.get(key, 0) + record.foreign

    def on_account(self, source: TopicPartition, offset: int, event: MonitoringEvent) -> None:
        """Take a monitoring event that lies at this offset of `<datacenter>.headrace.monitoring`.

        What it says counts once, however often it is there: an account names its sequences.
        """
        header, account = event.header, event.account
        datacenter = split_topic(source.topic)[0]
        stream = Stream(datacenter, event.topic, header.producer)
        runs = np.array([run[:2] for run in account.acknowledgements], dtype=np.int64).reshape(-1, 2)
        claimed = Tally(
            producer=header.producer,
            window_start=account.window_start,
            count=account.count,
            fingerprint=account.fingerprint,
            runs=runs,
        )
        if not claimed.is_sound:
            self.problem(
                f"server {header.server}, service {header.service}: an account of producer {header.producer} does not have "
                "the fingerprint of its runs"
            )
            return
        self.producers[header.producer] = ProducerName(header.server, header.service)
        entry = self.accounts.setdefault(stream, Accounts())
        if len(runs):
            entry.open.append(OpenAccount(source.partition, offset, account.window_start, depth(runs)))
        self._take_times(stream, event, entry)
        self._note_windows(Place(datacenter, event.topic, -1), (claimed,))

    def _take_times(self, stream: Stream, event: MonitoringEvent, entry: Accounts) -> None:
        account = event.account
        if account.undelivered:
            missing = np.array([item[:2] for item in account.undelivered], dtype=np.int64)
            entry.undelivered = total((entry.undelivered, depth(missing)))
        for run in account.acknowledgements:
            self.latencies.on_acknowledged(stream, *run)
        entry.complete_until = max(entry.complete_until, account.complete_until)
        entry.heard_at = max(entry.heard_at, event.header.time)
        entry.next_sequence = max(entry.next_sequence, account.next_sequence)
        if not account.next_sequence:
            entry.begun_ms = max(entry.begun_ms, account.complete_until)
        entry.is_closed |= account.kind == "closing"

    def on_arrival(self, arrival: Arrival) -> None:
        place = place_of(arrival.partition)
        self.latencies.on_appended(place, arrival.first, arrival.last, arrival.append_ms)

    def on_mirror_finding(self, finding: MirrorFinding) -> None:
        self.mirror_findings[finding.id] = finding

    def on_file(self, table: str, file: str, found: Iterable[PlacedTallies]) -> None:
        """Take a data file of the warehouse, rows and dead letters alike."""
        counted = self.files.setdefault(table, set())
        if file in counted:
            return
        # All of it is read before any of it counts: a file that cannot be read is tried again.
        placed = list(found)
        counted.add(file)
        for place, first, following, tallies in placed:
            parcel = Parcel(first=first, next=following, copies=copies_of(tallies))
            self.backlog.setdefault(Counter("warehouse", place), []).append(parcel)
            self._note_windows(place, tallies)

    def on_loaded(self, place: Place, first: int, next_offset: int, committed_ms: int) -> None:
        """Take what one snapshot brought."""
        if next_offset > self.loaded.get(place, 0):
            self.latencies.on_committed(place, first, next_offset - 1, committed_ms)
            self.loaded[place] = next_offset

    def on_dead_letters(self, place: Place, events: int, foreign: int) -> None:
        """Take how many dead letters of a file are events, and how many are not."""
        key = (place.datacenter, place.topic)
        self.dead_letters[key] = self.dead_letters.get(key, 0) + events
        foreign_key: tuple[Tier, str, str] = ("warehouse", *key)
        self.foreign[foreign_key] = self.foreign.get(foreign_key, 0) + foreign

    def forget_warehouse(self) -> None:
        """Count the warehouse anew: files that were counted are gone."""
        self.files.clear()
        self.latencies.waiting.clear()
        self.backlog = {key: value for key, value in self.backlog.items() if key.tier != "warehouse"}
        self.dead_letters.clear()
        self.foreign = {key: value for key, value in self.foreign.items() if key[0] != "warehouse"}
        self.settled = {key: value for key, value in self.settled.items() if key[0] != "warehouse"}
        self.unjudged = {key: value for key, value in self.unjudged.items() if key[0] != "warehouse"}

    def problem(self, sentence: str) -> None:
        if sentence not in self.problems:
            self.problems.append(sentence)
            del self.problems[:-PROBLEMS_MAX]

    # -- what follows

    def settle(self, now_ms: int) -> None:
        """Fold what all neighbours have passed, and observe the latencies that are known."""
        self.barriers = [barrier for barrier in self.barriers if not self._apply(barrier)]
        unseen = self._unseen()
        for stream, entry in self.accounts.items():
            self._settle_accounts(
                stream, entry, unseen.get((stream.datacenter, stream.topic), UNKNOWN_PAST_MS)
            )
        for counter, coverage in self.coverage.items():
            links = [_parcel(link) for link in coverage.fold() if isinstance(link, Counted)]
            self.backlog.setdefault(counter, []).extend(links)
        for counter, parcels in self.backlog.items():
            self.backlog[counter] = self._settle_backlog(counter, parcels)
        self.latencies.join(now_ms)

    def position(self, tier: Tier, place: Place) -> int:
        """Return the offset up to which a partition is counted in a tier; -1 where nothing is."""
        if tier == "warehouse":
            return self.loaded.get(place, -1)
        coverage = self.coverage.get(Counter(tier, place))
        return coverage.position if coverage is not None else -1

    def has_passed(self, tier: Tier, counter: Counter, parcel: Parcel) -> bool:
        """Whether a tier is counted beyond a neighbour's parcel.

        Where the live log's ends were counted later than the offline parcel, the live log has nothing beyond them.
        """
        if self.position(tier, counter.place) >= parcel.next:
            return True
        if (tier, counter.tier) != ("live", "offline"):
            return False
        whole_at = self.whole_at.get((counter.place.datacenter, counter.place.topic), 0)
        return whole_at > parcel.at_ms + CLOCK_SKEW_MS

    def is_judged(self, tier: Tier, counter: Counter, parcel: Parcel) -> bool:
        """Whether a tier counted all of a neighbour's parcel, so that what is missing there was lost or doubled."""
        if not self.has_passed(tier, counter, parcel):
            return False
        coverage = self.coverage.get(Counter(tier, counter.place))
        holes = coverage.uncounted() if coverage is not None else ()
        return not any(hole.overlaps(parcel.first, parcel.next) for hole in holes)

    def open_parcels(self) -> Iterator[tuple[Counter, Parcel]]:
        """Yield what is counted but not settled."""
        for counter, parcels in self.backlog.items():
            yield from ((counter, parcel) for parcel in parcels)
        for counter, coverage in self.coverage.items():
            yield from ((counter, _parcel(link)) for link in coverage.chain if isinstance(link, Counted))

    def _apply(self, barrier: Barrier) -> bool:
        """Let a barrier count for the topics that are counted up to it; returns whether these are all of its topics."""
        behind = {
            partition.topic
            for partition, offset in barrier.counted.items()
            if offset > 0 and self.position("live", Place(barrier.datacenter, *partition)) < offset
        }
        for topic in barrier.whole - behind:
            key = (barrier.datacenter, topic)
            self.whole_at[key] = max(barrier.at_ms, self.whole_at.get(key, 0))
            passed = self.passed.setdefault((barrier.datacenter, topic), {})
            for partition, offset in barrier.monitoring.items():
                passed[partition] = max(offset, passed.get(partition, 0))
        return not barrier.whole & behind

    def _unseen(self) -> dict[tuple[str, str], int]:
        """Return by (datacenter, topic) when the last of the offsets was written that the live tier never counted."""
        found: dict[tuple[str, str], int] = {}
        for (tier, place), coverage in self.coverage.items():
            for hole in coverage.uncounted() if tier == "live" else ():
                key = (place.datacenter, place.topic)
                found[key] = max(hole.until_ms, found.get(key, UNKNOWN_PAST_MS))
        return found

    def _settle_accounts(self, stream: Stream, entry: Accounts, unseen_until_ms: int) -> None:
        """Take the accounts that the live counts are past; what happened after the last uncounted offset is not there."""
        passed = self.passed.get((stream.datacenter, stream.topic), {})
        past = [item for item in entry.open if item.offset < passed.get(item.partition, 0)]
        if not past:
            return
        entry.open = [item for item in entry.open if item.offset >= passed.get(item.partition, 0)]
        entry.acknowledged = total((entry.acknowledged, *(item.acknowledged for item in past)))
        unjudged = [
            item.acknowledged
            for item in past
            if max(item.window_start, entry.begun_ms) <= unseen_until_ms + CLOCK_SKEW_MS
        ]
        entry.unjudged = total((entry.unjudged, *unjudged))

    def _settle_backlog(self, counter: Counter, parcels: list[Parcel]) -> list[Parcel]:
        """Settle what all neighbours have passed; of a long rest, neighbouring parcels become one."""
        rest: list[Parcel] = []
        for parcel in parcels:
            tiers = neighbours(counter)
            if all(self.has_passed(tier, counter, parcel) for tier in tiers):
                unjudged = [tier for tier in tiers if not self.is_judged(tier, counter, parcel)]
                for producer, copies in parcel.copies.items():
                    stream = Stream(counter.place.datacenter, counter.place.topic, producer)
                    key = (counter.tier, stream)
                    self.settled[key] = total((self.settled.get(key, EMPTY), copies))
                    for tier in unjudged:
                        pair = (counter.tier, tier, stream)
                        self.unjudged[pair] = total((self.unjudged.get(pair, EMPTY), copies))
            else:
                rest.append(parcel)
        if len(rest) <= BACKLOG_MAX:
            return rest
        return [_joined(rest[at : at + 2]) for at in range(0, len(rest), 2)]

    def _note_windows(self, place: Place, tallies: Iterable[Tally]) -> None:
        for item in tallies:
            if not len(item.runs):
                continue
            windows = self.windows.setdefault(Stream(place.datacenter, place.topic, item.producer), {})
            first, last = int(item.runs.min()), int(item.runs.max())
            known = windows.setdefault(item.window_start, [first, last])
            known[:] = min(first, known[0]), max(last, known[1])
            if len(windows) > WINDOWS_MAX:
                del windows[min(windows)]


def neighbours(counter: Counter) -> tuple[Tier, ...]:
    """Return the tiers that a tier's counts are compared with; dead-letter topics are not loaded."""
    if counter.tier == "offline":
        return ("live",) if is_rejected(counter.place.topic) else ("live", "warehouse")
    return ("offline",)


def is_rejected(topic: str) -> bool:
    """Whether a topic is a dead-letter topic of lines that did not parse."""
    return topic.endswith(REJECTED_SUFFIX)


def copies_of(tallies: Iterable[Tally]) -> dict[str, Depth]:
    """Return each producer's copies."""
    runs: dict[str, list[Int64s]] = {}
    for item in tallies:
        runs.setdefault(item.producer, []).append(item.runs)
    return {producer: depth(np.concatenate(found)) for producer, found in runs.items()}


def _parcel(link: Counted) -> Parcel:
    return Parcel(first=link.first, next=link.next, copies=copies_of(link.tallies), at_ms=link.at_ms)


def _joined(parcels: list[Parcel]) -> Parcel:
    producers = {producer for parcel in parcels for producer in parcel.copies}
    return Parcel(
        first=parcels[0].first,
        next=max(parcel.next for parcel in parcels),
        at_ms=max(parcel.at_ms for parcel in parcels),
        copies={
            producer: total(parcel.copies.get(producer, EMPTY) for parcel in parcels)
            for producer in producers
        },
    )


def place_of(partition: TopicPartition) -> Place:
    """Return the live partition that a partition of the offline cluster copies."""
    return Place(*split_topic(partition.topic), partition.partition)


def _places(record: CountRecord) -> list[Place]:
    """Return the partitions that a record is about, by the names of the live datacenter that they come from."""
    partitions = record.counted if isinstance(record, Barrier) else (record.partition,)
    if record.tier == "live":
        return [Place(record.datacenter, *partition) for partition in partitions]
    return [place_of(partition) for partition in partitions]
