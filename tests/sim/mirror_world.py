"""A copier between a model of its source and a real log on a faulty disk, over a network that delays, repeats and drops.

The model remembers every batch that ever was at the source and which one ever followed which, so each append can be
judged when it happens: the bytes are the source's, the batch followed the copy's last one at the source, or a finding
says what was passed over. `settle` ends the faults; then the copy is complete or stopped with a finding, and the two logs
are compared batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from uuid import UUID

from faulty_files import Died, FaultyFiles

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import ErrorCode
from headrace.broker.log.appender import Appender
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import AppendResult
from headrace.broker.log.truncation import start_at
from headrace.broker.wire.batches import BatchHeader, Record, encode_batch, iter_batches, read_header
from headrace.broker.wire.special_values import LATEST_TIMESTAMP
from headrace.mirror.copy.copier import Copier, Phase
from headrace.mirror.copy.log import last_batch
from headrace.mirror.memory.arrivals import Arrival, missing
from headrace.mirror.memory.findings import STOPPING, CopyFinding, Kind
from headrace.mirror.memory.state import SkipOrder, State, stop_id
from headrace.mirror.questions import Fetch, Located, Survey, Surveyed

DIRECTORY = "/data/dc-east.events-0"
TARGET_ID = UUID(int=7)
TARGET_EPOCH = 3
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=100, segment_index_bytes=400)
REQUESTS_MAX = 3
REQUEST_TIMEOUT_MS = 400
LAST_OFFSET_DELTA_AT, LIE = 26, 0x10
"""Rot in this byte of a batch makes it claim so many offsets more than it has."""
Key = tuple[int, int]


@dataclass(frozen=True)
class Batch:
    """One batch as the source holds it; unique by offset and checksum."""

    base_offset: int
    next_offset: int
    epoch: int
    data: bytes

    @property
    def key(self) -> Key:
        return self.base_offset, read_header(self.data).crc


class ModelSource:
    """A partition at its source; every change is counted by kind, so that a finding without cause is noticed."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.is_compacted = random.random() < 0.3
        self.has_epochs = random.random() < 0.8
        self.topic_id = UUID(int=100)
        self.is_listed = True
        self.leader_epoch = 0
        self.batches: list[Batch] = []
        self.epoch_starts: list[tuple[int, int]] = []
        self.start = self.end = 0
        self.rotten: Key | None = None
        self.does_rot_lie = False
        self.ever: dict[Key, Batch] = {}
        self.followed: set[tuple[Key, Key]] = set()
        self.firsts: set[Key] = set()
        self.causes: set[Kind] = set()
        self.was_cut = self.was_cut_in_epoch = False
        self.overwritten: set[int] = set()
        self._serial = 0

    # -- life

    def append(self) -> None:
        if self.was_cut and not self.has_epochs:
            return  # a source without epochs that grows over a cut cannot be told from one that did not lose anything
        self._append_sizes([self.random.randint(1, 3) for _ in range(self.random.randint(1, 3))])

    def _append_sizes(self, sizes: list[int]) -> None:
        for size in sizes:
            self._serial += 1
            self.append_batch(
                [Record(0, 1000 + self._serial, None, b"%d/%d" % (self._serial, i), []) for i in range(size)]
            )

    def append_batch(self, records: Sequence[Record]) -> Batch:
        """One batch of these."""
        data = bytes(encode_batch(records, base_offset=self.end, leader_epoch=self.leader_epoch))
        if not self.epoch_starts or self.epoch_starts[-1][0] != self.leader_epoch:
            self.epoch_starts.append((self.leader_epoch, self.end))
        batch = Batch(self.end, self.end + len(records), self.leader_epoch, data)
        self.batches.append(batch)
        self.end = batch.next_offset
        self.ever[batch.key] = batch
        self._note()
        return batch

    def _note(self) -> None:
        """What follows what, and what a new copy may begin with."""
        keys = [batch.key for batch in self.batches]
        self.followed.update(pairwise(keys))
        if keys:
            self.firsts.add(keys[0])

    def elect(self) -> None:
        self.leader_epoch += 1

    def truncate(self) -> None:
        """An unclean election, or a restart in the same leader epoch: the last batches are gone."""
        if self.is_compacted or self.random.random() < 0.6:
            self.elect()
        else:
            self.was_cut_in_epoch = True
        count = self.random.randint(1, 3)
        if len(self.batches) > count:
            lost = self.batches[-count:]
            if self.was_cut_in_epoch:
                self.overwritten.update(range(lost[0].base_offset, self.end))
            self.batches = self.batches[:-count]
            self.end = self.batches[-1].next_offset
            self.was_cut = True
            self.epoch_starts = [entry for entry in self.epoch_starts if entry[1] < self.end]
            self.causes |= {Kind.TRUNCATION}
            if self.has_epochs and self.random.random() < 0.5:
                # Other messages of the same shape: offsets do not tell.
                self._append_sizes([*(b.next_offset - b.base_offset for b in lost), 1])

    def retain(self) -> None:
        count = self.random.choice((1, 3, len(self.batches) - 1))
        # What a source lost in one epoch and then deleted as well leaves no trace.
        if 0 < count < len(self.batches) and not self.was_cut_in_epoch:
            self.batches = self.batches[count:]
            self.start = self.batches[0].base_offset
            self.causes |= {Kind.GAP}
            self._note()

    def delete_records(self) -> None:
        """The log start moves into the middle of a batch."""
        has_room = bool(self.batches) and self.batches[0].next_offset - 1 > self.start
        if has_room and not self.was_cut_in_epoch:
            self.start += 1
            self.causes |= {Kind.GAP}

    def lose_middle(self) -> None:
        """A batch in the middle is gone: compaction, or a loss when the topic is not compacted."""
        self.append()
        if len(self.batches) > 4:
            del self.batches[-self.random.randint(2, 3)]
            self.causes |= {Kind.GAP, Kind.TRUNCATION}
            self._note()

    def recreate(self) -> None:
        self.topic_id = UUID(int=self.topic_id.int + 1)
        self.leader_epoch = 0
        self.batches, self.epoch_starts = [], []
        self.start = self.end = 0
        self.was_cut = self.was_cut_in_epoch = False
        self.causes |= {Kind.RECREATION, Kind.TRUNCATION, Kind.GAP}

    def rot(self) -> None:
        if self.batches:
            self.rotten = self.random.choice(self.batches).key
            self.does_rot_lie = self.random.random() < 0.3
            self.causes |= {Kind.ROT}

    def heal(self) -> None:
        self.rotten = None
        self.is_listed = True

    def vanish(self) -> None:
        self.is_listed = False
        self.causes |= {Kind.VANISHED}

    # -- answers

    def locate(self) -> Located | None:
        if not self.is_listed:
            return None
        return Located(
            topic_id=self.topic_id, leader=1, leader_epoch=self.leader_epoch, is_compacted=self.is_compacted
        )

    def answer(self, want: Survey | Fetch) -> Surveyed | tuple[bytes, int, int] | ErrorCode:
        if want.topic_id != self.topic_id:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if want.leader_epoch != self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if isinstance(want, Survey):
            epoch, end = self._epoch_end(want.epoch)
            return Surveyed(
                log_start_offset=self.start,
                log_end_offset=self.end,
                epoch=epoch,
                epoch_end=end,
                tail=self._tail(want),
                begin=-1 if want.start is None else self.end,
            )
        if not self.start <= want.offset <= self.end:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return self._records(want.offset), self.end, self.start

    def _tail(self, want: Survey) -> BatchHeader | None:
        if want.tail is None or not self.start <= want.tail.base_offset < self.end:
            return None
        offset = want.tail.base_offset
        return next((read_header(b.data) for b in self.batches if b.next_offset > offset), None)

    def _epoch_end(self, epoch: int | None) -> tuple[int, int]:
        if epoch is None or not self.has_epochs:
            return -1, -1
        known = max((e for e, _ in self.epoch_starts if e <= epoch), default=epoch)
        return known, min((start for e, start in self.epoch_starts if e > epoch), default=self.end)

    def _records(self, offset: int) -> bytes:
        count = self.random.randint(1, 4)
        found = [self._served(b) for b in self.batches if self._claimed(b) > offset][:count]
        data = b"".join(found)
        # A source may cut any batch of an answer but the first (KIP-74).
        whole = len(found[0]) if found else 0
        return (
            data[: max(whole, len(data) - self.random.randint(1, 30))] if self.random.random() < 0.2 else data
        )

    def _served(self, batch: Batch) -> bytes:
        if batch.key != self.rotten:
            return batch.data
        broken = bytearray(batch.data)
        broken[LAST_OFFSET_DELTA_AT if self.does_rot_lie else -1] ^= LIE
        return bytes(broken)

    def _claimed(self, batch: Batch) -> int:
        """Where a broker that believes headers takes a batch to end."""
        is_lie = batch.key == self.rotten and self.does_rot_lie
        return batch.next_offset + LIE if is_lie else batch.next_offset


