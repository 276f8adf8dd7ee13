"""A seeded pipeline whose faults are known: producers, logs, copies, tables and counters that stumble, all in memory.

Everything is built whole first (`Pipeline`), then told to a `Ledger` in an order and with repetitions that the seed
chooses. Offsets of live and offline logs agree; a doubled copy takes the place of a record that is no event. With
`blind` some offsets are never counted, at the beginning of a partition or within it: what lies far from them must be
judged as if they were not. With `odd` some events are older than their producer has promised, and some producers are killed.
"""

from __future__ import annotations

import json
import random
from collections import Counter as Multiset
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from random import Random

import numpy as np

from headrace.audit import records
from headrace.audit.acceptances import accepted
from headrace.audit.judging.book import Book
from headrace.audit.judging.evidence import gather
from headrace.audit.judging.reconcile import reconcile
from headrace.audit.judging.settling import STEP_MS, settle
from headrace.audit.latency import Hop, Rows, SourcePartition
from headrace.audit.ledger import state
from headrace.audit.ledger.accounts import CLOCK_SKEW_MS
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import Outcome
from headrace.audit.period import Period
from headrace.audit.records import Arrival, Barrier, Counted, CounterTier, Standstill
from headrace.audit.windows import WINDOW_SIZE_MS, Stream, Tally, tally, total
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.envelope import Header
from headrace.events.monitoring import Account, MonitoringEvent, WindowLedger

WINDOW_MS = 1000
BEGIN_MS = 1_700_000_000_000
LATE_MS = 60_000
OLDER_MAX_MS = 5_000
HEARD_MS = BEGIN_MS + 10_000_000
"""When the last barrier is taken: whoever has not closed by then is silent."""
COUNTED_MAX = 30
LOADED_MAX = 60
"""Offsets of one count record, and of one data file."""
NOISE = None
Step = Callable[[Ledger], None]
Fault = tuple[str, Hop, Stream]


@dataclass(frozen=True, slots=True)
class Event:
    stream: Stream
    sequence: int
    time_ms: int


Log = list[Event | None]
"""Records by offset; None is a record that is no event."""


@dataclass(slots=True)
class Pipeline:
    """What happened, and what the audit has to find: sequences by fault, as often as they count."""

    random: random.Random
    live: dict[SourcePartition, Log] = field(default_factory=dict)
    offline: dict[SourcePartition, Log] = field(default_factory=dict)
    rows: dict[SourcePartition, list[tuple[int, Event]]] = field(default_factory=dict)
    monitoring: dict[str, list[MonitoringEvent]] = field(default_factory=dict)
    expected: dict[Fault, Multiset[int]] = field(default_factory=dict)
    late: dict[tuple[Stream, int], Hop] = field(default_factory=dict)
    times: dict[tuple[Stream, int], int] = field(default_factory=dict)
    """When each event happened."""
    overdue: set[tuple[Stream, int]] = field(default_factory=set)
    """Accounted events that were sent after their window had been promised."""
    killed: set[Stream] = field(default_factory=set)
    accounted: set[tuple[Stream, int]] = field(default_factory=set)
    """Acknowledged events that are in some account."""
    delays: dict[tuple[Stream, int], int] = field(default_factory=dict)
    """From an event to its acknowledgement."""
    acknowledged: int = 0
    holes: dict[tuple[CounterTier, SourcePartition], tuple[int, int]] = field(default_factory=dict)
    """Offsets [first, next) of a partition that no counter of a tier will ever count."""
    accepted: set[tuple[Stream, int]] = field(default_factory=set)
    person: Random = field(default_factory=lambda: Random(0))
    """Who accepts losses; all else is the same without it."""
    touched: set[tuple[Hop, Event]] = field(default_factory=set)
    """At each hop an event has one fate: of two copies, one lost and one doubled would be nothing at all."""

    def expect(self, kind: str, hop: Hop, event: Event) -> None:
        self.expected.setdefault((kind, hop, event.stream), Multiset())[event.sequence] += 1

    def fate(self, hop: Hop, event: Event, faulty: bool) -> float:
        """Return a random number that stands for what happens to an event; 1 for nothing."""
        if not faulty or (hop, event) in self.touched:
            return 1.0
        fate = self.random.random()
        if fate < 0.04:
            self.touched.add((hop, event))
        return fate


