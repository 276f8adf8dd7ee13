"""A broker's log store living through a seeded life: appends, flushes, truncations, full disks, deaths and power cuts.

The simulation keeps its own model, a list of batches, and after every crash its own idea of what the disk still holds,
found by a scanner of its own. It raises AssertionError where the log differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import unpack_from

import pytest
from crc32c import crc32c
from disk_life import DATA, DiskLife, Hazards
from faulty_files import FaultyFiles

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import OutOfOrderSequenceError, StorageError
from headrace.broker.log.appender import Appender
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import AppendResult, RecoveryReport
from headrace.broker.wire.batches import Record, encode_batch, set_base_offset_and_epoch

HAZARDS = Hazards(pause_ms_max=50, death_chance=0.04, operations_max=12, crash_chance=0.05)


@dataclass(frozen=True)
class Batch:
    """One batch as it must lie in the log."""

    base_offset: int
    last_offset: int
    data: bytes
    timestamps: tuple[int, ...]
    epoch: int
    producer: tuple[int, int] | None = None

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


class LogSimulation(DiskLife):
    """One seed's life. `is_mirror` appends batches that carry their offsets, with gaps."""

    def __init__(self, seed: int, *, is_mirror: bool = False) -> None:
        super().__init__(seed)
        self.is_mirror = is_mirror
        self.epoch = 0
        self.config = LogConfig(
            segment_bytes=self.random.choice((700, 1500, 5000)),
            index_interval_bytes=self.random.choice((0, 150, 600)),
            segment_index_bytes=self.random.choice((60, 240, 4000)),
            retention_ms=-1,
            file_delete_delay_ms=1000,
        )
        self.batches: list[Batch] = []
        self.pending: list[Batch] = []
        self.flushed: dict[int, Batch] = {}
        self.sequences: dict[int, int] = {}
        self.start_floor = 0
        self.reports: list[RecoveryReport] = []
        self._open()

    # -- life

    def run(self, steps: int) -> None:
        """Live, crash and recover; every recovery is checked."""
        self.live(steps, HAZARDS, self._step, self._crash)
        self._check_reads()
        self._stop_cleanly()

    def _step(self) -> None:
        steps = (self._append, self._append, self._append, self._append, self._flush, self._check_reads)
        rare = (
            self._truncate,
            self._delete_before,
            self._fill_disk,
            self.roll,
            self._stop_cleanly,
            self._note_epochs,
        )
        self.random.choice(steps if self.random.random() < 0.85 else rare)()

    def _open(self) -> None:
        self.reports = self.start(self.config)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def _append(self) -> None:
        if self.random.random() < 0.1:
            self.epoch += 1
            self.log.assign_epoch(self.epoch)
        self.pending = self._new_batches(1 if self.is_mirror else self.random.choice((1, 1, 2, 5)))
        batches = list(self.pending)
        if len(batches) == 1:
            self._append_to_log(batches[0])
        else:
            assert self._append_each(batches) == batches
        self.pending = []
        for batch in batches:
            self._accept(batch)

    def _new_batches(self, count: int) -> list[Batch]:
        """Batches that follow each other, as requests that came together bring them."""
        batches: list[Batch] = []
        sequences = dict(self.sequences)
        for _ in range(count):
            batch = self._new_batch(batches[-1].next_offset if batches else self.log.log_end_offset)
            batches.append(batch)
            if batch.producer is not None:
                self.sequences[batch.producer[0]] = batch.producer[1] + len(batch.timestamps)
        self.sequences = sequences
        return batches

    def _append_each(self, batches: list[Batch]) -> list[Batch]:
        """Append them together; returns those that were acknowledged."""
        appends = []
        for batch in batches:
            records = bytearray(batch.data)
            set_base_offset_and_epoch(records, 0, 0, -1)
            appends.append(memoryview(records))
        outcomes = Appender(self.log).append_each_as_leader(
            appends, leader_epoch=self.epoch, now_ms=self.now_ms
        )
        acknowledged = []
        for batch, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, AppendResult):
                assert (outcome.base_offset, outcome.last_offset) == (batch.base_offset, batch.last_offset)
                acknowledged.append(batch)
            else:
                assert isinstance(outcome, StorageError | OutOfOrderSequenceError)
        self.log.advance_high_watermark(self.log.log_end_offset)
        return acknowledged

    def _accept(self, batch: Batch) -> None:
        self.batches.append(batch)
        if batch.producer is not None:
            self.sequences[batch.producer[0]] = batch.producer[1] + len(batch.timestamps)

    def _append_to_log(self, batch: Batch) -> None:
        records = bytearray(batch.data)
        if self.is_mirror:
            set_base_offset_and_epoch(records, 0, batch.base_offset, 77)
            result = Appender(self.log).append_mirrored(
                memoryview(records), leader_epoch=self.epoch, now_ms=self.now_ms
            )
        else:
            set_base_offset_and_epoch(records, 0, 0, -1)
            result = Appender(self.log).append_as_leader(
                memoryview(records), leader_epoch=self.epoch, now_ms=self.now_ms
            )
        assert (result.base_offset, result.last_offset) == (batch.base_offset, batch.last_offset)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def _new_batch(self, end_offset: int) -> Batch:
        base_offset = end_offset + (self.random.choice((0, 0, 3, 40)) if self.is_mirror else 0)
        count = self.random.randint(1, 4)
        timestamps = tuple(self.now_ms + self.random.randint(-100, 100) for _ in range(count))
        records = [
            Record(0, timestamp_ms, None, self.random.randbytes(self.random.randint(0, 120)), [])
            for timestamp_ms in timestamps
        ]
        producer = None
        if self.random.random() < 0.4:
            producer_id = self.random.randint(1, 3)
            producer = (producer_id, self.sequences.get(producer_id, 0))
        data = encode_batch(
            records,
            producer_id=producer[0] if producer else -1,
            producer_epoch=0 if producer else -1,
            base_sequence=producer[1] if producer else -1,
        )
        set_base_offset_and_epoch(data, 0, base_offset, self.epoch)
        return Batch(base_offset, base_offset + count - 1, bytes(data), timestamps, self.epoch, producer)

    def _flush(self) -> None:
        self.flush()
        self._note_flushed(self.log.recovery_point)

    def _note_flushed(self, end_offset: int) -> None:
        for batch in self.batches:
            if batch.last_offset < end_offset:
                assert self.flushed.setdefault(batch.base_offset, batch) == batch, "an offset was used twice"

    def _truncate(self) -> None:
        candidates = [batch for batch in self.batches[-6:] if batch.base_offset > self.log.log_start_offset]
        if not candidates:
            return
        offset = self.random.choice(candidates).base_offset
        self.flushed = {base: batch for base, batch in self.flushed.items() if base < offset}
        before = self.batches
        self.batches = [batch for batch in before if batch.base_offset < offset]
        self.pending = before[len(self.batches) :]
        self._learn_sequences()
        self.store.truncate_at_once(self.log, offset)
        self.pending = []
        # Truncation may leave a hole where a mirror had a gap; the log goes on at the offset it was told.
        assert self.log.log_end_offset == offset

    def _note_epochs(self) -> None:
        for log, job in self.store.epoch_tasks():
            job()
            log.epochs_noted()

    def _delete_before(self) -> None:
        if self.batches:
            batch = self.random.choice(self.batches)
            self.log.delete_before(max(batch.base_offset, self.log.log_start_offset))
            self.store.maintain(self.now_ms)

    def _fill_disk(self) -> None:
        end_offset = self.log.log_end_offset
        batches = self._new_batches(1 if self.is_mirror else self.random.choice((1, 4)))
        self.files.room = self.random.randint(0, sum(len(batch.data) for batch in batches) - 1)
        self.pending = list(batches)
        acknowledged: list[Batch] = []
        try:
            if len(batches) > 1:
                acknowledged = self._append_each(batches)
            else:
                with pytest.raises(StorageError):
                    self._append_to_log(batches[0])
        finally:
            self.files.room = None
        self.pending = []
        # Of several, the first ones may have had room; then the others are the next to come, as if never sent.
        assert acknowledged == batches[: len(acknowledged)] != batches
        for batch in acknowledged:
            self._accept(batch)
            end_offset = batch.next_offset
        assert self.log.log_end_offset == end_offset

    def _stop_cleanly(self) -> None:
        self.store.close()
        self._note_flushed(self.end_offset)
        if self.random.random() < 0.5:
            self.files.crash(self.random)
        self._open()
        findings = [finding for finding in self.reports[0].findings if finding.kind != "rebuilt"]
        assert not findings, findings
        assert self.reports[0].segments_walked == 0
        self._check_whole_log()

    # -- death and what must be there afterwards

    def _crash(self) -> None:
        loses_power = self.die()
        if loses_power:
            self._flip_a_bit_of_the_tail()
        self._damage_a_hint()
        possible = [*self.batches, *self.pending]
        survivors = scan(self.files)
        must_survive = list(self.flushed.values()) if loses_power else self.batches
        self.pending = []
        self._open()
        start_offset = self.log.log_start_offset
        expected = [batch for batch in possible if batch.data in survivors]
        assert [batch.data for batch in expected] == survivors, "the disk holds what was never written"
        assert expected == [batch for batch in possible if batch in expected]
        for batch in must_survive:
            assert batch in expected or batch.last_offset < start_offset, f"{batch.base_offset} is lost"
        first = possible.index(expected[0]) if expected else 0
        self.batches = possible[: first + len(expected)] if expected else self._only_deleted(possible)
        assert self.batches[first:] == expected or not expected, "the log has a hole"
        self._learn_sequences()
        self._check_whole_log()
        self._check_producers()

    def _flip_a_bit_of_the_tail(self) -> None:
        survivors = scan(self.files)
        logs = [path for path in self.files.paths(".log") if self.files.size(path)]
        if not survivors or not self.files.read(logs[-1]).endswith(survivors[-1]):
            return
        base_offset = unpack_from(">q", survivors[-1])[0]
        if base_offset >= self._recovery_point_on_disk() and base_offset not in self.flushed:
            self.files.flip_bit(logs[-1], self.files.size(logs[-1]) - 1, self.random.randint(0, 7))

    def _recovery_point_on_disk(self) -> int:
        path = f"{DATA}/recovery-point-offset-checkpoint"
        return int(self.files.read(path).split()[-1]) if self.files.exists(path) else 0

    def _damage_a_hint(self) -> None:
        """Indexes and snapshots may hold anything: the log finds out."""
        hints = [path for suffix in ("index", ".snapshot") for path in self.files.paths(suffix)]
        if hints and self.random.random() < 0.3:
            garbage = self.random.choice((b"", b"\0" * 96, self.random.randbytes(self.random.randint(1, 96))))
            self.files.overwrite(self.random.choice(hints), garbage)

    def _only_deleted(self, possible: list[Batch]) -> list[Batch]:
        return [batch for batch in possible if batch.last_offset < self.log.log_start_offset]

    def _learn_sequences(self) -> None:
        self.sequences.clear()
        for batch in self.batches:
            if batch.producer is not None:
                self.sequences[batch.producer[0]] = batch.producer[1] + len(batch.timestamps)

    def _visible(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.last_offset >= self.log.log_start_offset]

    def _check_whole_log(self) -> None:
        self.log.advance_high_watermark(self.log.log_end_offset)
        visible = self._visible()
        assert self.log.log_end_offset >= self.end_offset
        if visible:
            assert read_all(self.log) == b"".join(batch.data for batch in visible)
            if not self.is_mirror:
                assert self.log.log_end_offset == self.end_offset
        for batch in visible:
            # A power cut may bring deleted segments back, but not the epochs from before the log start offset.
            assert self.log.epoch_at(batch.last_offset) in (batch.epoch, -1)
        self.epoch = max(self.epoch, self.log.latest_epoch)

    def _check_producers(self) -> None:
        if self.is_mirror:
            return
        last = {batch.producer[0]: batch for batch in self._visible() if batch.producer is not None}
        for batch in last.values():
            records = bytearray(batch.data)
            set_base_offset_and_epoch(records, 0, 0, -1)
            again = Appender(self.log).append_as_leader(
                memoryview(records), leader_epoch=0, now_ms=self.now_ms
            )
            assert (again.base_offset, again.batch_count) == (batch.base_offset, 0)
        for producer_id in last:
            ahead = encode_batch(
                [Record(0, self.now_ms, None, b"", [])],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=self.sequences[producer_id] + 1,
            )
            with pytest.raises(OutOfOrderSequenceError):
                Appender(self.log).append_as_leader(memoryview(ahead), leader_epoch=0, now_ms=self.now_ms)

    # -- reading

    def _check_reads(self) -> None:
        visible = self._visible()
        if not visible:
            return
        for _ in range(4):
            offset = self.random.randint(self.log.log_start_offset, self.log.log_end_offset)
            upper_offset = self.random.choice(
                [*(batch.next_offset for batch in visible), self.log.log_end_offset]
            )
            size_max = self.random.choice((1, 150, 700, 100_000))
            got = self.log.read(offset, size_max=size_max, upper_offset=upper_offset).read()
            expected = [
                batch.data
                for batch in visible
                if batch.last_offset >= offset and batch.next_offset <= upper_offset
            ]
            assert b"".join(expected).startswith(got)
            assert bool(got) == bool(expected)
            assert len(got) <= max(size_max, len(expected[0]) if expected else 0)
        self._check_timestamp(visible)

    def _check_timestamp(self, visible: list[Batch]) -> None:
        timestamp_ms = self.now_ms - self.random.randint(0, 1000)
        expected = next(
            (
                (batch.base_offset + index, found_ms)
                for batch in visible
                for index, found_ms in enumerate(batch.timestamps)
                if found_ms >= timestamp_ms and batch.base_offset + index >= self.log.log_start_offset
            ),
            None,
        )
        found = self.log.offset_for_timestamp(timestamp_ms)
        assert (None if found is None else found[:2]) == expected