class Judged:
    """What every batch in a copy's log must be, given the source's whole life; `copied` is what its log holds."""

    source: ModelSource
    files: FaultyFiles
    log: PartitionLog
    copier: Copier
    copied: list[Batch]
    findings: list[CopyFinding]
    now_ms: int
    begins_late: bool = False
    began_at: int | None = None
    """Where the copy was to begin, by what was written of it first, or less where the source lost that."""

    @property
    def state(self) -> State:
        """What the copier knows beyond its log."""
        return self.copier.state

    def judge(self, data: bytes, end: int) -> None:
        """One appended batch, when the log ended at `end`."""
        header = read_header(data)
        known = self.source.ever.get((header.base_offset, header.crc))
        assert known is not None, f"offset {header.base_offset} never held this at the source"
        assert without_epoch(known.data) == without_epoch(data), "bytes differ from the source's"
        last = self.copied[-1] if self.copied else None
        place = self.state.next_offset(end)
        if last is None and self.begins_late:
            self._judge_begin(known)
        elif place != end:
            is_cleaned = self.source.is_compacted and self.state.resumed_at != end
            passed = self._held(end, place) if is_cleaned else range(end, header.base_offset)
            assert self._is_told(passed, {Kind.LOSS}), "skipped in silence"
            is_next = header.base_offset == place or self.source.is_compacted
            assert is_next or self.state.resumed_at == end or last is None, (
                f"more was skipped than to {place}"
            )
        elif last is None:
            may_begin = self.source.is_compacted or self.state.resumed_at is not None
            assert may_begin or known.key in self.source.firsts, "the copy begins in the middle"
        elif self.state.resumed_at == end:
            passed = range(end, header.base_offset)
            assert self._is_told(passed, {Kind.LOSS}), f"{passed} passed over in silence"
        else:
            assert (last.key, known.key) in self.source.followed, f"{known.key} never followed {last.key}"
            assert self.source.is_compacted or header.base_offset == end, f"a gap before {known.key}"
        self.copied.append(known)

    def _held(self, begin: int, end: int) -> list[int]:
        """The offsets from `begin` up to `end` that compaction left at the source."""
        batches = self.source.batches
        return [o for o in range(begin, end) if any(b.base_offset <= o < b.next_offset for b in batches)]

    def _judge_begin(self, first: Batch) -> None:
        """The first batch of a copy that was told to begin at the source's end, unless the topic was created again since."""
        if any(finding.kind is Kind.RECREATION for finding in self.findings):
            return
        began_at = self.began_at
        assert began_at is not None, "nobody decided where it begins"
        assert first.next_offset > began_at, f"{first.key} comes before {began_at}"
        passed = [b for b in self.source.batches if began_at < b.next_offset <= first.base_offset]
        assert all(self._is_told(range(b.base_offset, b.next_offset), {Kind.LOSS}) for b in passed), (
            f"what came behind {began_at} is passed over in silence"
        )

    def check_rot(self, finding: CopyFinding) -> None:
        """What is called rotten is the one batch, or from its beginning on to nobody knows where."""
        known = [b for b in self.source.ever.values() if b.base_offset == finding.first_offset]
        lasts = {b.next_offset - 1 for b in known} | {-1}
        lasts |= {b.base_offset - 1 for a, b in pairwise(self.source.batches) if a in known}
        assert finding.last_offset in lasts, f"{finding} is more than a batch"

    def _is_told(self, offsets: Iterable[int], kinds: Iterable[Kind]) -> bool:
        told = {o for f in self.findings if f.kind in kinds for o in range(f.first_offset, f.last_offset + 1)}
        return told.issuperset(offsets)

    def check_end(self) -> None:
        stopped = self.state.stopped
        if stopped is not None:
            assert self.copier.phase is Phase.STOPPED, "the stop was forgotten"
            assert stopped in self.findings, "a stop that was not reported"
            assert stopped.kind in STOPPING, "a finding that does not stop"
            return
        end = self.log.log_end_offset
        is_waiting = self.state.resumed_at == end and all(b.base_offset < end for b in self.source.batches)
        if not (is_waiting or self.copied or self.began_at is None):
            left = [b.key for b in self.source.batches if b.next_offset > self.began_at]
            assert not left, f"{left} came behind {self.began_at} and are not copied"
        assert is_waiting or self.state.next_offset(end) == self.source.end, (
            f"the copy ends at {end}, the source at {self.source.end}"
        )

    def check_logs(self) -> None:
        """Batch by batch, the copy against what the source has now."""
        copied = {batch.key for batch in self.batches_of_log()}
        assert copied == {batch.key for batch in self.copied}, (
            "the log holds something else than was appended"
        )
        if self.state.stopped is not None:
            return
        told = {Kind.LOSS, Kind.TRUNCATION, Kind.RECREATION}
        kinds = {finding.kind for finding in self.findings}
        start, end = self.log.log_start_offset, self.log.log_end_offset
        for batch in self.source.batches:
            if start <= batch.base_offset < end and batch.key not in copied:
                offsets = range(batch.base_offset, min(batch.next_offset, end))
                # Of a tail lost within an epoch the finding names the last batch only.
                silent = set(offsets) - (self.source.overwritten if Kind.TRUNCATION in kinds else set())
                assert self._is_told(silent, told), f"{batch.key} is missing in silence"

    def batches_of_log(self) -> Iterable[Batch]:
        log, _ = PartitionLog.open(self.files, DIRECTORY, CONFIG, now_ms=self.now_ms)
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, size_max=2**20, upper_offset=log.log_end_offset).read()
            for position, header in iter_batches(data):
                known = self.source.ever.get((header.base_offset, header.crc))
                assert known is not None, f"offset {header.base_offset} of the log is nothing of the source's"
                assert without_epoch(known.data) == without_epoch(data[position : position + header.size])
                yield known
                offset = header.next_offset