def build(seed: int, *, faulty: bool = True, blind: bool = False, odd: bool = False) -> Pipeline:
    """Make a pipeline; with `faulty` some events are lost, doubled and late at each hop; with `blind` there are holes.

    With `odd` see the module's text.
    """
    chance = random.Random(seed)
    pipeline = Pipeline(chance)
    for datacenter in ("dc-east", "dc-west")[: chance.randint(1, 2)]:
        for topic in ("pageviews", "clicks")[: chance.randint(1, 2)]:
            _publish(pipeline, datacenter, topic, chance.randint(1, 3), faulty, odd)
    _mirror(pipeline, faulty)
    _load(pipeline, faulty)
    if blind:
        _dig(pipeline)
    return pipeline


def _dig(pipeline: Pipeline) -> None:
    """Choose offsets that are never counted; an empty log has none."""
    chance = pipeline.random
    tiers: tuple[CounterTier, ...] = ("live", "offline")
    for tier, (place, log) in product(tiers, pipeline.live.items()):
        if len(log) > 2 and chance.random() < 0.4:
            first = chance.choice((0, chance.randrange(len(log) - 1)))
            pipeline.holes[tier, place] = (first, chance.randint(first + 1, len(log) - 1))


def _publish(
    pipeline: Pipeline, datacenter: str, topic: str, partitions: int, faulty: bool, odd: bool
) -> None:
    chance = pipeline.random
    logs: list[Log] = [[NOISE] * chance.randint(0, 3) for _ in range(partitions)]
    written: list[tuple[int, int, list[Event | None]]] = []
    for number in range(chance.randint(1, 3)):
        stream = Stream(datacenter, topic, f"{datacenter}-{topic}-{number}")
        written += _produce(pipeline, stream, partitions, faulty, odd)
    for _, partition, batch in sorted(written, key=lambda item: item[0]):
        logs[partition] += batch
        logs[partition] += [NOISE] * (chance.random() < 0.3)
    for partition, log in enumerate(logs):
        pipeline.live[SourcePartition(datacenter, topic, partition)] = log


def _produce(
    pipeline: Pipeline, stream: Stream, partitions: int, faulty: bool, odd: bool
) -> list[tuple[int, int, list[Event | None]]]:
    """Return batches (time, partition, records) of one producer; its accounts go to the monitoring topic."""
    chance = pipeline.random
    ledger = WindowLedger(stream.producer, window_size_ms=WINDOW_MS, now_ms=BEGIN_MS)
    accounts = [ledger.opened(BEGIN_MS)]
    batches: list[tuple[int, int, list[Event | None]]] = []
    now, partition = BEGIN_MS + chance.randint(0, WINDOW_MS), chance.randrange(partitions)
    batch: list[Event | None] = []
    for sequence in range(chance.randint(1, 150)):
        now += chance.choice((0, 0, 1, 7, 60, 400))
        age = chance.randint(0, OLDER_MAX_MS) if odd and chance.random() < 0.05 else 0
        event = Event(stream, sequence, now - age)
        pipeline.times[stream, sequence] = event.time_ms
        if _window_end(event) <= max(account.complete_until for account in accounts):
            pipeline.overdue.add((stream, sequence))
        ledger.on_sent(sequence, event.time_ms)
        fate = chance.random()
        if fate < 0.02:
            ledger.on_failed(sequence, event.time_ms, outcome="failed", reason="refused")
        elif fate < 0.04:
            ledger.on_failed(sequence, event.time_ms, outcome="unknown", reason="timed out")
            batch += [event] * chance.randint(0, 1)
        else:
            delay = _acknowledged_after(pipeline, event, faulty)
            ledger.on_acknowledged(sequence, event.time_ms, now + delay)
            batch += [event] * _copies(pipeline, event, "producer_to_live", faulty)
        if chance.random() < 0.2:
            batches.append((now, partition, batch))
            batch, partition = [], chance.randrange(partitions)
        accounts += ledger.finished(now) if chance.random() < 0.3 else []
    batches.append((now, partition, batch))
    accounts += ledger.closed(now + WINDOW_MS)
    if odd and chance.random() < 0.3:
        accounts = accounts[: chance.randint(1, len(accounts) - 1)]
        pipeline.killed.add(stream)
    _account(pipeline, stream, accounts)
    _monitor(pipeline, stream, accounts)
    return batches


