"""A compacted log living through a seeded life: keys, tombstones, transactions, cleanings, truncations, deaths, power cuts.

The model is the list of all records and markers ever appended and not truncated. Whatever the log forgets, replaying what a
reader of committed records gets must give what replaying the model gives, at the same offsets. It raises AssertionError
where that is not so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from disk_life import DiskLife, Hazards

from headrace.broker.config.topics import LogConfig
from headrace.broker.log.appender import Appender
from headrace.broker.log.compaction import CleanerLimits
from headrace.broker.log.producers import read_marker
from headrace.broker.wire.batches import (
    BatchHeader,
    Record,
    decode_records,
    encode_batch,
    iter_batches,
    set_base_offset_and_epoch,
)

RETENTION_MS = 300
KEYS = [b"%d" % number for number in range(8)]
HAZARDS = Hazards(pause_ms_max=40, death_chance=0.1, operations_max=40, crash_chance=0.02)
ABORT, COMMIT = 0, 1
TRANSACTIONAL = 1000


class Entry(NamedTuple):
    """One record of the model, or a transaction's marker (ABORT or COMMIT)."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp_ms: int
    next_batch_offset: int
    transactional_id: int = -1
    marker: int | None = None


class Transaction(NamedTuple):
    """One transaction of the model; `marker` is None while it is open."""

    offsets: list[int]
    marker: Entry | None


def transactions_of(entries: list[Entry]) -> list[Transaction]:
    """All that have a record, the open ones last."""
    under_way: dict[int, list[int]] = {}
    found = []
    for entry in entries:
        if entry.transactional_id < 0:
            continue
        if entry.marker is None:
            under_way.setdefault(entry.transactional_id, []).append(entry.offset)
        elif entry.transactional_id in under_way:
            found.append(Transaction(under_way.pop(entry.transactional_id), entry))
    return found + [Transaction(offsets, None) for offsets in under_way.values()]