class CheckedTarget:
    """The real log; every append is judged."""

    def __init__(self, world: MirrorWorld, log: PartitionLog) -> None:
        self._world = world
        self._log = log

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def is_committed(self) -> bool:
        return True

    @property
    def has_enough_in_sync(self) -> bool:
        return True

    def append(self, records: memoryview) -> AppendResult:
        end = self._log.log_end_offset
        result = Appender(self._log).append_mirrored(
            records, leader_epoch=TARGET_EPOCH, now_ms=self._world.now_ms
        )
        self._log.advance_high_watermark(self._log.log_end_offset)
        for position, header in iter_batches(records):
            self._world.judge(bytes(records[position : position + header.size]), end)
            end = header.next_offset
        return result

    def last_batch(self) -> BatchHeader | None:
        return last_batch(self._log)

    def start_at(self, offset: int) -> None:
        assert not self._world.copied, "a copy that has something begins anew"
        start_at(self._log, offset)


class MirrorWorld(Judged):
    """One seed's life; the attributes below `journal` outlive a crash of the target."""

    def __init__(self, seed: int, *, begins_late: bool = False) -> None:
        """With `begins_late` the source has messages already, and the copy is to begin at its end."""
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.source = ModelSource(self.random)
        self.files = FaultyFiles()
        self.saved = State(target_id=TARGET_ID, start=LATEST_TIMESTAMP if begins_late else None)
        self.begins_late, self.began_at = begins_late, None
        for _ in range(3 if begins_late else 0):
            self.source.append()
        self.findings: list[CopyFinding] = []
        self.arrivals: list[Arrival] = []
        self.copied: list[Batch] = []
        self.skipped: list[CopyFinding] = []
        self.is_calm = False
        self._questions: list[tuple[int, Survey | Fetch]] = []
        self._answers: list[tuple[int, Survey | Fetch, object]] = []
        self.copier: Copier
        self.log: PartitionLog
        self._start()

    # -- the journal

    def write(self, state: State, findings: Sequence[CopyFinding], written: Callable[[], None]) -> None:
        self.files.step()
        for finding in findings:
            assert finding.kind in self.source.causes | {Kind.LOSS}, f"nothing caused {finding}"
            if finding.kind is Kind.ROT:
                self.check_rot(finding)
        self.saved = state
        if state.begins_at is not None:
            self.began_at = min(state.begins_at, state.begins_at if self.began_at is None else self.began_at)
        self.findings += findings
        written()

    def arrived(self, first_offset: int, last_offset: int, now_ms: int) -> None:
        self.files.step()
        self.arrivals.append(Arrival(first_offset, last_offset, now_ms))

    # -- life

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += 40_000 if self.random.random() < 0.02 else self.random.randint(1, 120)
            if self.random.random() < 0.03:
                self.files.operations_left = self.random.randint(0, 8)
            self._survive(self._step)
        self.settle()

    def settle(self) -> None:
        """No faults any more: the copy must get there, or be stopped and have said why."""
        self.is_calm = True
        self.files.operations_left = None
        self.source.heal()
        for _ in range(400):
            self.now_ms += 100
            self.copier.located(self.source.locate(), self.now_ms)
            self._ask()
            self._deliver()
        self.check_end()
        self.check_logs()
        self._check_arrivals()

    def _survive(self, step: object) -> None:
        assert callable(step)
        try:
            step()
        except Died:
            self._crash()

    def _step(self) -> None:
        choice = self.random.random()
        if choice < 0.18:
            self.source.append()
        elif choice < 0.22:
            self._change_source()
        elif choice < 0.25:
            self.source.heal()
        elif choice < 0.45:
            self.copier.located(self.source.locate(), self.now_ms)
        elif choice < 0.46:
            self._crash()
        elif choice < 0.54 and self.state.stopped is not None:
            self.copier.resume(stop_id(self.state.stopped), self.now_ms)
        elif choice < 0.56 and self.state.rotten is not None:
            self._skip(self.state.rotten)
        self._ask()
        self._deliver()

    def _skip(self, rotten: CopyFinding) -> None:
        """A person gives the rot up, or another one by mistake; twice, as the order is read again."""
        last = rotten.last_offset if rotten.last_offset >= 0 else rotten.first_offset
        order = SkipOrder(rot=stop_id(rotten), last_offset=last)
        before = self.state
        mistaken = replace(order, rot="another")
        for wrong in (
            (mistaken,) if rotten.last_offset < 0 else (mistaken, replace(order, last_offset=last + 1))
        ):
            self.copier.skip(wrong, self.now_ms)
            assert self.state == before, "something else was skipped than a person named"
        told = len(self.findings)
        self.copier.skip(order, self.now_ms)
        self.copier.skip(order, self.now_ms)
        assert len(self.findings) <= told + 1, "told twice"
        self.skipped.append(rotten)
        if rotten.last_offset < 0:
            # Of rot whose end nobody knows this is the beginning; the rest of the batch is a hole to the copy, or, where the
            # source has it whole again, begins before the copy goes on.
            self.source.causes |= {Kind.GAP, Kind.TRUNCATION}

    def _change_source(self) -> None:
        source = self.source
        common = (source.elect, source.rot, source.truncate, source.delete_records)
        rare = (source.truncate, source.retain, source.lose_middle, source.recreate, source.vanish)
        change = self.random.choice(common if self.random.random() < 0.6 else rare)
        change()
        if change == source.truncate:
            self._questions, self._answers = [], []
            self.copier.failed("the connection was closed", self.now_ms)

    def _start(self) -> None:
        self.log, _ = PartitionLog.open(self.files, DIRECTORY, CONFIG, now_ms=self.now_ms)
        self.log.advance_high_watermark(self.log.log_end_offset)
        self._complete_arrivals()
        target = CheckedTarget(self, self.log)
        self.copier = Copier(
            "dc-east", "events", 0, target=target, journal=self, state=self.saved, backoff_ms=(50, 400)
        )

    def _complete_arrivals(self) -> None:
        ends = [arrival.last_offset + 1 for arrival in self.arrivals]
        found = missing(
            ends[-1] if ends else None, self.log.log_start_offset, self.log.log_end_offset, self.now_ms
        )
        if found is not None:
            self.arrivals.append(found)

    def _crash(self) -> None:
        """SIGKILL: what was written stays, what was under way and in the network is gone."""
        self.files.kill()
        held = self.copied
        self._questions, self._answers = [], []
        self.copied = list(self.batches_of_log())
        assert [b.key for b in self.copied][: len(held)] == [b.key for b in held], "a restart lost messages"
        self._start()

    # -- the network

    def _delay(self) -> int:
        return 0 if self.is_calm else self.random.choice((0, 0, 0, 10, 50, 300, 900))

    def _ask(self) -> None:
        if len(self._questions) + len(self._answers) >= REQUESTS_MAX:
            return
        want = self.copier.wants(self.now_ms)
        if want is not None:
            self._questions.append((self.now_ms + self._delay(), want))

    def _deliver(self) -> None:
        due = [q for q in self._questions if q[0] <= self.now_ms]
        self._questions = [q for q in self._questions if q[0] > self.now_ms]
        for _, want in due:
            self._answers += self._copies(want, self.source.answer(want))
        for entry in sorted((a for a in self._answers if a[0] <= self.now_ms), key=lambda a: a[0]):
            self._answers.remove(entry)
            self._hand_over(entry[1], entry[2])

    def _copies(self, want: Survey | Fetch, answer: object) -> Iterable[tuple[int, Survey | Fetch, object]]:
        """The answer once, twice, or as a time-out."""
        fate = 1.0 if self.is_calm else self.random.random()
        if fate < 0.06:
            return [(self.now_ms + REQUEST_TIMEOUT_MS, want, None)]
        count = 2 if fate < 0.12 else 1
        return [(self.now_ms + self._delay(), want, answer) for _ in range(count)]

    def _hand_over(self, want: Survey | Fetch, answer: object) -> None:
        match answer:
            case None:
                self.copier.failed("timed out", self.now_ms)
            case ErrorCode():
                self.copier.refused(want, answer, self.now_ms)
            case Surveyed():
                assert isinstance(want, Survey)
                self.copier.surveyed(want, answer, self.now_ms)
            case (bytes() as data, int() as high_watermark, int() as start):
                assert isinstance(want, Fetch)
                self.copier.fetched(
                    want,
                    memoryview(bytearray(data)),
                    high_watermark=high_watermark,
                    log_start_offset=start,
                    now_ms=self.now_ms,
                )

    def _check_arrivals(self) -> None:
        recorded = [o for a in self.arrivals for o in range(a.first_offset, a.last_offset + 1)]
        copied = [o for b in self.copied for o in range(b.base_offset, b.next_offset)]
        assert set(copied) <= set(recorded), "an arrival time is missing"
        assert recorded == sorted(set(recorded)), "an arrival time was recorded twice"


def without_epoch(data: bytes) -> bytes:
    return data[:12] + data[16:]