def _window_end(event: Event) -> int:
    return event.time_ms - event.time_ms % WINDOW_MS + WINDOW_MS


def _account(pipeline: Pipeline, stream: Stream, accounts: list[Account]) -> None:
    """Note what the accounts are about: nobody can be blamed for the loss of anything else."""
    accounted = {
        (stream, sequence)
        for account in accounts
        for run in account.acknowledgements
        for sequence in range(run.first_sequence, run.last_sequence + 1)
    }
    pipeline.acknowledged += len(accounted)
    pipeline.accounted |= accounted
    pipeline.overdue = {key for key in pipeline.overdue if key[0] != stream or key in accounted}
    lost = pipeline.expected.get(("loss", "producer_to_live", stream), Multiset())
    for sequence in [sequence for sequence in lost if (stream, sequence) not in accounted]:
        del lost[sequence]
    if not lost:
        pipeline.expected.pop(("loss", "producer_to_live", stream), None)


def _monitor(pipeline: Pipeline, stream: Stream, accounts: list[Account]) -> None:
    topic = pipeline.monitoring.setdefault(stream.datacenter, [])
    for number, account in enumerate(accounts):
        header = Header(account.complete_until, "web-1", "shop", stream.producer, number)
        topic.append(
            MonitoringEvent(header=header, topic=stream.topic, datacenter=stream.datacenter, account=account)
        )


def _copies(pipeline: Pipeline, event: Event, hop: Hop, faulty: bool) -> int:
    """How often an event arrives behind a hop, as noted in `expected`."""
    fate = pipeline.fate(hop, event, faulty)
    if fate < 0.02:
        pipeline.expect("loss", hop, event)
        return 0
    if fate < 0.04:
        pipeline.expect("duplicate", hop, event)
        return 2
    return 1


def _acknowledged_after(pipeline: Pipeline, event: Event, faulty: bool) -> int:
    """Return the delay of an acknowledgement, and settle whether the event comes late, and at which hop."""
    chance = pipeline.random
    key = (event.stream, event.sequence)
    delay = chance.randint(0, 500)
    if faulty and chance.random() < 0.04:
        pipeline.late[key] = chance.choice(("producer_to_live", "live_to_offline", "offline_to_warehouse"))
        if pipeline.late[key] == "producer_to_live":
            delay = LATE_MS + chance.randint(1, 1000)
    pipeline.delays[key] = delay
    return delay


def _mirror(pipeline: Pipeline, faulty: bool) -> None:
    """Copy logs offset by offset; a lost event leaves a gap, a doubled one takes the place of noise."""
    for place, log in pipeline.live.items():
        copy = list(log)
        noise = [offset for offset, event in enumerate(log) if event is NOISE]
        for offset, event in enumerate(log):
            if event is NOISE:
                continue
            fate = pipeline.fate("live_to_offline", event, faulty)
            if fate < 0.02:
                copy[offset] = NOISE
                pipeline.expect("loss", "live_to_offline", event)
            elif fate < 0.04 and noise:
                copy[noise.pop()] = event
                pipeline.expect("duplicate", "live_to_offline", event)
        pipeline.offline[place] = copy


def _load(pipeline: Pipeline, faulty: bool) -> None:
    for place, log in pipeline.offline.items():
        pipeline.rows[place] = [
            (offset, event)
            for offset, event in enumerate(log)
            if event is not NOISE
            for _ in range(_copies(pipeline, event, "offline_to_warehouse", faulty))
        ]


