"""The topic of a simulated registry: one partition's real log, on the disk of `tests/world`, and its cleaner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from faulty_files import FaultyFiles
from log_kit import roll

from headrace.broker.config.topics import LogConfig
from headrace.broker.log.appender import Appender
from headrace.broker.log.compaction import CleanerLimits
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.wire.batches import Record, decode_records, encode_batch, iter_batches
from headrace.registry.records import TURN_HEADER, encode
from headrace.registry.writer import Append

DIRECTORY = "/data/_schemas-0"
READ_SIZE = 2_000


class Entry(NamedTuple):
    """A record as a registry reads it."""

    offset: int
    key: bytes
    value: bytes | None
    turn: str | None


class SchemasTopic:
    """Records are compacted `lag_ms` after they came, and tombstones go as long after they were first met."""

    def __init__(self, lag_ms: int) -> None:
        config = LogConfig(
            cleanup_policy=("compact",),
            segment_bytes=4_000,
            segment_index_bytes=400,
            min_compaction_lag_ms=lag_ms,
            delete_retention_ms=lag_ms,
            min_cleanable_dirty_ratio=0.0,
        )
        self._log, _ = PartitionLog.open(FaultyFiles(), DIRECTORY, config, now_ms=0)

    @property
    def end(self) -> int:
        """The log's end offset."""
        return self._log.log_end_offset

    def append(self, append: Append, now_ms: int) -> None:
        """What a registry wrote comes."""
        headers: list[tuple[str, bytes | None]] = []
        if append.turn is not None:
            headers.append((TURN_HEADER, append.turn.encode()))
        records = [Record(0, now_ms, *encode(record), headers) for record in append.records]
        data = memoryview(encode_batch(records))
        Appender(self._log).append_as_leader(data, leader_epoch=0, now_ms=now_ms)
        self._log.advance_high_watermark(self.end)

    def read(self, position: int) -> Iterator[Entry]:
        """What there is from an offset on."""
        while position < self.end:
            data = self._log.read(position, size_max=READ_SIZE, upper_offset=self.end).read()
            if not data:
                return
            for at, header in iter_batches(data):
                for record in decode_records(data, at, header):
                    if record.offset >= position:
                        turn = dict(record.headers).get(TURN_HEADER)
                        assert record.key is not None
                        turn_name = None if turn is None else turn.decode()
                        yield Entry(record.offset, record.key, record.value, turn_name)
                position = header.next_offset

    def clean(self, now_ms: int) -> int:
        """What the cleaner does now; how many bytes it took away."""
        log, before = self._log, self._log.size
        flush = log.flush_task()
        if flush is not None:
            log.flushed(flush())
        dirt = log.cleaner.find(log, now_ms)
        if dirt is not None:
            for job in log.cleaner.clean(log, dirt, CleanerLimits(), now_ms):
                job()
        return before - log.size

    def clean_all(self, now_ms: int) -> None:
        """The same for all that is there, whenever it came."""
        self._log.config = replace(self._log.config, min_compaction_lag_ms=0)
        roll(self._log, now_ms)
        self.clean(now_ms)
