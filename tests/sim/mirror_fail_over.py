"""Brokers that copy one partition in turn: its leader moves between replicas of a log, whose followers are behind.

Each broker has a log on a disk of its own, the real copier, journal and arrival log. What is a model here is replication
(the high watermark is the least end of those in sync, who leads next is one of them, its followers cut what differs), the
shared topics (what is appended may be committed late, acknowledged late or never; they are compacted now and then), and
who tells whom: a deposed leader goes on for a while. The source, its network and the judgement of every append are those of
`mirror_world`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from random import Random
from typing import Any, cast

from faulty_files import Died, FaultyFiles
from mirror_world import CONFIG, DIRECTORY, TARGET_ID, Judged, ModelSource

from headrace.broker.log.appender import Appender
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import AppendResult
from headrace.broker.log.truncation import start_at, truncate_to
from headrace.broker.wire.batches import BatchHeader, Record, iter_batches
from headrace.mirror.copy.copier import Copier
from headrace.mirror.copy.log import last_batch
from headrace.mirror.memory import arrivals
from headrace.mirror.memory.arrival_log import ArrivalLog
from headrace.mirror.memory.arrivals import Arrival
from headrace.mirror.memory.findings import STOPPING, CopyFinding, Kind
from headrace.mirror.memory.findings import decode as decode_finding
from headrace.mirror.memory.journal import CopyJournal, Journal, Pair
from headrace.mirror.memory.lead import Lead
from headrace.mirror.memory.state import SkipOrder, State, place_of, stop_id
from headrace.mirror.memory.states import States
from headrace.mirror.questions import Fetch, Survey, Surveyed

PLACE = place_of("dc-east.events", 0)
BROKERS, IN_SYNC_MIN = 3, 2
REQUESTS_MAX = 3
REPLICATED_MAX = 600


class SharedLog:
    """A topic of the cluster, of which all is committed; `heard(record)` is told of each."""

    def __init__(self, heard: Callable[[Record], None]) -> None:
        self.records: list[Record] = []
        self._heard = heard
        self._end = 0

    def commit(self, pairs: Sequence[Pair], now_ms: int) -> int:
        for key, value in pairs:
            self.records.append(Record(self._end, now_ms, key, value, []))
            self._end += 1
            self._heard(self.records[-1])
        return self._end - 1

    def compact(self) -> None:
        newest = {record.key: record for record in self.records}
        self.records = sorted(newest.values(), key=lambda record: record.offset)

    def read(self, journal: Journal, offset: int) -> int:
        """Hand over what comes from `offset` on; answers where to go on."""
        journal.read(0, [record for record in self.records if record.offset >= offset], self._end)
        return self._end


class SentTopic:
    """A shared topic as one broker's life appends to it: one append under way, acknowledged at some time."""

    def __init__(self, log: SharedLog) -> None:
        self.log = log
        self.queue: list[tuple[Sequence[Pair], Callable[[int], None]]] = []
        self.answer: tuple[int, Callable[[int], None]] | None = None

    def append(
        self, pairs: Sequence[Pair], committed: Callable[[int], None] = lambda _: None, *, partition: int = 0
    ) -> None:
        assert partition == 0
        self.queue.append((list(pairs), committed))

    def step(self, now_ms: int) -> None:
        """The append under way is acknowledged, or else the next one committed."""
        if self.answer is not None:
            (offset, committed), self.answer = self.answer, None
            committed(offset)
        elif self.queue:
            pairs, committed = self.queue.pop(0)
            self.answer = self.log.commit(pairs, now_ms), committed


class Replica:
    """The partition as the mirror sees it: a `Partition` as far as it looks."""

    topic, partition, topic_id = "dc-east.events", 0, TARGET_ID

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.is_leader, self.leader_epoch = False, -1
        self.isr: set[int] = set()

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < IN_SYNC_MIN


class CheckedJournal(CopyJournal):
    """Every finding has a cause when it is decided."""

    def __init__(self, broker: Broker, lead: Lead) -> None:
        super().__init__(broker.journal, lead, broker.arrived)
        self._broker = broker

    def write(self, state: State, findings: Sequence[CopyFinding], written: Callable[[], None]) -> None:
        for found in findings:
            assert found.kind in self._broker.source.causes | {Kind.LOSS}, f"nothing caused {found}"
            if found.kind is Kind.ROT:
                self._broker.check_rot(found)
            if found.kind in (Kind.TRUNCATION, Kind.RECREATION):
                committed = state.next_offset(self._broker.log.high_watermark)
                assert found.last_offset < committed, f"the next leader may not have all of {found}"
        super().write(state, findings, written)