@dataclass(slots=True)
class Telling:
    """How the ledger hears of a pipeline: each input in its own order, all of them interleaved."""

    pipeline: Pipeline
    stumbling: bool = True
    book: Book = field(default_factory=Book)
    aged: bool = False
    """Whether everything is so old that what can be settled is, on the way."""

    def inputs(self) -> list[list[Step]]:
        pipeline = self.pipeline
        steps = [self._counts("offline", "offline", pipeline.offline), self._arrivals(), self._warehouse()]
        for datacenter in pipeline.monitoring:
            live = {place: log for place, log in pipeline.live.items() if place.datacenter == datacenter}
            steps += [self._counts("live", datacenter, live), self._accounts(datacenter)]
        return steps

    def told(self, ledger: Ledger, check: Callable[[Ledger], None]) -> Ledger:
        """Tell everything, checking now and then; the ledger may be saved and loaded on the way."""
        chance = self.pipeline.random
        inputs = [iter(steps) for steps in self.inputs()]
        while inputs:
            source = chance.choice(inputs)
            step = next(source, None)
            if step is None:
                inputs.remove(source)
                continue
            step(ledger)
            if chance.random() < 0.02:
                self.settle(ledger)
                check(ledger)
            if chance.random() < 0.01:
                waiting, promised = list(ledger.latencies.waiting), ledger.promised
                ledger = state.from_json(json.loads(json.dumps(state.as_json(ledger))))
                ledger.latencies.waiting, ledger.promised = waiting, promised
        self.settle(ledger)
        ledger.latencies.join(BEGIN_MS, is_last=True)
        if self.aged:
            # What came after its window had been settled is settled with the next ones.
            ledger.barriers.heard_until = dict.fromkeys(ledger.barriers.heard_until, HEARD_MS + 2 * STEP_MS)
            self.settle(ledger)
        return ledger

    def settle(self, ledger: Ledger) -> None:
        if not self.aged:
            ledger.settle(BEGIN_MS)
            return
        now_ms = max(ledger.barriers.heard_until.values(), default=BEGIN_MS)
        ledger.settle(now_ms)
        settle(ledger, self.book, now_ms)

    def _counts(self, tier: CounterTier, datacenter: str, logs: dict[SourcePartition, Log]) -> list[Step]:
        """Return what a counter publishes; it starts anew now and then, and a second one may run beside it."""
        published = list(self._counter(tier, datacenter, logs))
        if self.stumbling and self.pipeline.random.random() < 0.5:
            published = list(self._merged(published, list(self._counter(tier, datacenter, logs))))
        return [_count_step(item) for item in published]

    def _counter(
        self, tier: CounterTier, datacenter: str, logs: dict[SourcePartition, Log]
    ) -> Iterator[records.CountRecord]:
        chance = self.pipeline.random
        holes = {place: self.pipeline.holes.get((tier, place), (-1, -1)) for place in logs}
        positions = {place: following if first == 0 else 0 for place, (first, following) in holes.items()}
        history: list[Counted] = []
        while any(positions[place] < len(log) for place, log in logs.items()):
            place = chance.choice([place for place, log in logs.items() if positions[place] < len(log)])
            if positions[place] == holes[place][0]:
                yield _skipped(tier, datacenter, place, logs[place], *holes[place])
                positions[place] = holes[place][1]
                continue
            ends = (len(logs[place]), holes[place][0])
            end = min(end for end in ends if end > positions[place])
            following = min(end, positions[place] + chance.randint(1, COUNTED_MAX))
            counted = _counted(tier, datacenter, place, logs[place], positions[place], following)
            positions[place] = following
            history.append(counted)
            yield counted
            if self.stumbling and chance.random() < 0.1:
                yield from history[-chance.randint(1, 5) :]
        yield Barrier(
            tier=tier,
            datacenter=datacenter,
            counted={_partition(tier, place): len(log) for place, log in logs.items()},
            monitoring={0: len(self.pipeline.monitoring.get(datacenter, ()))},
            whole=frozenset(_partition(tier, place).topic for place in logs),
            at_ms=HEARD_MS,
        )

    def _merged(
        self, first: list[records.CountRecord], second: list[records.CountRecord]
    ) -> Iterator[records.CountRecord]:
        """Interleave two counters; the first may be killed on the way."""
        kill_at = self.pipeline.random.choice((len(first), self.pipeline.random.randint(0, len(first))))
        left, right = first[:kill_at], list(second)
        while left or right:
            source = self.pipeline.random.choice([part for part in (left, right) if part])
            yield source.pop(0)

    def _accounts(self, datacenter: str) -> list[Step]:
        source = TopicPartition(f"{datacenter}.headrace.monitoring", 0)
        steps: list[Step] = []
        for offset, event in enumerate(self.pipeline.monitoring[datacenter]):
            steps += [_account_step(source, offset, event)] * self.pipeline.random.choice((1, 1, 1, 2))
        return steps

    def _arrivals(self) -> list[Step]:
        """Every event arrives in the offline log on its own; it is late when that is its fate."""
        steps: list[Step] = []
        for place, log in self.pipeline.offline.items():
            partition = TopicPartition(f"{place.datacenter}.{place.topic}", place.partition)
            for offset, event in enumerate(log):
                time_ms = BEGIN_MS if event is NOISE else event.time_ms + self._arrival_ms(event)
                steps.append(_arrival_step(Arrival(partition, offset, offset, time_ms)))
        return steps

    def _arrival_ms(self, event: Event) -> int:
        late = self.pipeline.late.get((event.stream, event.sequence))
        return LATE_MS + 1 if late == "live_to_offline" else 600

    def _commit(self, place: SourcePartition, offset: int) -> int:
        """When a row becomes visible; each offset on its own, so that some are late and their neighbours are not."""
        event = self.pipeline.offline[place][offset]
        if event is NOISE:
            return BEGIN_MS
        late = self.pipeline.late.get((event.stream, event.sequence))
        return event.time_ms + (LATE_MS + 1 if late == "offline_to_warehouse" else 700)

    def _warehouse(self) -> list[Step]:
        """Return commits: a file of rows of some partitions each, then what it brought."""
        chance = self.pipeline.random
        positions = dict.fromkeys(self.pipeline.offline, 0)
        steps: list[Step] = []
        number = 0
        while any(positions[place] < len(log) for place, log in self.pipeline.offline.items()):
            place = chance.choice(
                [place for place, log in self.pipeline.offline.items() if positions[place] < len(log)]
            )
            first = positions[place]
            following = min(len(self.pipeline.offline[place]), first + chance.randint(1, LOADED_MAX))
            positions[place] = following
            number += 1
            rows = [item for item in self.pipeline.rows[place] if first <= item[0] < following]
            commits = [self._commit(place, offset) for offset in range(first, following)]
            steps.append(_commit_step(f"file-{number}", place, first, commits, rows))
        return steps