def read_all(log: PartitionLog) -> bytes:
    """All batches of a log, by reading as a consumer does."""
    read = bytearray()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, size_max=1, upper_offset=log.log_end_offset).read()
        if not data:
            break
        base_offset, last_offset_delta = unpack_from(">q15xi", data)
        offset = base_offset + last_offset_delta + 1
        read += data
    return bytes(read)


def scan(files: FaultyFiles) -> list[bytes]:
    """The sound batches on the disk before the first bad byte or hole, by other code than the log's."""
    found: list[bytes] = []
    expected: int | None = None
    for path in files.paths(".log"):
        base = int(path.rpartition("/")[2][:20])
        if expected is not None and base != expected:
            break
        expected = base
        data = files.read(path)
        position = 0
        while position < len(data):
            batch = _sound_batch(data, position, expected)
            if batch is None:
                return found
            base_offset, last_offset_delta = unpack_from(">q15xi", batch)
            expected = base_offset + last_offset_delta + 1
            position += len(batch)
            found.append(batch)
    return found


def _sound_batch(data: bytes, position: int, offset_min: int) -> bytes | None:
    if len(data) - position < 61:
        return None
    base_offset, length = unpack_from(">qi", data, position)
    batch = data[position : position + 12 + length]
    if length < 49 or len(batch) < 12 + length or batch[16] != 2 or base_offset < offset_min:
        return None
    return batch if unpack_from(">I", batch, 17)[0] == crc32c(batch[21:]) else None