class Broker(Judged):
    """One of them; `log`, `journal` and all below are of its present life. It is the copier's `Target`, too."""

    def __init__(self, world: FailOverWorld, number: int) -> None:
        self.world, self.number, self.source = world, number, world.source
        self.random = world.random
        self.files = FaultyFiles()
        self.copied = []
        self.is_up = False
        self.told_epoch = -1
        self.start()

    @property
    def findings(self) -> list[CopyFinding]:  # type: ignore[override]
        return self.world.findings

    @property
    def now_ms(self) -> int:  # type: ignore[override]
        return self.world.now_ms

    # -- life

    def start(self) -> None:
        self.is_up = True
        self.log, _ = PartitionLog.open(self.files, DIRECTORY, CONFIG, now_ms=self.now_ms)
        self.partition = Replica(self.log)
        self.topics = [SentTopic(log) for log in self.world.logs]
        states, findings, arrived, reports = self.topics
        self.journal = Journal(states, findings, reports)
        self.arrivals = ArrivalLog(arrived)
        self.read_to = 0
        self.ends: dict[int, int] = {}
        self.must_truncate = True
        self.is_copying = False
        self.lead = Lead(cast("Any", self.partition), self.told_epoch)
        self.questions: list[tuple[int, Survey | Fetch]] = []
        self.answers: list[tuple[int, Survey | Fetch, object]] = []

    def kill(self) -> None:
        """SIGKILL: what was written stays; what it sent may still arrive."""
        self.files.kill()
        self.files.operations_left = None
        self.is_up, self.is_copying = False, False
        held = self.copied
        self.copied = list(self.batches_of_log())
        assert [b.key for b in self.copied][: len(held)] == [b.key for b in held], "a restart lost messages"
        for topic in self.topics:
            if topic.queue and self.random.random() < 0.5:
                self.world.late.append((topic.log, topic.queue[0][0]))

    def survive(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Died:
            self.kill()

    # -- leading and following

    def tell(self, epoch: int, leader: int, isr: set[int]) -> None:
        """The controller's word."""
        if not self.is_up or (epoch <= self.told_epoch and self.partition.leader_epoch == epoch):
            return
        self.told_epoch = epoch
        if self.partition.is_leader:
            self.arrivals.let_go(self.lead)
        partition, self.is_copying = self.partition, False
        partition.is_leader, partition.leader_epoch = leader == self.number, epoch
        partition.isr = set(isr)
        self.lead = Lead(cast("Any", partition), epoch)
        self.ends, self.must_truncate = {}, True
        if partition.is_leader:
            self.log.assign_epoch(epoch)
            self.take_over()
            self.advance()

    def take_over(self) -> None:
        lead = self.lead
        self.journal.take_over(lead, "", lambda state: self.begin(lead, state))

    def begin(self, lead: Lead, state: State) -> None:
        if self.lead != lead or not lead.holds:
            return
        self.arrivals.take_over(lead, self.now_ms)
        self.is_copying = True
        self.questions, self.answers = [], []
        self.copier = Copier(
            "dc-east",
            "events",
            0,
            target=self,
            journal=CheckedJournal(self, lead),
            state=state,
            backoff_ms=(50, 400),
        )

    def advance(self) -> None:
        """The high watermark, as far as this leader knows."""
        if not self.partition.is_under_min_isr:
            ends = [self.ends.get(other, 0) for other in self.partition.isr if other != self.number]
            self.log.advance_high_watermark(
                max(self.log.high_watermark, min([self.log.log_end_offset, *ends]))
            )

    def fetch_from(self, leader: Broker) -> None:
        """One fetch of a follower: its position is noted, and what comes is appended."""
        if self.must_truncate:
            self._truncate(leader)
        if not leader.log.log_start_offset <= self.log.log_end_offset <= leader.log.log_end_offset:
            self.copied = []
            start_at(self.log, leader.log.log_start_offset)
        end = leader.log.log_end_offset
        leader.ends[self.number] = self.log.log_end_offset
        leader.advance()
        if self.log.log_end_offset < end:
            data = leader.log.read(self.log.log_end_offset, size_max=REPLICATED_MAX, upper_offset=end).read()
            Appender(self.log).append_as_follower(memoryview(bytearray(data)), now_ms=self.now_ms)
            self.copied += [
                self.source.ever[header.base_offset, header.crc]
                for _, header in iter_batches(data)
                if header.base_offset >= leader.ends[self.number]
            ]
        self.log.advance_high_watermark(min(leader.log.high_watermark, self.log.log_end_offset))

    def _truncate(self, leader: Broker) -> None:
        """Cut what differs from the leader's log, by the leader epochs of batches."""
        for own, other in zip_longest(self.headers(), leader.headers()):
            if own is None:
                break
            if other is None or own[:2] != other[:2]:
                cut = min(own[0], leader.log.log_end_offset)
                assert own[0] >= self.log.high_watermark, "the model cuts what is committed"
                self.copied = [batch for batch in self.copied if batch.base_offset < cut]
                truncate_to(self.log, cut)
                break
        self.must_truncate = False

    def headers(self) -> Iterable[tuple[int, int, int]]:
        """(base offset, leader epoch, checksum) of every batch of the log."""
        offset, end = self.log.log_start_offset, self.log.log_end_offset
        while offset < end:
            data = self.log.read(offset, size_max=2**20, upper_offset=end).read()
            for _, header in iter_batches(data):
                yield header.base_offset, header.leader_epoch, header.crc
                offset = header.next_offset

    # -- the copier's target

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def is_committed(self) -> bool:
        return self.log.high_watermark >= self.log.log_end_offset

    @property
    def has_enough_in_sync(self) -> bool:
        return not self.partition.is_under_min_isr

    def append(self, records: memoryview) -> AppendResult:
        assert self.lead.holds
        end = self.log.log_end_offset
        result = Appender(self.log).append_mirrored(
            records, leader_epoch=self.lead.leader_epoch, now_ms=self.now_ms
        )
        for position, header in iter_batches(records):
            self.judge(bytes(records[position : position + header.size]), end)
            end = header.next_offset
        self.advance()
        return result

    def last_batch(self) -> BatchHeader | None:
        return last_batch(self.log)

    def start_at(self, offset: int) -> None:
        assert not self.copied, "a copy that has something begins anew"
        start_at(self.log, offset)
        self.log.assign_epoch(self.lead.leader_epoch)

    def arrived(self, first_offset: int, last_offset: int, now_ms: int) -> None:
        self.arrivals.arrived(self.lead, Arrival(first_offset, last_offset, now_ms))

    # -- its tasks

    def ask(self) -> None:
        if len(self.questions) + len(self.answers) < REQUESTS_MAX:
            want = self.copier.wants(self.now_ms)
            if want is not None:
                self.questions.append((self.now_ms + self.world.delay(), want))

    def deliver(self) -> None:
        due = [question for question in self.questions if question[0] <= self.now_ms]
        self.questions = [question for question in self.questions if question[0] > self.now_ms]
        for _, want in due:
            is_lost = not self.world.is_calm and self.random.random() < 0.06
            answer = None if is_lost else self.source.answer(want)
            self.answers.append((self.now_ms + self.world.delay(), want, answer))
        for entry in sorted((a for a in self.answers if a[0] <= self.now_ms), key=lambda a: a[0]):
            self.answers.remove(entry)
            self.hand_over(entry[1], entry[2])

    def hand_over(self, want: Survey | Fetch, answer: Any) -> None:
        match answer:
            case None:
                self.copier.failed("timed out", self.now_ms)
            case Surveyed():
                self.copier.surveyed(cast("Survey", want), answer, self.now_ms)
            case (bytes() as data, int() as high_watermark, int() as start):
                self.copier.fetched(
                    cast("Fetch", want),
                    memoryview(bytearray(data)),
                    high_watermark=high_watermark,
                    log_start_offset=start,
                    now_ms=self.now_ms,
                )
            case code:
                self.copier.refused(want, code, self.now_ms)

    def copy(self) -> None:
        if self.is_copying:
            self.ask()
            self.deliver()

    def read(self) -> None:
        self.read_to = self.world.logs[0].read(self.journal, self.read_to)

    def write(self) -> None:
        for topic in self.topics:
            if self.world.is_calm or self.random.random() < 0.5:
                topic.step(self.now_ms)

    def record_arrivals(self) -> None:
        if self.arrivals.unrecorded:
            pairs = ((r.key or b"", r.value or b"") for r in self.world.logs[2].records)
            self.arrivals.complete(arrivals.recorded_ends(pairs), self.arrivals.unrecorded)
        self.arrivals.flush(self.now_ms)

    def obey(self) -> None:
        """A person resumes and skips, sooner or later."""
        if self.is_copying and self.state.stopped is not None:
            self.copier.resume(stop_id(self.state.stopped), self.now_ms)
        elif self.is_copying and self.state.rotten is not None:
            rotten = self.state.rotten
            last = rotten.last_offset if rotten.last_offset >= 0 else rotten.first_offset
            self.copier.skip(SkipOrder(rot=stop_id(rotten), last_offset=last), self.now_ms)


class FailOverWorld:
    """One seed's life; its brokers do at each step a share `haste` of what they have to do. A quiet source loses nothing, it
    has leaders: every finding is false.
    """

    broker_type = Broker
    may_copy_again = False
    """Whether what is committed may be cut, and copied once more."""
    unknown_end = 0
    """Where a follower is taken to be that has not fetched: no log is cut to nothing while others have more."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.source = ModelSource(self.random)
        self.is_quiet = self.random.random() < 0.4
        self.haste = self.random.choice((0.4, 0.7, 1.0))
        self.reading = self.random.choice((0.1, self.haste))
        self.is_calm = False
        self.findings: list[CopyFinding] = []
        self.decided: dict[str, CopyFinding] = {}
        self.stops: set[str] = set()
        self.fail_overs = self.deposed_writes = 0
        self.late: list[tuple[SharedLog, Sequence[Pair]]] = []
        self._effective = States()
        self._newest: State | None = None
        hear = (self._state_written, self._finding_told, lambda _: None, lambda _: None)
        self.logs = [SharedLog(heard) for heard in hear]
        self.epoch, self.leader, self.isr = 0, 0, set(range(BROKERS))
        self.brokers = [self.broker_type(self, number) for number in range(BROKERS)]
        for broker in self.brokers:
            broker.tell(0, 0, self.isr)

    # -- what the shared topics hold

    def _state_written(self, record: Record) -> None:
        self._effective.take(0, record)
        newest = self._effective.newest(PLACE, TARGET_ID)
        if newest is None or newest == self._newest:
            self.deposed_writes += newest is not None and record.value is not None
            return
        for found in newest.untold:
            self.decided[found.id] = found
        stopped = newest.stopped
        if stopped is not None and (self._newest is None or self._newest.stopped != stopped):
            assert self._newest is None or self._newest.stopped is None, "stopped again without a resume"
            self.stops.add(stopped.id)
        self._newest = newest

    def _finding_told(self, record: Record) -> None:
        found = decode_finding(record.value or b"")
        assert found.id in self.decided, f"{found} was never decided"
        assert found.kind not in STOPPING or found.id in self.stops, f"{found} stopped nothing"
        if found not in self.findings:
            self.findings.append(found)

    # -- life

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += 40_000 if self.random.random() < 0.01 else self.random.randint(1, 120)
            self._step()
        self.settle()

    def delay(self) -> int:
        return 0 if self.is_calm else self.random.choice((0, 0, 0, 0, 10, 50, int(900 * (1 - self.haste))))

    def _step(self) -> None:
        choice, source = self.random.random(), self.source
        if choice < 0.18:
            source.append()
        elif choice < 0.22 and self.is_quiet:
            source.elect()
        elif choice < 0.22:
            self._change_source()
        elif choice < 0.25:
            source.heal()
        elif choice < (0.30 if self.is_quiet else 0.28):
            self._fail_over()
        elif choice < 0.31:
            broker = self.random.choice(self.brokers)
            broker.files.operations_left = self.random.randint(0, 8) if broker.is_up else None
        elif choice < 0.35:
            self._change_in_sync()
        elif choice < 0.37:
            self.logs[0].compact()
        elif choice < 0.42 and self.late:
            self._commit_late(*self.late.pop(self.random.randrange(len(self.late))))
        for broker in self.brokers:
            self._turn(broker)

    def _commit_late(self, log: SharedLog, pairs: Sequence[Pair]) -> None:
        log.commit(pairs, self.now_ms)

    def _turn(self, broker: Broker) -> None:
        """What a broker comes to do in one step."""
        is_time = self.random.random
        if not broker.is_up:
            if is_time() < 0.1:
                broker.start()
            return
        if is_time() < 0.2:
            broker.survive(lambda: broker.tell(self.epoch, self.leader, self.isr))
        if broker.is_copying and is_time() < 0.3:
            broker.survive(lambda: broker.copier.located(self.source.locate(), self.now_ms))
        for task, share in (
            (broker.copy, 1.0),
            (lambda: self._replicate(broker), self.haste),
            (broker.write, self.haste),
            (broker.read, self.reading),
            (broker.copy, self.haste),
            (broker.write, self.haste / 2),
            (broker.record_arrivals, 0.3),
            (broker.obey, 0.05),
        ):
            if broker.is_up and is_time() < share:
                broker.survive(task)

    def _change_source(self) -> None:
        source = self.source
        common = (source.elect, source.elect, source.rot, source.truncate, source.delete_records)
        rare = (source.truncate, source.retain, source.lose_middle, source.recreate, source.vanish)
        change = self.random.choice(common if self.random.random() < 0.7 else rare)
        change()
        if change == source.truncate:
            for broker in self.brokers:
                if broker.is_copying:
                    broker.questions, broker.answers = [], []
                    broker.copier.failed("the connection was closed", self.now_ms)

    # -- the controller

    @property
    def led_by(self) -> Broker | None:
        """Who leads and knows it."""
        broker = self.brokers[self.leader]
        return (
            broker
            if broker.is_up and broker.partition.is_leader and broker.told_epoch == self.epoch
            else None
        )

    def _fail_over(self) -> None:
        """The leader dies, or leads no more and learns of it later."""
        old = self.brokers[self.leader]
        if old.is_up and self.random.random() < 0.5:
            old.kill()
        able = [number for number in self.isr if self.brokers[number].is_up and number != self.leader]
        if able:
            self.fail_overs += 1
            if not old.is_up:
                self.isr -= {self.leader}
            self.leader = self.random.choice(able)
            self.epoch += 1

    def _replicate(self, broker: Broker) -> None:
        leader = self.led_by
        if leader is None and not self.brokers[self.leader].is_up:
            self._fail_over()
        if leader is not None and broker is not leader and broker.told_epoch == self.epoch:
            broker.fetch_from(leader)

    def _change_in_sync(self) -> None:
        """The leader has one out that is down or behind, or one in that has everything."""
        leader = self.led_by
        if leader is None:
            return
        for broker in self.brokers:
            end = leader.ends.get(broker.number, self.unknown_end)
            if broker is leader:
                continue
            if broker.number in self.isr and (not broker.is_up or end < leader.log_end_offset):
                self.isr = self.isr - {broker.number}
                break
            if broker.is_up and broker.number not in self.isr and end == leader.log_end_offset:
                self.isr = self.isr | {broker.number}
        leader.partition.isr = set(self.isr)
        leader.advance()

    # -- the end

    def settle(self) -> None:
        """No faults any more: the copy must get there, or be stopped and have said why."""
        self.is_calm = True
        self.source.heal()
        while self.late:
            self._commit_late(*self.late.pop())
        for broker in self.brokers:
            broker.files.operations_left = None
            if not broker.is_up:
                broker.start()
        self.epoch += 1
        if self.leader not in self.isr:
            self.leader = min(self.isr)
        for _ in range(500):
            self.now_ms += 100
            self._calm_step()
        self._check()

    def _calm_step(self) -> None:
        for broker in self.brokers:
            broker.tell(self.epoch, self.leader, self.isr)
            if broker.is_copying:
                broker.copier.located(self.source.locate(), self.now_ms)
            broker.copy()
            self._replicate(broker)
            broker.write()
            broker.read()
            broker.record_arrivals()
        self._change_in_sync()

    def _check(self) -> None:
        leader = self.led_by
        assert leader is not None, "somebody leads"
        assert leader.is_copying, "and copies"
        leader.check_end()
        leader.check_logs()
        told = {found.id for found in self.findings}
        assert told == set(self.decided), f"not told: {set(self.decided) - told}"
        for broker in self.brokers:
            assert list(broker.headers()) == list(leader.headers()), "replicas differ"
            assert broker.log_start_offset == leader.log_start_offset, "replicas begin at different offsets"
        self._check_arrivals(leader)

    def _check_arrivals(self, leader: Broker) -> None:
        values = [arrivals.decode(record.value or b"") for record in self.logs[2].records]
        exact = [o for a in values if not a.is_estimated for o in range(a.first_offset, a.last_offset + 1)]
        all_of_them = {o for a in values for o in range(a.first_offset, a.last_offset + 1)}
        assert self.may_copy_again or len(exact) == len(set(exact)), "an arrival was recorded twice"
        copied = {o for b in leader.copied for o in range(b.base_offset, b.next_offset)}
        assert copied <= all_of_them, "an arrival time is missing"
