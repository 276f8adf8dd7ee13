"""What log compaction keeps of a log: for each key the last record, and for a while the tombstone that ended it.

Pure decisions of Apache Kafka's cleaner: which segments are dirty, how they are grouped, which records of a batch stay.
Invariants: offsets, sequences, epochs and codecs of what stays never change; a record goes only when a newer one with its
key lies below `latest_offset`, a tombstone only when its delete horizon, written into its batch by the cleaning that
first met it, is over. Must not know: threads, how segments are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import CorruptMessageError, RecordListTooLargeError
from headrace.broker.log.files import Buffer, File
from headrace.broker.log.index import INT32_MAX
from headrace.broker.log.producers import ABORT, LastBatch, read_marker
from headrace.broker.log.segment import Segment
from headrace.broker.log.transactions import AbortedTransaction
from headrace.broker.wire.batches import (
    BatchHeader,
    check_crc,
    decode_records,
    iter_batches,
    read_header,
    rewrite_batch,
)
from headrace.broker.wire.columns import read_columns

_KEY_SIZE_MAX = 40
# What a dictionary costs an entry in CPython, the key's bytes apart: two objects, and a table that may be half empty.
_ENTRY_SIZE = 200


class OffsetMap:
    """The last offset of each key between two offsets; long keys by their digest. Bounded by `size_max` bytes."""

    __slots__ = ("_offsets", "_size", "_size_max", "latest_offset")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Note the offset of a record; False when the map is full."""
        if len(key) >= _KEY_SIZE_MAX:
            key = _digest(key)
        if key not in self._offsets:
            if self._size >= self._size_max:
                return False
            self._size += _ENTRY_SIZE + len(key)
        self._offsets[key] = offset
        return True

    def get(self, key: bytes) -> int:
        """The last offset of `key`, or -1."""
        return self._offsets.get(_digest(key) if len(key) >= _KEY_SIZE_MAX else key, -1)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_KEY_SIZE_MAX).digest()