def _counted(
    tier: CounterTier, datacenter: str, place: SourcePartition, log: Log, first: int, following: int
) -> Counted:
    events = [event for event in log[first:following] if event is not NOISE]
    return Counted(
        tier=tier,
        datacenter=datacenter,
        partition=_partition(tier, place),
        first=first,
        next=following,
        tallies=_tallies(events),
        at_ms=_written_ms(log, following),
        foreign=following - first - len(events),
    )


def _skipped(
    tier: CounterTier, datacenter: str, place: SourcePartition, log: Log, first: int, following: int
) -> Standstill:
    """Say that offsets are given up; counters of old did not say when."""
    return Standstill(
        tier=tier,
        datacenter=datacenter,
        partition=_partition(tier, place),
        first=first,
        next=following,
        reason="deleted",
        at_ms=_written_ms(log, following) if following % 2 else 0,
    )


def _written_ms(log: Log, following: int) -> int:
    """Return when the offsets below were all in the log, at the latest."""
    return max((event.time_ms for event in log[:following] if event is not NOISE), default=BEGIN_MS) + 500


def _partition(tier: CounterTier, place: SourcePartition) -> TopicPartition:
    name = f"{place.datacenter}.{place.topic}" if tier == "offline" else place.topic
    return TopicPartition(name, place.partition)


def _tallies(events: list[Event]) -> tuple[Tally, ...]:
    names = sorted({event.stream.producer for event in events})
    return tuple(
        tally(
            names,
            np.array([names.index(event.stream.producer) for event in events], dtype=np.intp),
            np.array([event.time_ms for event in events], dtype=np.int64),
            np.array([event.sequence for event in events], dtype=np.int64),
            WINDOW_MS,
        )
    )


