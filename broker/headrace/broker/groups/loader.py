"""Replays one `__consumer_offsets` partition into a shard, a bounded slice at a time.

Invariants: records are applied in offset order up to the log end of the moment of the last slice; a
transaction's offsets are applied at its commit marker (Kafka's own producers write such), never after an
abort. A batch with a bad checksum or a record that no Kafka writes is skipped and counted, as one bad record
must not take a coordinator down; so is the rest of a segment behind bytes that are no batch, where Apache Kafka gives up.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from headrace.broker.coordinators.records import Record, RecordFormatError
from headrace.broker.errors import CorruptMessageError, KafkaError
from headrace.broker.groups.machine import Shard
from headrace.broker.structured_log import get_logger
from headrace.broker.wire import batches
from headrace.broker.wire.batches import BatchHeader

if TYPE_CHECKING:
    from headrace.broker.log.partition_log import PartitionLog

# Less than 10 ms of Python a slice, whatever `offsets.load.buffer.size` would allow a broker with threads.
SLICE_SIZE = 128 * 1024
COMMIT_MARKER = 1

logger = get_logger(__name__)


class GroupLoader:
    """The position in one partition's replay."""

    def __init__(self, partition_log: PartitionLog, shard: Shard) -> None:
        self._log = partition_log
        self._shard = shard
        self._offset = partition_log.log_start_offset
        self._open_transactions: dict[int, list[Record]] = {}
        self.record_count = 0
        self.skipped_count = 0

    def load_slice(self) -> bool:
        """Replay the next slice; True when the log's end is reached. Raises StorageError."""
        if self._offset >= self._log.log_end_offset:
            return True
        before = self._offset
        try:
            self._load_batches()
            if self._offset == before:
                raise CorruptMessageError("no whole batch is there")
        except CorruptMessageError as error:
            self._skip(self._offset, error)
            self._offset = max(self._log.segment_end(self._offset), self._offset + 1)
        return self._offset >= self._log.log_end_offset

    def _load_batches(self) -> None:
        read = self._log.read(self._offset, size_max=SLICE_SIZE, upper_offset=self._log.log_end_offset)
        data = read.read()
        if not data:
            # Compaction left nothing from here on.
            self._offset = self._log.log_end_offset
        for position, header in batches.iter_batches(data):
            self._load_batch(data, position, header)
            self._offset = header.next_offset

    def _load_batch(self, data: bytes, position: int, header: BatchHeader) -> None:
        try:
            if not batches.check_crc(data, position, header):
                raise RecordFormatError("the checksum is wrong")
            records = batches.decode_records(data, position, header)
        except (KafkaError, RecordFormatError) as error:
            self._skip(header.base_offset, error)
            return
        if header.is_control:
            self._end_transaction(header.producer_id, records)
            return
        for record in records:
            if record.offset < self._offset or record.key is None:
                continue
            stored = Record(record.key, record.value)
            if header.is_transactional:
                self._open_transactions.setdefault(header.producer_id, []).append(stored)
            else:
                self._apply(stored, record.offset)

    def _end_transaction(self, producer_id: int, records: list[batches.Record]) -> None:
        pending = self._open_transactions.pop(producer_id, [])
        key = records[0].key if records else None
        if key is not None and len(key) >= 4 and struct.unpack_from(">h", key, 2)[0] == COMMIT_MARKER:
            for record in pending:
                self._apply(record, records[0].offset)

    def _apply(self, record: Record, offset: int) -> None:
        try:
            self._shard.apply(record)
            self.record_count += 1
        except (RecordFormatError, UnicodeDecodeError) as error:
            self._skip(offset, error)

    def _skip(self, offset: int, error: Exception) -> None:
        self.skipped_count += 1
        logger.error("group record skipped", partition=self._log.partition, offset=offset, reason=str(error))