class CompactionSimulation(DiskLife):
    """One seed's life."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
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
        self.transactional_share = self.random.choice((0, 0.3, 0.7))
        self.entries: list[Entry] = []
        self.pending: list[Entry] = []
        self.flushed_offset = 0
        # Next sequence number and end of the last batch of each producer followed; a new generation of them begins
        # where the last batch of one is gone, for compaction may have taken the one before.
        self.sequences: dict[int, tuple[int, int]] = {}
        self.generation = 0
        # Above it nothing was ever compacted: a truncation below would need an unclean election.
        self.compacted_to = 0
        # When a cleaning first met the tombstone or marker at an offset.
        self.met_ms: dict[int, int] = {}
        self.completed = 0
        self._open()

    def run(self, steps: int) -> None:
        """Live, crash and recover; what is left is checked again and again."""
        self.live(steps, HAZARDS, self._step, self._crash)
        self._check()

    def _step(self) -> None:
        steps = (self._append, self._append, self._append, self._append, self._flush, self._clean)
        rare = (self._truncate, self.roll, self._check, self._stop)
        self.random.choice(steps if self.random.random() < 0.9 else rare)()

    def _open(self) -> None:
        self.start(self.config)
        assert not self.files.paths(".cleaned")
        assert not self.files.paths(".swap")
        self.log.advance_high_watermark(self.log.log_end_offset)
        bases = [header.base_offset for path in self.files.paths(".log") for header in self._headers(path)]
        assert bases == sorted(set(bases)), "two segments hold the same offset"

    def _headers(self, path: str) -> list[BatchHeader]:
        return [header for _, header in iter_batches(self.files.read(path))]

    # -- appending

    def _append(self) -> None:
        if self.random.random() < self.transactional_share:
            self._append_to_transaction()
            return
        producer_id = self.random.choice((-1, -1, self.generation * 2, self.generation * 2 + 1))
        self._append_records(producer_id, is_transactional=False)

    def _append_to_transaction(self) -> None:
        """One more batch, or the end; those of a producer that is followed no more can only end."""
        under_way = {entry.transactional_id for entry in self._open_entries()}
        current = {TRANSACTIONAL + self.generation * 3 + number for number in range(3)}
        producer_id = self.random.choice(sorted(under_way | current))
        if producer_id not in under_way or (producer_id in current and self.random.random() < 0.6):
            self._append_records(producer_id, is_transactional=True)
        else:
            self._append_marker(producer_id, self.random.choice((ABORT, COMMIT)))

    def _open_entries(self) -> list[Entry]:
        offsets = {
            o for found in transactions_of(self.entries) if found.marker is None for o in found.offsets
        }
        return [entry for entry in self.entries if entry.offset in offsets]

    def _append_records(self, producer_id: int, *, is_transactional: bool) -> None:
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
        sequence = self.sequences[producer_id][0] if producer_id in self.sequences else 0
        batch = encode_batch(
            records,
            codec=self.random.choice((0, 0, 3)),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=is_transactional,
        )
        transactional_id = producer_id if is_transactional else -1
        entries = [
            Entry(
                first + number, record.key or b"", record.value, self.now_ms, first + count, transactional_id
            )
            for number, record in enumerate(records)
        ]
        self._append_batch(batch, entries)
        if producer_id >= 0:
            self.sequences[producer_id] = (sequence + count, first + count)

    def _append_marker(self, producer_id: int, kind: int) -> None:
        record = Record(0, self.now_ms, b"\0\0\0" + bytes([kind]), b"\0\0\0\0\0\0", [])
        batch = encode_batch(
            [record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True
        )
        offset = self.log.log_end_offset
        self._append_batch(batch, [Entry(offset, b"", b"", self.now_ms, offset + 1, producer_id, kind)])

    def _append_batch(self, batch: bytearray, entries: list[Entry]) -> None:
        self.pending = entries
        set_base_offset_and_epoch(batch, 0, self.log.log_end_offset, 0)
        Appender(self.log).append_as_follower(memoryview(batch), now_ms=self.now_ms)
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.entries += self.pending
        self.pending = []

    def _flush(self) -> None:
        self.flush()
        self.flushed_offset = max(self.flushed_offset, self.log.recovery_point)

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
        self.store.truncate_at_once(self.log, offset)
        self.pending = []

    def _forget_the_lost(self) -> None:
        left = {entry.offset for entry in self.entries}
        self.met_ms = {met: ms for met, ms in self.met_ms.items() if met in left}
        if any(end - 1 not in left for _, end in self.sequences.values()):
            self.sequences.clear()
            self.generation += 1

    # -- cleaning

    def _clean(self) -> None:
        log = self.log
        dirt = log.cleaner.dirt(log, self.now_ms)
        if dirt is None:
            self.store.maintain(self.now_ms)
            return
        deciding = [t.marker.offset + 1 for t in transactions_of(self.entries) if t.marker is not None]
        self.compacted_to = max(self.compacted_to, dirt.end_offset, *deciding)
        for entry in self.entries:
            if (entry.value is None or entry.marker is not None) and entry.offset < dirt.end_offset:
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
        self.flushed_offset = max(self.flushed_offset, self.log.recovery_point)
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
        if not self.die():
            must_survive_to = self.entries[-1].next_batch_offset if self.entries else 0
        if self.random.random() < 0.3:
            for path in self.files.paths(".snapshot"):
                self.files.remove(path)
        self.pending = []
        self._open()
        end_offset = self.log.log_end_offset
        assert end_offset >= must_survive_to, "flushed records are lost"
        # A hole in what was never synced is no loss that recovery could undo.
        held = {record.offset for _, records in self._batches() for record in records}
        self.entries = [entry for entry in possible if entry.offset < must_survive_to or entry.offset in held]
        self._forget_the_lost()
        self._check()
        for producer_id, (_, end) in self.sequences.items():
            producer = self.log.producers.get(producer_id)
            assert producer is not None, "a producer is forgotten"
            ends = [batch.last_offset + 1 for batch in producer.batches]
            assert ends[-1:] == [end], "a producer's last batch is forgotten"

    def _check(self) -> None:
        batches = list(self._batches())
        by_offset = {entry.offset: entry for entry in self.entries}
        offsets = [record.offset for _, records in batches for record in records]
        assert offsets == sorted(set(offsets))
        for header, records in batches:
            for record in records:
                entry = by_offset[record.offset]
                if header.is_control:
                    assert entry.marker is not None
                else:
                    assert record[:4] == (entry.offset, entry.timestamp_ms, entry.key, entry.value)
        self._check_transactions(batches)
        self._check_keys(
            [record for header, records in batches if not header.is_control for record in records]
        )

    def _check_transactions(self, batches: list[tuple[BatchHeader, list[Record]]]) -> None:
        transactions = transactions_of(self.entries)
        spans = [
            (h.base_offset, h.last_offset) for h, _ in batches if h.is_transactional and not h.is_control
        ]
        held = {record.offset for _, records in batches for record in records}
        begun = [found.offsets[0] for found in transactions if found.marker is None]
        assert self.log.last_stable_offset == min([*begun, self.log.log_end_offset])
        for offsets, marker in transactions:
            if marker is None:
                assert held.issuperset(offsets), "an open transaction was compacted"
            elif marker.offset not in held:
                assert self.now_ms >= self.met_ms[marker.offset] + RETENTION_MS, "a marker went early"
                has_batch = any(first <= offset <= last for first, last in spans for offset in offsets)
                assert not has_batch, "a marker went before its records"

    def _check_keys(self, held: list[Record]) -> None:
        """What a reader of committed records makes of the log."""
        transactions = transactions_of(self.entries)
        aborted = {
            o for t in transactions if t.marker is not None and t.marker.marker == ABORT for o in t.offsets
        }
        unstable = {o for t in transactions if t.marker is None for o in t.offsets}
        clean_offset = self.log.cleaner.clean_offset or 0
        visible = list(self._committed())
        assert not aborted & {record.offset for record in visible}, "an aborted record is told as committed"
        last_held = {record.key: record for record in visible}
        last = {
            entry.key: entry
            for entry in self.entries
            if entry.marker is None
            and entry.offset not in aborted
            and entry.offset not in unstable
            and entry.offset < self.log.last_stable_offset
        }
        for key, entry in last.items():
            if entry.value is not None:
                assert key in last_held, f"the last value of {key!r}, at {entry.offset}, is lost"
                assert last_held[key].offset == entry.offset
            elif key in last_held:
                assert last_held[key].value is None, f"{key!r} came back"
            else:
                assert self.now_ms >= self.met_ms[entry.offset] + RETENTION_MS, "a tombstone went early"
        assert set(last_held) <= set(last)
        clean = [record for record in held if record.offset < clean_offset]
        assert not aborted & {record.offset for record in clean}, "what is clean holds aborted records"
        assert len(clean) == len({record.key for record in clean}), "what is clean holds a key twice"

    def _batches(self, upper_offset: int | None = None) -> Iterator[tuple[BatchHeader, list[Record]]]:
        """Every batch with its records from the log start offset on."""
        upper_offset = self.log.log_end_offset if upper_offset is None else upper_offset
        offset = self.log.log_start_offset
        while offset < upper_offset:
            data = self.log.read(offset, size_max=1, upper_offset=upper_offset).read()
            if not data:
                break
            header = next(iter_batches(data))[1]
            assert header.last_offset >= offset
            records = [record for record in decode_records(data, 0, header) if record.offset >= offset]
            if header.is_control and records:
                marker = read_marker(data, 0, header)
                assert marker is not None
            yield header, records
            offset = header.next_offset

    def _committed(self) -> Iterator[Record]:
        """What a consumer delivers that passes over the aborted transactions it is told of."""
        stable_offset = self.log.last_stable_offset
        for header, records in self._batches(stable_offset):
            fetched = self.log.read(header.base_offset, size_max=1, upper_offset=stable_offset)
            told = self.log.aborted_transactions(header.base_offset, fetched)
            is_aborted = header.is_transactional and any(
                aborted.producer_id == header.producer_id and aborted.first_offset <= header.last_offset
                for aborted in told
            )
            if not header.is_control and not is_aborted:
                yield from records