def _count_step(record: records.CountRecord) -> Step:
    value = records.encode(record)
    return lambda ledger: ledger.on_count(records.decode(value))


def _account_step(source: TopicPartition, offset: int, event: MonitoringEvent) -> Step:
    def step(ledger: Ledger) -> None:
        ledger.on_account(source, offset, event)
        ledger.read[source] = max(offset + 1, ledger.read.get(source, 0))

    return step


def _arrival_step(arrival: Arrival) -> Step:
    return lambda ledger: ledger.on_arrival(arrival)


def _commit_step(
    file: str, place: SourcePartition, first: int, committed_ms: list[int], rows: list[tuple[int, Event]]
) -> Step:
    events = [event for _, event in rows]
    tallies = _tallies(events)

    def step(ledger: Ledger) -> None:
        for offset, time_ms in enumerate(committed_ms, first):
            ledger.on_loaded(place, offset, offset + 1, time_ms)
        if not rows:
            return
        ledger.on_file(place.topic, file, [(place, rows[0][0], rows[-1][0] + 1, tallies)])
        streams = tuple(sorted({event.stream for event in events}))
        ledger.latencies.on_rows(
            Rows(
                file=file,
                place=place,
                streams=streams,
                stream=np.array([streams.index(event.stream) for event in events], dtype=np.intp),
                time_ms=np.array([event.time_ms for event in events], dtype=np.int64),
                sequence=np.array([event.sequence for event in events], dtype=np.int64),
                offset=np.array([offset for offset, _ in rows], dtype=np.int64),
            )
        )

    return step


def found_faults(outcome: Outcome) -> dict[Fault, Multiset[int]]:
    """Return the sequences that an outcome's findings name, losses and duplicates."""
    found: dict[Fault, Multiset[int]] = {}
    for item in outcome.findings:
        if item.kind not in ("loss", "duplicate"):
            continue
        each = item.count // (item.last_sequence - item.first_sequence + 1)
        entry = found.setdefault((item.kind, item.hop, item.stream), Multiset())
        entry.update(dict.fromkeys(range(item.first_sequence, item.last_sequence + 1), each))
    return found


def found_late(outcome: Outcome) -> dict[tuple[Stream, int], Hop]:
    return {
        (item.stream, sequence): item.hop
        for item in outcome.findings
        if item.kind == "late"
        for sequence in range(item.first_sequence, item.last_sequence + 1)
    }


def seen_faults(pipeline: Pipeline) -> dict[Fault, Multiset[int]]:
    """Return the expected faults of events that surely lie outside of what was never counted."""
    return {
        fault: Multiset({sequence: n for sequence, n in found.items() if _is_seen(pipeline, fault, sequence)})
        for fault, found in pipeline.expected.items()
    }


def _is_seen(pipeline: Pipeline, fault: Fault, sequence: int) -> bool:
    """Whether an event is further from all holes that matter than a range reaches, and in a later window."""
    _, hop, stream = fault
    tiers: dict[Hop, tuple[CounterTier, ...]] = {
        "producer_to_live": ("live",),
        "live_to_offline": ("live", "offline"),
        "offline_to_warehouse": ("offline",),
    }
    for tier, (place, log) in product(tiers[hop], pipeline.live.items()):
        hole = pipeline.holes.get((tier, place))
        if hole is None or (place.datacenter, place.topic) != (stream.datacenter, stream.topic):
            continue
        if hop == "producer_to_live":
            until_ms = _written_ms(log, hole[1] + COUNTED_MAX) + CLOCK_SKEW_MS
            if pipeline.times[stream, sequence] - WINDOW_MS <= until_ms:
                return False
        for logs in (pipeline.live, pipeline.offline):
            offsets = [
                at for at, event in enumerate(logs[place]) if event == _event(pipeline, stream, sequence)
            ]
            if any(hole[0] - LOADED_MAX <= offset < hole[1] + LOADED_MAX for offset in offsets):
                return False
    return True


