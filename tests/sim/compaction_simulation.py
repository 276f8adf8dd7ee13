"""A compacted log living through a seeded life: keys, tombstones, cleanings, truncations, deaths and power cuts.

The model is the list of all records ever appended and not truncated. Whatever the log forgets, replaying what it holds
must give what replaying the model gives, at the same offsets. It raises AssertionError where that is not so.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from faulty_files import Died, FaultyFiles

from headrace.broker.config import LogConfig
from headrace.broker.log.cleaning import CleanerLimits
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.store import LogStore
from headrace.broker.wire.batches import BatchHeader, Record, decode_records, encode_batch, iter_batches

DATA = "/data"
RETENTION_MS = 300
KEYS = [b"%d" % number for number in range(8)]


class Entry(NamedTuple):
    """One record of the model."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp_ms: int
    next_batch_offset: int


class CompactionSimulation:
    """One seed's life."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.files = FaultyFiles()
        self.now_ms = 1_000_000
        self.config = LogConfig(
            cleanup_policy=("compact",),
            segment_bytes=self.random.choice((600, 1200, 4000)),
            index_interval_bytes=self.random.choice((0, 200)),
            segment_index_bytes=self.random.choice((120, 4000)),
            delete_retention_ms=RETENTION_MS,
            min_cleanable_dirty_ratio=0.1,
            file_delete_delay_ms=self.random.choice((0, 200)),
        )
        self.limits = CleanerLimits(
            dedupe_buffer_size=self.random.choice((1300, 100_000)),
            io_buffer_size=self.random.choice((64, 500, 10_000)),
        )
        self.entries: list[Entry] = []
        self.pending: list[Entry] = []
        self.flushed_offset = 0
        # Next sequence number and end of the last batch of each producer followed; a new generation of them begins
        # where the last batch of one is gone, for compaction may have taken the one before.
        self.sequences: dict[int, tuple[int, int]] = {}
        self.generation = 0
        # Above it nothing was ever compacted: a truncation below would need an unclean election.
        self.compacted_to = 0
        # When a cleaning first met the tombstone at an offset.
        self.met_ms: dict[int, int] = {}
        self.store: LogStore
        self.log: PartitionLog
        self.completed = 0
        self._open()

    def run(self, steps: int) -> None:
        """Live, crash and recover; what is left is checked again and again."""
        for _ in range(steps):
            self.now_ms += self.random.randint(0, 40)
            if self.random.random() < 0.1:
                self.files.operations_left = self.random.randint(0, 40)
            try:
                self._step()
            except Died:
                self._crash()
            if self.random.random() < 0.02:
                self._crash()
        self.files.operations_left = None
        self._check()

    def _step(self) -> None:
        steps = (self._append, self._append, self._append, self._append, self._flush, self._clean)
        rare = (self._truncate, self._roll, self._check, self._stop)
        self.random.choice(steps if self.random.random() < 0.9 else rare)()

    def _open(self) -> None:
        self.store, _ = LogStore.open(
            self.files,
            [DATA],
            self.config,
            broker_id=1,
            cluster_id="simulation",
            overrides=lambda _: {},
            now_ms=self.now_ms,
        )
        self.log = self.store.create("events", 0, None, now_ms=self.now_ms)
        assert not self.files.paths(".cleaned")
        assert not self.files.paths(".swap")
        self.log.advance_high_watermark(self.log.log_end_offset)
        bases = [header.base_offset for path in self.files.paths(".log") for header in self._headers(path)]
        assert bases == sorted(set(bases)), "two segments hold the same offset"

    def _headers(self, path: str) -> list[BatchHeader]:
        return [header for _, header in iter_batches(self.files.read(path))]

    def _append(self) -> None:
        count = self.random.randint(1, 4)
        first = self.log.log_end_offset
        records = [
            Record(
                0,
                self.now_ms,
                self.random.choice(KEYS),
                None if self.random.random() < 0.3 else self.random.randbytes(self.random.randint(1, 90)),
                [],
            )
            for _ in range(count)
        ]
        producer_id = self.random.choice((-1, -1, self.generation * 2, self.generation * 2 + 1))
        sequence = self.sequences[producer_id][0] if producer_id in self.sequences else 0
        batch = encode_batch(
            records,
            codec=self.random.choice((0, 0, 3)),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
        )
        self.pending = [
            Entry(first + number, record.key or b"", record.value, self.now_ms, first + count)
            for number, record in enumerate(records)
        ]
        self.log.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=self.now_ms)
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.entries += self.pending
        self.pending = []
        if producer_id >= 0:
            self.sequences[producer_id] = (sequence + count, first + count)

    def _flush(self) -> None:
        task = self.log.flush_task()
        if task is not None:
            self.log.flushed(task())
        self.flushed_offset = max(self.flushed_offset, self.log.recovery_point)
        self.store.checkpoint()

    def _roll(self) -> None:
        self.log.roll_if_due(self.now_ms + self.config.segment_ms + 1)

    def _stop(self) -> None:
        self.store.close()
        self.flushed_offset = self.log.log_end_offset
        if self.random.random() < 0.5:
            self.files.crash(self.random)
        self._open()
        self._check()

    def _truncate(self) -> None:
        """To the begin of one of the last batches."""
        ends = sorted({entry.next_batch_offset for entry in self.entries[-20:]})[:-1]
        starts = [end for end in ends if end >= self.compacted_to]
        if not starts or self.random.random() < 0.5:
            return
        offset = self.random.choice(starts)
        gone = [entry for entry in self.entries if entry.offset >= offset]
        self.flushed_offset = min(self.flushed_offset, offset)
        self.entries, self.pending = self.entries[: len(self.entries) - len(gone)], gone
        self._forget_the_lost()
        self.log.truncate_to(offset)
        self.pending = []

    def _forget_the_lost(self) -> None:
        left = {entry.offset for entry in self.entries}
        self.met_ms = {met: ms for met, ms in self.met_ms.items() if met in left}
        if any(end - 1 not in left for _, end in self.sequences.values()):
            self.sequences.clear()
            self.generation += 1

    # -- cleaning

    def _clean(self) -> None:
        found = self.store.filthiest(self.now_ms)
        if found is None:
            self.store.maintain(self.now_ms)
            return
        log, dirt = found
        self.compacted_to = max(self.compacted_to, dirt.end_offset)
        for entry in self.entries:
            if entry.value is None and entry.offset < dirt.end_offset:
                self.met_ms.setdefault(entry.offset, self.now_ms)
        jobs = log.cleaner.clean(log, dirt, self.limits, self.now_ms)
        try:
            for job in jobs:
                job()
                self._meanwhile()
                if self.random.random() < 0.05:
                    break
            else:
                self.completed += 1
        finally:
            jobs.close()
        self.store.checkpoint()
        self._check()

    def _meanwhile(self) -> None:
        """What the loop does while a thread cleans."""
        chance = self.random.random()
        if chance < 0.2:
            self._append()
        elif chance < 0.25:
            self._truncate()
        elif chance < 0.3:
            self._check()

    # -- death and what must be there afterwards

    def _crash(self) -> None:
        possible = [*self.entries, *self.pending]
        must_survive_to = self.flushed_offset
        if self.random.random() < 0.6:
            self.files.crash(self.random)
        else:
            self.files.kill()
            must_survive_to = self.entries[-1].next_batch_offset if self.entries else 0
        if self.random.random() < 0.3:
            for path in self.files.paths(".snapshot"):
                self.files.remove(path)
        self.pending = []
        self._open()
        end_offset = self.log.log_end_offset
        assert end_offset >= must_survive_to, "flushed records are lost"
        # A hole in what was never synced is no loss that recovery could undo.
        held = {record.offset for record in self._held()}
        self.entries = [entry for entry in possible if entry.offset < must_survive_to or entry.offset in held]
        self._forget_the_lost()
        self._check()
        for producer_id, (_, end) in self.sequences.items():
            producer = self.log.producers.get(producer_id)
            assert producer is not None, "a producer is forgotten"
            assert producer.batches[-1].last_offset + 1 == end

    def _check(self) -> None:
        held = list(self._held())
        by_offset = {entry.offset: entry for entry in self.entries}
        offsets = [record.offset for record in held]
        assert offsets == sorted(set(offsets))
        for record in held:
            entry = by_offset[record.offset]
            assert (record.key, record.value, record.timestamp_ms) == (
                entry.key,
                entry.value,
                entry.timestamp_ms,
            )
        last_held = {record.key: record for record in held}
        last = {entry.key: entry for entry in self.entries}
        for key, entry in last.items():
            if entry.value is not None:
                assert key in last_held, f"the last value of {key!r}, at {entry.offset}, is lost"
                assert last_held[key].offset == entry.offset
            elif key in last_held:
                assert last_held[key].value is None, f"{key!r} came back"
            else:
                assert self.now_ms >= self.met_ms[entry.offset] + RETENTION_MS, "a tombstone went early"
        clean = [record.key for record in held if record.offset < (self.log.cleaner.clean_offset or 0)]
        assert len(clean) == len(set(clean)), "what is clean holds a key twice"
        assert set(last_held) <= set(last)

    def _held(self) -> list[Record]:
        held: list[Record] = []
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            data = self.log.read(offset, size_max=1, upper_offset=self.log.log_end_offset).read()
            if not data:
                break
            header = next(iter_batches(data))[1]
            assert header.last_offset >= offset
            held += [record for record in decode_records(data, 0, header) if record.offset >= offset]
            offset = header.next_offset
        return held