class Dirt(NamedTuple):
    """What a log has to be cleaned of: keys are looked up from `first_dirty_offset` to `end_offset` (exclusive).

    `is_overdue`: a dirty record is older than max.compaction.lag.ms.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """Share of the dirty bytes."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0

    def is_worth_it(self, config: LogConfig) -> bool:
        """Whether to clean now."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > config.min_cleanable_dirty_ratio)


def find_dirt(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    clean_offset: int | None,
    log_start_offset: int,
    upper_offset: int,
    now_ms: int,
) -> Dirt:
    """What may be cleaned of `segments`, the last of which is active and stays as it is.

    `clean_offset` is where the last cleaning ended, `upper_offset` where what is committed and synced ends.
    """
    start = clean_offset if clean_offset is not None else log_start_offset
    if not log_start_offset <= start <= segments[-1].next_offset:
        start = log_start_offset
    inactive = segments[:-1]
    cleanable = [segment for segment in inactive if segment.next_offset <= upper_offset]
    if config.min_compaction_lag_ms > 0:
        cleanable = _old_enough(cleanable, start, now_ms - config.min_compaction_lag_ms)
    dirty = [segment for segment in cleanable if segment.next_offset > start]
    overdue_ms = now_ms - config.max_compaction_lag_ms
    is_overdue = overdue_ms > 0 and any(
        0 < segment.first_batch_timestamp_ms() < overdue_ms
        for segment in inactive
        if segment.next_offset > start
    )
    return Dirt(
        start,
        cleanable[-1].next_offset if cleanable else start,
        sum(segment.size for segment in cleanable if segment.next_offset <= start),
        sum(segment.size for segment in dirty),
        is_overdue,
    )


def _old_enough(segments: list[Segment], start: int, timestamp_ms_max: int) -> list[Segment]:
    """The segments before the first dirty one that holds a younger record."""
    for number, segment in enumerate(segments):
        if segment.next_offset > start and segment.largest_timestamp[0] > timestamp_ms_max:
            return segments[:number]
    return segments


def group(segments: Sequence[Segment], config: LogConfig) -> Iterator[list[Segment]]:
    """Neighbours that fit one segment together, by their size before cleaning."""
    run: list[Segment] = []
    for segment in segments:
        if run and not _fits([*run, segment], config):
            yield run
            run = []
        run.append(segment)
    if run:
        yield run


def _fits(segments: list[Segment], config: LogConfig) -> bool:
    return (
        sum(segment.size for segment in segments) <= config.segment_bytes
        and sum(segment.index.entry_count for segment in segments) <= segments[0].index.entries_max
        and sum(segment.time_index.entry_count for segment in segments) < segments[0].time_index.entries_max
        and segments[-1].next_offset - segments[0].base_offset <= INT32_MAX
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerLimits:
    """Bounds of a cleaning, in bytes. `pace(bytes)` is called in the thread for what is read and written.

    It may wait, or raise.
    """

    dedupe_buffer_size: int = 128 * 1024 * 1024
    io_buffer_size: int = 512 * 1024
    pace: Callable[[int], None] = lambda _: None


class Source(NamedTuple):
    """A segment's file as it is to be read by a thread, which must not touch the segment itself."""

    file: File
    size: int
    base_offset: int
    next_offset: int

    @classmethod
    def of(cls, segment: Segment) -> Source:
        return cls(segment.log, segment.size, segment.base_offset, segment.next_offset)

    def batches(self, limits: CleanerLimits) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch with its header; its checksum is right.

        Reads `limits.io_buffer_size` bytes at once, or one batch when that is larger. Raises CorruptMessageError and
        UnsupportedForMessageFormatError.
        """
        position = 0
        while position < self.size:
            size = min(limits.io_buffer_size, self.size - position)
            chunk = memoryview(self.file.read_at(size, position))
            end = 0
            for start, header in iter_batches(chunk):
                limits.pace(header.size)
                _check(chunk, start, header)
                end = start + header.size
                yield header, chunk[start:end]
            if end == 0:
                header, chunk = self._whole_batch(position)
                limits.pace(header.size)
                _check(chunk, 0, header)
                end = header.size
                yield header, chunk
            position += end

    def _whole_batch(self, position: int) -> tuple[BatchHeader, memoryview]:
        left = self.size - position
        header = read_header(self.file.read_at(left if left < 61 else 61, position))
        if header.size > left:
            raise CorruptMessageError(
                f"A batch of {header.size} bytes at byte {position} has {left} bytes left."
            )
        return header, memoryview(self.file.read_at(header.size, position))


def _check(chunk: memoryview, position: int, header: BatchHeader) -> None:
    if not check_crc(chunk, position, header):
        raise CorruptMessageError(f"The checksum of the batch at offset {header.base_offset} is wrong.")


class Transactions:
    """Which batches of a walk through the log belong to aborted transactions, and which markers nobody needs any more.

    Every batch from `start_offset` on has to be shown to it, in order. `still_aborted` collects the aborted
    transactions that have batches yet: the indexes of the cleaned segments.
    """

    __slots__ = ("_aborted", "_aborted_now", "_committed_now", "_next", "still_aborted")

    def __init__(self, aborted: Sequence[AbortedTransaction], start_offset: int) -> None:
        later = [transaction for transaction in aborted if transaction.last_offset >= start_offset]
        self._aborted = sorted(later, key=lambda transaction: transaction.first_offset)
        self._next = 0
        # By producer: the aborted transaction under way, and whether one of its batches was seen.
        self._aborted_now: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed_now: set[int] = set()
        self.still_aborted: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._begin_upto(header.last_offset)
        if not header.is_transactional:
            return False
        under_way = self._aborted_now.get(header.producer_id)
        if under_way is None:
            self._committed_now.add(header.producer_id)
            return False
        self._aborted_now[header.producer_id] = (under_way[0], True)
        return True

    def is_unneeded(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether a marker is all that is left of its transaction."""
        self._begin_upto(header.last_offset)
        if header.record_count == 0:
            return True
        marker = read_marker(batch, 0, header)
        if marker is None:
            return False
        if marker.kind != ABORT:
            has_batches = header.producer_id in self._committed_now
            self._committed_now.discard(header.producer_id)
            return not has_batches
        aborted, has_batches = self._aborted_now.pop(header.producer_id, (None, False))
        if aborted is not None and has_batches:
            self.still_aborted.append(aborted)
        return not has_batches

    def _begin_upto(self, offset: int) -> None:
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= offset:
            transaction = self._aborted[self._next]
            self._aborted_now.setdefault(transaction.producer_id, (transaction, False))
            self._next += 1


