"""Everything the audit knows: a fold of count records, accounts, arrivals, findings and the warehouse's files.

Owns what each tier was seen to hold, per stream, and how far each was counted. Invariants: an input that comes twice
changes nothing; no tier's numbers come from another tier's; what neighbours have long passed is folded into one step
function a stream and tier, so memory follows the number of faults, not of events. Pure: no I/O, no clock. What it means
is `reconcile`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from headrace.audit.accounts import CLOCK_SKEW_MS, Accounts
from headrace.audit.coverage import Coverage, Uncounted
from headrace.audit.latency import Latencies, SourcePartition
from headrace.audit.parcels import (
    Counter,
    Parcel,
    PlacedTallies,
    Tier,
    copies_of,
    joined_parcel,
    neighbours,
    parcel_of,
    place_of,
)
from headrace.audit.passings import Passed, Passings
from headrace.audit.period import ALWAYS, BEGIN_MS, END_MS, Period
from headrace.audit.records import Arrival, Barrier, Counted, CountRecord, MirrorFinding, Standstill
from headrace.audit.windows import (
    EMPTY,
    WINDOW_SIZE_MS,
    Depth,
    Int64s,
    ProducerName,
    Stream,
    Tally,
    depth,
    joined,
    once,
    total,
)
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.avro_schemas import MONITORING_TOPIC
from headrace.events.monitoring import MonitoringEvent
from headrace.load.tables import split_topic

LATE_AFTER_MS: Final = 60_000
BARRIERS_MAX: Final = 100
BACKLOG_MAX: Final = 128
"""Parcels of a partition and tier; beyond it neighbouring ones are joined."""
WINDOWS_MAX: Final = 10_000
"""Windows of a stream that are remembered by time, the youngest ones."""
PROBLEMS_MAX: Final = 100
SKIPS_MAX: Final = 100
"""Skipped ranges of a partition and tier whose reasons are remembered."""
RUNS_OF_WINDOW_MAX: Final = 8
"""Runs of sequences that are remembered of a window; beyond it those are joined that lie nearest."""


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
    read: dict[TopicPartition, int] = field(default_factory=dict)
    """The next offset to read of each input."""
    coverage: dict[Counter, Coverage] = field(default_factory=dict)
    counted: set[tuple[Tier, str, str]] = field(default_factory=set)
    """(tier, datacenter, topic) of which a counter has said anything, empty topics included."""
    compacted: set[tuple[Tier, str, str]] = field(default_factory=set)
    """(tier, datacenter, topic) that a counter saw under a cleanup.policy that compacts."""
    removed: dict[Counter, int] = field(default_factory=dict)
    """Offsets without any record, of what is folded."""
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
    skipped: dict[Counter, list[tuple[str, Period]]] = field(default_factory=dict)
    """Why offsets were never counted, and the time of the windows that may lie in them; the youngest ones."""
    mirror_findings: dict[str, MirrorFinding] = field(default_factory=dict)
    passed_over: dict[SourcePartition, set[tuple[int, int]]] = field(default_factory=dict)
    """Offsets [first, next) that the mirror says will never be in the copy."""
    files: dict[str, set[str]] = field(default_factory=dict)
    """Data files counted, by table."""
    commits: dict[str, int] = field(default_factory=dict)
    """The sequence number of the last snapshot of each table that was read."""
    rows_forgotten: set[str] = field(default_factory=set)
    """Files whose rows were still waiting for their times when the ledger was saved."""
    backlog: dict[Counter, list[Parcel]] = field(default_factory=dict)
    """What is counted for good, but not yet by all neighbours; in the order of offsets."""
    loaded: dict[SourcePartition, int] = field(default_factory=dict)
    """The offset up to which the warehouse holds a partition, or passed it over."""
    passings: Passings = field(default_factory=Passings)
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
    unheard: list[Barrier] = field(default_factory=list)
    """Barriers of live tiers up to whose end the accounts are not read yet."""
    heard_until: dict[str, int] = field(default_factory=dict)
    """By datacenter: all accounts that were in its log at this time of its counter's clock are read."""
    promised: dict[tuple[str, str], Promise] = field(default_factory=dict)
    """The watermarks that were told, by (datacenter, topic); they never go back. Two empty names: that of all."""
    overdue: dict[Stream, Depth] = field(default_factory=dict)
    """Events that were first counted after the watermark of their window was told."""
    problems: dict[str, Period] = field(default_factory=dict)
    """What could not be read of the inputs, in sentences, and for which time that matters."""
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
                self.unheard.append(record)
                # The oldest ones come true first.
                del self.unheard[BARRIERS_MAX // 2 : -BARRIERS_MAX // 2]
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
            period = Period(_last_window(coverage, record.first), record.at_ms or END_MS)
            self.skipped.setdefault(counter, []).append((record.reason, period))
            del self.skipped[counter][:-SKIPS_MAX]
            return
        if record.tier == "live":
            self._note_arrival(counter.place, record)
        if record.is_compacted:
            self.compacted.add((record.tier, counter.place.datacenter, counter.place.topic))
        self._note_windows(counter.place, record.tallies)
        for producer, name in record.producers.items():
            self._name(producer, self.producers.get(producer, name))
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
                "the fingerprint of its runs",
                Period(account.window_start, account.window_start + max(1, account.window_size_ms)),
            )
            return
        self._name(header.producer, ProducerName(header.server, header.service))
        self.unaccounted.pop(stream, None)
        entry = self.accounts.setdefault(stream, Accounts())
        entry.take(source.partition, offset, account, runs, header.time)
        for run in account.acknowledgements:
            self.latencies.on_acknowledged(stream, *run)
        self._note_windows(SourcePartition(datacenter, event.topic, -1), (claimed,))

    def on_arrival(self, arrival: Arrival, host: str = "") -> None:
        """Take when the broker on a host appended offsets of a copy."""
        place = place_of(arrival.partition)
        self.latencies.on_appended(place, arrival.first, arrival.last, arrival.append_ms, host)

    def on_mirror_finding(self, finding: MirrorFinding) -> None:
        self.mirror_findings[finding.id] = finding
        if finding.kind == "loss" and 0 <= finding.first_offset <= finding.last_offset:
            place = SourcePartition(finding.datacenter, finding.topic, finding.partition)
            span = (finding.first_offset, finding.last_offset + 1)
            self.passed_over.setdefault(place, set()).add(span)

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

    def on_loaded(
        self, place: SourcePartition, first: int, next_offset: int, committed_ms: int, host: str = ""
    ) -> None:
        """Take what one snapshot brought, which the driver on a host committed."""
        if next_offset > self.loaded.get(place, 0):
            if place not in self.passings.renewed:
                self.latencies.on_committed(place, first, next_offset - 1, committed_ms, host)
            self.loaded[place] = next_offset

    def on_passed(self, item: Passed) -> None:
        """Take where a person let the load go on."""
        if self.passings.add(item):
            self.loaded[item.place] = max(item.next, self.loaded.get(item.place, 0))

    def on_dead_letters(self, place: SourcePartition, events: int, foreign: int) -> None:
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

    def problem(self, sentence: str, period: Period = ALWAYS) -> None:
        """Note what could not be read, and the time of the windows that it may be about."""
        self.problems[sentence] = period
        while len(self.problems) > PROBLEMS_MAX:
            del self.problems[next(iter(self.problems))]

    # -- what follows

    def settle(self, now_ms: int) -> None:
        """Fold what all neighbours have passed, and observe the latencies that are known."""
        self.barriers = [barrier for barrier in self.barriers if not self._apply(barrier)]
        self.unheard = [barrier for barrier in self.unheard if not self._hear(barrier)]
        unseen = self._unseen()
        for stream, entry in self.accounts.items():
            topic = (stream.datacenter, stream.topic)
            entry.settle(self.passed.get(topic, {}), unseen.get(topic, BEGIN_MS))
        for counter, coverage in self.coverage.items():
            links = [link for link in coverage.fold() if isinstance(link, Counted)]
            self.backlog.setdefault(counter, []).extend(map(parcel_of, links))
            self.removed[counter] = self.removed.get(counter, 0) + sum(link.removed for link in links)
        for counter, parcels in self.backlog.items():
            self.backlog[counter] = self._settle_backlog(counter, parcels)
        self.latencies.join(now_ms)

    def position(self, tier: Tier, place: SourcePartition) -> int:
        """Return the offset up to which a partition is counted in a tier; -1 where nothing is."""
        if tier == "warehouse":
            return self.loaded.get(place, -1)
        coverage = self.coverage.get(Counter(tier, place))
        position = coverage.position if coverage is not None else -1
        for first, following in sorted(self.passed_over.get(place, ())) if tier == "offline" else ():
            # What the mirror passed over at the copy's end never comes.
            position = following if position == first else position
        return position

    def has_passed(self, tier: Tier, counter: Counter, parcel: Parcel) -> bool:
        """Whether a tier is counted beyond a neighbour's parcel.

        Where the live log's ends were counted later than the offline parcel, the live log has nothing beyond them.
        """
        if self.position(tier, counter.place) >= parcel.next:
            return True
        if (tier, counter.tier) == ("warehouse", "offline"):
            return self.passings.is_of_former_life(counter.place, parcel.at_ms)
        if (tier, counter.tier) != ("live", "offline"):
            return False
        whole_at = self.whole_at.get((counter.place.datacenter, counter.place.topic), 0)
        return whole_at > parcel.at_ms + CLOCK_SKEW_MS

    def is_judged(self, tier: Tier, counter: Counter, parcel: Parcel) -> bool:
        """Whether a tier counted all of a neighbour's parcel, so that what is missing there was lost or doubled."""
        if not self.has_passed(tier, counter, parcel):
            return False
        if counter.place in self.passings.renewed and "warehouse" in (tier, counter.tier):
            return False
        return not self._has_hole(tier, counter.place, parcel.first, parcel.next)

    def is_counted(self, tier: Tier, place: SourcePartition, first: int, following: int) -> bool:
        """Whether a tier counted all of these offsets."""
        is_reached = first >= following or self.position(tier, place) >= following
        return is_reached and not self._has_hole(tier, place, first, following)

    def _has_hole(self, tier: Tier, place: SourcePartition, first: int, following: int) -> bool:
        return any(hole.overlaps(first, following) for hole in self._holes(Counter(tier, place)))

    def promise(self, watermarks: Mapping[tuple[str, str], int]) -> None:
        """Note watermarks, by (datacenter, topic), that are going to be told; one that was told stays."""
        for topic, until_ms in watermarks.items():
            told = self.promised.get(topic)
            if told is None or until_ms > told.until_ms:
                self.promised[topic] = Promise(until_ms, self._live_positions(*topic))

    def _live_positions(self, datacenter: str, topic: str) -> dict[int, int]:
        return {
            place.partition: coverage.position
            for (tier, place), coverage in self.coverage.items()
            if tier == "live" and (place.datacenter, place.topic) == (datacenter, topic)
        }

    def removed_offsets(self, tier: Tier, datacenter: str, topic: str) -> int:
        """Return how many of a topic's counted offsets have no record in a tier, but for those that the mirror passed over."""
        return sum(
            self.removed.get(counter, 0)
            + sum(link.removed for link in coverage.chain if isinstance(link, Counted))
            - (self._passed_over_below(counter.place, coverage.position) if tier == "offline" else 0)
            for counter, coverage in self.coverage.items()
            if (counter.tier, counter.place.datacenter, counter.place.topic) == (tier, datacenter, topic)
        )

    def _passed_over_below(self, place: SourcePartition, position: int) -> int:
        spans = self.passed_over.get(place, ())
        return sum(following - first for first, following in spans if following <= position)

    def open_parcels(self) -> Iterator[tuple[Counter, Parcel]]:
        """Yield what is counted but not settled."""
        for counter, parcels in self.backlog.items():
            yield from ((counter, parcel) for parcel in parcels)
        for counter, coverage in self.coverage.items():
            yield from ((counter, parcel_of(link)) for link in coverage.chain if isinstance(link, Counted))

    def _apply(self, barrier: Barrier) -> bool:
        """Let a barrier count for the topics that are counted up to it; returns whether these are all of its topics."""
        behind = {
            partition.topic
            for partition, offset in barrier.counted.items()
            if offset > 0 and self.position("live", SourcePartition(barrier.datacenter, *partition)) < offset
        }
        for topic in barrier.whole - behind:
            key = (barrier.datacenter, topic)
            self.whole_at[key] = max(barrier.at_ms, self.whole_at.get(key, 0))
            passed = self.passed.setdefault((barrier.datacenter, topic), {})
            for partition, offset in barrier.monitoring.items():
                passed[partition] = max(offset, passed.get(partition, 0))
        return not barrier.whole & behind

    def _hear(self, barrier: Barrier) -> bool:
        """Note how far the accounts of a datacenter are read; returns whether they are up to a barrier's ends."""
        topic = f"{barrier.datacenter}.{MONITORING_TOPIC}"
        known = {partition.partition for partition in self.read if partition.topic == topic}
        if not known <= barrier.monitoring.keys():
            # A partition without a leader was left out: what lies there nobody knows.
            return True
        if any(self.read.get(TopicPartition(topic, at), 0) < end for at, end in barrier.monitoring.items()):
            return False
        self.heard_until[barrier.datacenter] = max(barrier.at_ms, self.heard_until.get(barrier.datacenter, 0))
        return True

    def _holes(self, counter: Counter) -> Iterator[Uncounted]:
        """Yield what a tier never counted, but for rot that the mirror passed over: what is missing of that is lost."""
        coverage = self.coverage.get(counter)
        passed_over = self.passed_over.get(counter.place, ())
        for hole in coverage.uncounted() if coverage is not None else ():
            if (hole.first, hole.next) not in passed_over:
                yield hole

    def _unseen(self) -> dict[tuple[str, str], int]:
        """Return by (datacenter, topic) when the last of the offsets was written that the live tier never counted."""
        found: dict[tuple[str, str], int] = {}
        for tier, place in self.coverage:
            for hole in self._holes(Counter(tier, place)) if tier == "live" else ():
                key = (place.datacenter, place.topic)
                found[key] = max(hole.until_ms, found.get(key, BEGIN_MS))
        return found

    def _settle_backlog(self, counter: Counter, parcels: list[Parcel]) -> list[Parcel]:
        """Settle what all neighbours have passed; of a long rest, neighbouring parcels become one."""
        rest: list[Parcel] = []
        for parcel in parcels:
            tiers = neighbours(counter)
            if all(self.has_passed(tier, counter, parcel) for tier in tiers):
                unjudged = [tier for tier in tiers if not self.is_judged(tier, counter, parcel)]
                if counter.tier == "offline":
                    self.passings.settle(counter.place, parcel.first, parcel.next, parcel.copies)
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
        return [joined_parcel(rest[at : at + 2]) for at in range(0, len(rest), 2)]

    def _note_arrival(self, place: SourcePartition, record: Counted) -> None:
        """Note whose events these are, and which of them came after the watermark of their window was told."""
        promise = self.promised.get((place.datacenter, place.topic))
        is_behind = promise is not None and record.first >= promise.positions.get(place.partition, 0)
        for item in record.tallies:
            stream = Stream(place.datacenter, place.topic, item.producer)
            if stream not in self.accounts:
                self.unaccounted.setdefault(stream, record.at_ms)
            if promise is not None and is_behind and item.window_start + WINDOW_SIZE_MS <= promise.until_ms:
                known = self.overdue.get(stream, EMPTY)
                self.overdue[stream] = once(total((known, depth(item.runs))))

    def _name(self, producer: str, name: ProducerName) -> None:
        self.producers[producer] = name
        self.latencies.on_producer(producer, name.server)

    def _note_windows(self, place: SourcePartition, tallies: Iterable[Tally]) -> None:
        for item in tallies:
            if not len(item.runs):
                continue
            windows = self.windows.setdefault(Stream(place.datacenter, place.topic, item.producer), {})
            known = windows.get(item.window_start)
            runs = item.runs if known is None else np.concatenate((known, item.runs))
            windows[item.window_start] = joined(runs, RUNS_OF_WINDOW_MAX)
            if len(windows) > WINDOWS_MAX:
                del windows[min(windows)]


def _last_window(coverage: Coverage, offset: int) -> int:
    """Return the start of the latest window in the last range below an offset that holds events."""
    below = [
        link for link in coverage.chain if isinstance(link, Counted) and link.next <= offset and link.tallies
    ]
    return max((item.window_start for item in below[-1].tallies), default=BEGIN_MS) if below else BEGIN_MS


def _places(record: CountRecord) -> list[SourcePartition]:
    """Return the partitions that a record is about, by the names of the live datacenter that they come from."""
    partitions = record.counted if isinstance(record, Barrier) else (record.partition,)
    if record.tier == "live":
        return [SourcePartition(record.datacenter, *partition) for partition in partitions]
    return [place_of(partition) for partition in partitions]