def _event(pipeline: Pipeline, stream: Stream, sequence: int) -> Event:
    return Event(stream, sequence, pipeline.times[stream, sequence])


def check_watermarks(pipeline: Pipeline, ledger: Ledger, before: dict[tuple[str, str], int]) -> None:
    """No watermark goes back; where one goes on, all below it of those heard of is whole, late, or an accepted loss."""
    outcome = reconcile(ledger, HEARD_MS)
    for key, until_ms in before.items():
        assert outcome.watermarks[key] >= until_ms, f"the watermark of {key} went back"
    vouched = pipeline.accounted - pipeline.overdue - pipeline.accepted
    for evidence in gather(ledger):
        until_ms = outcome.watermarks.get(evidence.topic, 0)
        if not evidence.accounts.heard_at or until_ms <= before.get(evidence.topic, 0):
            continue
        whole = total((evidence.warehouse, evidence.overdue))
        known = {at for run in whole.runs() for at in range(run.first, run.last + 1)}
        for stream, at in vouched:
            if stream == evidence.stream and pipeline.times[stream, at] < until_ms:
                assert at in known, f"{stream} {at} is not whole below {until_ms}"
    before.update(outcome.watermarks)
    ledger.promise(outcome.watermarks)


def accept_losses(pipeline: Pipeline, ledger: Ledger, chance: float = 1.0) -> None:
    """Let a person accept some of the losses that are found."""
    losses = [item for item in reconcile(ledger, HEARD_MS).findings if item.kind == "loss"]
    for item in losses:
        if ledger.acceptances.of(item) is None and pipeline.person.random() < chance:
            ledger.acceptances.take(accepted(item, by="ada", reason="disk lost", at_ms=HEARD_MS))
            lost = range(item.first_sequence, item.last_sequence + 1)
            pipeline.accepted.update((item.stream, at) for at in lost)


def found_overdue(outcome: Outcome) -> set[tuple[Stream, int]]:
    return {
        (item.stream, sequence)
        for item in outcome.findings
        if item.kind == "late" and item.reason
        for sequence in range(item.first_sequence, item.last_sequence + 1)
    }


def faults_of(pipeline: Pipeline, period: Period) -> dict[Fault, Multiset[int]]:
    """Return the expected faults of events whose windows reach into a period."""
    size_ms = max(WINDOW_SIZE_MS, WINDOW_MS)

    def is_of(stream: Stream, sequence: int) -> bool:
        start = _window_end(_event(pipeline, stream, sequence)) - WINDOW_MS
        return period.overlaps(start, start + size_ms)

    found = {
        fault: Multiset({at: n for at, n in sequences.items() if is_of(fault[2], at)})
        for fault, sequences in pipeline.expected.items()
    }
    return {fault: sequences for fault, sequences in found.items() if sequences}


def run(
    seed: int,
    *,
    faulty: bool = True,
    stumbling: bool = True,
    blind: bool = False,
    odd: bool = False,
    told: bool = False,
    aged: bool = False,
) -> tuple[Pipeline, Ledger, Outcome]:
    """Build a pipeline, tell it, and check on the way that nothing is found that did not happen.

    With `told` watermarks are told on the way; with `aged` what can be settled on the way is.
    """
    pipeline = build(seed, faulty=faulty, blind=blind, odd=odd)
    watermarks: dict[tuple[str, str], int] = {}

    telling = Telling(pipeline, stumbling, aged=aged)

    def check(ledger: Ledger) -> None:
        outcome = reconcile(ledger, BEGIN_MS, book=telling.book)
        assert outcome == reconcile(ledger, BEGIN_MS), f"seed {seed}: the book is not up to date"
        for fault, sequences in found_faults(outcome).items():
            surplus = sequences - pipeline.expected.get(fault, Multiset())
            assert not surplus, f"seed {seed}: {fault} found too early or wrongly: {surplus}"
        if told:
            accept_losses(pipeline, ledger, 0.3)
            check_watermarks(pipeline, ledger, watermarks)

    ledger = telling.told(Ledger(LATE_MS), check)
    if told:
        check_watermarks(pipeline, ledger, watermarks)
    return pipeline, ledger, reconcile(ledger, HEARD_MS)
