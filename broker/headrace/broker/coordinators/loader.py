"""Replays one partition of a coordinator's topic into a shard, a bounded slice at a time.

Invariants: records are applied in offset order up to the log end of the moment of the last slice, those of transactions
as such, and a marker ends its producer's transaction. A batch with a bad checksum or a record that no Kafka writes is
skipped and counted, as one bad record must not take a coordinator down; so is the rest of a segment behind bytes that are no
batch, where Apache Kafka gives up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.broker.coordinators.records import Record, RecordFormatError
from headrace.broker.errors import CorruptMessageError, KafkaError
from headrace.broker.log.producers import COMMIT, read_marker
from headrace.broker.structured_log import get_logger
from headrace.broker.wire import batches
from headrace.broker.wire.batches import BatchHeader
from headrace.broker.wire.special_values import NO_PRODUCER_ID

if TYPE_CHECKING:
    from headrace.broker.log.partition_log import PartitionLog

# Less than 10 ms of Python a slice, whatever `offsets.load.buffer.size` would allow a broker with threads.
SLICE_SIZE = 128 * 1024

logger = get_logger(__name__)


class Replayed(Protocol):
    """A shard, as far as a replay needs it."""

    def apply(self, record: Record) -> None: ...

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """A marker of that producer is in the log."""
        ...


class LogLoader:
    """The position in one partition's replay; `name` is what the shard keeps, for log lines."""

    def __init__(self, name: str, partition_log: PartitionLog, shard: Replayed) -> None:
        self._name = name
        self._log = partition_log
        self._shard = shard
        self._offset = partition_log.log_start_offset
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
            marker = read_marker(data, position, header)
            if marker is not None:
                self._shard.end_transaction(header.producer_id, is_commit=marker.kind == COMMIT)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in records:
            if record.offset < self._offset or record.key is None:
                continue
            self._apply(Record(record.key, record.value, producer_id), record.offset)

    def _apply(self, record: Record, offset: int) -> None:
        try:
            self._shard.apply(record)
            self.record_count += 1
        except (RecordFormatError, UnicodeDecodeError) as error:
            self._skip(offset, error)

    def _skip(self, offset: int, error: Exception) -> None:
        self.skipped_count += 1
        logger.error(
            f"{self._name} record skipped", partition=self._log.partition, offset=offset, reason=str(error)
        )