def index_dirt(
    sources: Sequence[Source],
    dirt: Dirt,
    aborted: Sequence[AbortedTransaction],
    limits: CleanerLimits,
) -> OffsetMap:
    """The last offset of each key in `dirt`, or in its first part when the map is full before.

    Raises RecordListTooLargeError when not even one batch fits.
    """
    latest = OffsetMap(limits.dedupe_buffer_size)
    dirty = [source for source in sources if source.next_offset > dirt.first_dirty_offset]
    transactions = Transactions(aborted, dirty[0].base_offset if dirty else 0)
    for source in dirty:
        for header, batch in source.batches(limits):
            is_valid = _is_valid(transactions, header, batch)
            if header.last_offset < dirt.first_dirty_offset:
                continue
            if not is_valid:
                latest.latest_offset = header.last_offset
                continue
            if not _index_batch(latest, header, batch, dirt.first_dirty_offset):
                if latest.latest_offset < 0:
                    raise RecordListTooLargeError(
                        "The keys of one batch do not fit log.cleaner.dedupe.buffer.size: raise it."
                    )
                return latest
            latest.latest_offset = header.last_offset
        latest.latest_offset = source.next_offset - 1
    return latest


def _is_valid(transactions: Transactions, header: BatchHeader, batch: Buffer) -> bool:
    """Whether the records of a batch are data that count."""
    if header.is_control:
        transactions.is_unneeded(header, batch)
        return False
    return not transactions.is_aborted(header)


def _index_batch(latest: OffsetMap, header: BatchHeader, batch: memoryview, start: int) -> bool:
    columns = read_columns(batch, 0, header)
    return all(
        key is None or offset < start or latest.put(key, offset)
        for key, offset in zip(columns.keys, columns.offsets, strict=True)
    )


class Rules(NamedTuple):
    """What one cleaning goes by; `last_batches` are those of the producers that are known.

    `end_offset` is where it ends: the batch there stays, empty or not, as a mark of how far it came.
    """

    latest: OffsetMap
    now_ms: int
    delete_retention_ms: int
    last_batches: Mapping[int, LastBatch]
    transactions: Transactions
    end_offset: int

    def is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the batch tells a producer's last sequence number, or its epoch where that has no data."""
        last = self.last_batches.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.epoch


def clean_batch(header: BatchHeader, batch: Buffer, rules: Rules) -> Buffer | None:
    """What stays of a batch: all, some records, an empty batch that keeps its offsets and sequences, or nothing."""
    is_kept_empty = header.next_offset == rules.end_offset or rules.is_last_of_producer(header)
    if header.is_control:
        return _clean_marker(header, batch, rules, is_kept_empty)
    if rules.transactions.is_aborted(header):
        return rewrite_batch(header, []) if is_kept_empty else None
    horizon_ms = header.delete_horizon_ms
    columns = read_columns(batch, 0, header)
    is_over = horizon_ms is not None and horizon_ms <= rules.now_ms
    latest, get = rules.latest.latest_offset, rules.latest.get
    kept = [
        number
        for number, (offset, key, value) in enumerate(
            zip(columns.offsets, columns.keys, columns.values, strict=True)
        )
        if offset > latest or (key is not None and offset >= get(key) and (value is not None or not is_over))
    ]
    if not kept:
        return rewrite_batch(header, []) if is_kept_empty else None
    if horizon_ms is None and any(columns.values[number] is None for number in kept):
        horizon_ms = rules.now_ms + rules.delete_retention_ms
    if len(kept) == header.record_count and horizon_ms == header.delete_horizon_ms:
        return batch
    records = decode_records(batch, 0, header)
    return rewrite_batch(header, [records[number] for number in kept], delete_horizon_ms=horizon_ms)


def _clean_marker(header: BatchHeader, batch: Buffer, rules: Rules, is_kept_empty: bool) -> Buffer | None:
    """A marker outlives its transaction's last batch by delete.retention.ms, counted from the cleaning that finds it so."""
    is_unneeded = rules.transactions.is_unneeded(header, batch)
    horizon_ms = header.delete_horizon_ms
    if header.record_count == 0 or (is_unneeded and horizon_ms is not None and horizon_ms <= rules.now_ms):
        return rewrite_batch(header, []) if is_kept_empty else None
    if is_unneeded and horizon_ms is None:
        horizon_ms = rules.now_ms + rules.delete_retention_ms
        return rewrite_batch(header, decode_records(batch, 0, header), delete_horizon_ms=horizon_ms)
    return batch
