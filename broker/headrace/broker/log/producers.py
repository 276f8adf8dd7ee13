"""The idempotent and transactional producers of one partition: sequence windows, open transactions.

Owns the state behind duplicate detection (KIP-98) and the `.snapshot` file format of Apache Kafka, version 1. For each
producer the last five batches are known, so that a retry of any of them is answered with its first offset.
Must not know: where snapshots lie, how batches are read back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from crc32c import crc32c

from headrace.broker.errors import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    KafkaError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from headrace.broker.log.files import Buffer
from headrace.broker.log.transactions import AbortedTransaction
from headrace.broker.log.verification import Verification, Verifications
from headrace.broker.wire.batches import CONTROL_BIT, BatchHeader, Record, decode_records, encode_batch
from headrace.broker.wire.special_values import NO_PRODUCER_EPOCH

BATCHES_MAX = 5
_SEQUENCE_COUNT = 2**31
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1
_CRC_END = 6
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
ABORT, COMMIT = 0, 1
MARKER_SIZE = 78
"""Of the control batch that holds a marker."""


class Marker(NamedTuple):
    """How a transaction ended: ABORT or COMMIT, as the coordinator of that epoch decided."""

    kind: int
    coordinator_epoch: int


class LastBatch(NamedTuple):
    """Where the last data batch of a producer's epoch ends; -1 when that epoch has none."""

    last_offset: int
    epoch: int


class CachedBatch(NamedTuple):
    """A batch that a producer wrote; sequences wrap at 2**31."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def answer(self) -> tuple[int, int, int]:
        """First and last offset and the time, as a repetition of it is answered."""
        return self.first_offset, self.last_offset, self.timestamp_ms

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % _SEQUENCE_COUNT


class Producer:
    """One producer's state in one partition; transaction and coordinator fields are -1 when there is none."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp_ms", "transaction_first_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[CachedBatch] = []
        self.last_timestamp_ms = -1
        self.coordinator_epoch = -1
        self.transaction_first_offset = -1

    def take_epoch(self, epoch: int) -> None:
        """A new epoch begins a new sequence."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class SnapshotError(ValueError):
    """The bytes are no producer snapshot."""


class ProducerStates:
    """All producers of a partition. `check` decides, `append` and `end_transaction` apply."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}
        # (first offset, marker's offset) of ended transactions whose marker is not yet below the high watermark.
        self._ended: list[tuple[int, int]] = []
        self.verifications = Verifications()

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        """The state of one producer."""
        return self._producers.get(producer_id)

    def last_batches(self) -> dict[int, LastBatch]:
        """The last batch of each producer, which compaction keeps, if empty."""
        return {
            producer_id: LastBatch(
                producer.batches[-1].last_offset if producer.batches else -1, producer.epoch
            )
            for producer_id, producer in self._producers.items()
        }

    def items(self) -> Iterable[tuple[int, Producer]]:
        """(producer id, its state) of all."""
        return self._producers.items()

    def check(self, header: BatchHeader) -> CachedBatch | None:
        """The batch that this one repeats, or None when it is the next one.

        Raises InvalidProducerEpochError, OutOfOrderSequenceError and InvalidTransactionStateError. A producer not known
        (any more) may begin with any sequence number.
        """
        self.check_epoch(header)
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch == producer.epoch:
            repeated = _find(producer.batches, header)
            if repeated is not None:
                return repeated
        _check_sequence(producer, header)
        if producer.transaction_first_offset >= 0 and not header.is_transactional:
            raise InvalidTransactionStateError(
                f"Producer {header.producer_id} has a transaction open here: send batches in that until it ends."
            )
        return None

    def begin_verification(
        self, producer_id: int, sequence: int, epoch: int, now_ms: int
    ) -> Verification | None:
        """What a transactional batch needs beside its coordinator's word; None for one of a transaction that is open here.

        While others of its producer wait it has to as well, so that it overtakes none.
        """
        if producer_id in self._open:
            if not self.verifications.is_waited_in(producer_id):
                return None
            return Verification(now_ms, sequence, epoch)
        return self.verifications.begin(producer_id, sequence, epoch, now_ms)

    def is_verified(self, producer_id: int, verification: Verification) -> bool:
        """Whether the producer's transaction is open here, or may begin now: that no marker came since `verification` began."""
        return producer_id in self._open or self.verifications.get(producer_id) is verification

    def check_verified(self, header: BatchHeader, verification: Verification | None) -> None:
        """Whether the transaction of this batch is open here, or may begin with it: to be asked in the turn that appends it.

        Raises InvalidTransactionStateError when `verification` is not the producer's (any more), OutOfOrderSequenceError
        for a batch that overtakes one whose verification has failed.
        """
        producer_id = header.producer_id
        if producer_id in self._open:
            return
        producer = self._producers.get(producer_id)
        if (
            producer is not None
            and producer.epoch == header.producer_epoch
            and _find(producer.batches, header)
        ):
            return
        known = self.verifications.get(producer_id)
        if known is None or known is not verification:
            raise InvalidTransactionStateError(
                f"Producer {producer_id} has no open transaction here: abort the transaction, and begin another one."
            )
        if header.base_sequence > known.lowest_sequence:
            raise OutOfOrderSequenceError(
                f"Producer {producer_id} sent sequence number {header.base_sequence} where {known.lowest_sequence} comes next."
            )

    def check_epoch(self, header: BatchHeader) -> None:
        """Raise InvalidProducerEpochError for a batch of a fenced producer."""
        producer = self._producers.get(header.producer_id)
        epoch = NO_PRODUCER_EPOCH if producer is None else producer.epoch
        if header.producer_epoch < epoch:
            raise InvalidProducerEpochError(
                f"Producer {header.producer_id} wrote with epoch {header.producer_epoch}; its epoch is {epoch}."
            )

    def check_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Raise InvalidProducerEpochError or TransactionCoordinatorFencedError for the marker of who was replaced."""
        self.check_epoch(header)
        producer = self._producers.get(header.producer_id)
        if producer is not None and marker.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"A coordinator of epoch {marker.coordinator_epoch} ends a transaction of producer {header.producer_id}; "
                f"one of epoch {producer.coordinator_epoch} has been here."
            )

    def note(
        self, records: Buffer, position: int, header: BatchHeader, base_offset: int
    ) -> AbortedTransaction | None:
        """Take in the batch at `position` of `records`, which lies at `base_offset` in the log now.

        Returns the transaction that it aborts, if it does.
        """
        if not header.attributes & CONTROL_BIT:
            self.append(header, base_offset)
            return None
        marker = read_marker(records, position, header)
        return None if marker is None else self.end_transaction(header, base_offset, marker)

    def append(self, header: BatchHeader, base_offset: int) -> None:
        """Take in a data batch that lies at `base_offset` now."""
        producer = self._producer(header)
        delta = header.last_offset_delta
        last_sequence = (header.base_sequence + delta) % _SEQUENCE_COUNT if header.base_sequence >= 0 else -1
        if len(producer.batches) == BATCHES_MAX:
            del producer.batches[0]
        producer.batches.append(CachedBatch(last_sequence, base_offset + delta, delta, header.max_timestamp))
        producer.last_timestamp_ms = header.max_timestamp
        if header.is_transactional and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = self._open[header.producer_id] = base_offset
            self.verifications.forget(header.producer_id)

    def end_transaction(
        self, header: BatchHeader, base_offset: int, marker: Marker
    ) -> AbortedTransaction | None:
        """Take in a commit or abort marker; returns the transaction that it aborts, if it does."""
        self.verifications.forget(header.producer_id)
        producer = self._producer(header)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp_ms = header.max_timestamp
        first_offset = producer.transaction_first_offset
        if first_offset < 0:
            return None
        self._ended.append((first_offset, base_offset))
        producer.transaction_first_offset = -1
        del self._open[header.producer_id]
        if marker.kind != ABORT:
            return None
        last_stable_offset = min(self._open.values(), default=base_offset + 1)
        return AbortedTransaction(header.producer_id, first_offset, base_offset, last_stable_offset)

    def _producer(self, header: BatchHeader) -> Producer:
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = Producer(header.producer_epoch)
        producer.take_epoch(header.producer_epoch)
        return producer

    @property
    def undecided(self) -> int:
        """Transactions that are open, or whose markers may not be visible yet."""
        return len(self._open) + len(self._ended)

    def last_stable_offset(self, high_watermark: int, log_start_offset: int = 0) -> int:
        """Below it every transaction is decided and its marker visible (KIP-98), or retention took its beginning."""
        if not self._open and not self._ended:
            return high_watermark
        self._ended = [ended for ended in self._ended if ended[1] >= high_watermark]
        first_offsets = [*self._open.values(), *(ended[0] for ended in self._ended)]
        if not first_offsets:
            return high_watermark
        return max(log_start_offset, min(high_watermark, *first_offsets))

    def expire(self, now_ms: int, high_watermark: int, expiration_ms: int) -> int:
        """Forget producers silent for `expiration_ms` without an open transaction; returns how many.

        Transactions whose markers are visible are forgotten, too, should nobody have asked for the last stable offset.
        """
        self.last_stable_offset(high_watermark)
        self.verifications.expire(now_ms, expiration_ms)
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.transaction_first_offset < 0 and now_ms - producer.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def clear(self) -> None:
        """Forget everything."""
        self._producers.clear()
        self._open.clear()
        self._ended.clear()
        self.verifications.clear()

    def encode(self) -> bytes:
        """The content of a `.snapshot` file."""
        body = bytearray()
        for producer_id, producer in self._producers.items():
            last = producer.batches[-1] if producer.batches else CachedBatch(-1, -1, 0, -1)
            body += _SNAPSHOT_ENTRY.pack(
                producer_id,
                producer.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                producer.transaction_first_offset,
            )
        count = len(self._producers).to_bytes(4, "big")
        return _SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(count + body).to_bytes(4, "big") + count + body

    @classmethod
    def decode(cls, data: bytes) -> ProducerStates:
        """The states in a `.snapshot` file; raises SnapshotError for anything but a whole sound one."""
        if len(data) < _SNAPSHOT_HEADER.size:
            raise SnapshotError(f"{len(data)} bytes are too few for a producer snapshot")
        version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
        if version != _SNAPSHOT_VERSION:
            raise SnapshotError(f"producer snapshots of version {version} are not known")
        if crc != crc32c(data[_CRC_END:]):
            raise SnapshotError("the checksum of the producer snapshot is wrong")
        if len(data) != _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size:
            raise SnapshotError(f"{count} producers do not fit a snapshot of {len(data)} bytes")
        states = cls()
        for entry in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEADER.size :]):
            states._restore(*entry)
        return states

    def _restore(
        self,
        producer_id: int,
        epoch: int,
        last_sequence: int,
        last_offset: int,
        offset_delta: int,
        timestamp_ms: int,
        coordinator_epoch: int,
        transaction_first_offset: int,
    ) -> None:
        producer = self._producers[producer_id] = Producer(epoch)
        if last_offset >= 0:
            producer.batches.append(CachedBatch(last_sequence, last_offset, offset_delta, timestamp_ms))
        producer.last_timestamp_ms = timestamp_ms
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_first_offset = transaction_first_offset
        if transaction_first_offset >= 0:
            self._open[producer_id] = transaction_first_offset


def _find(batches: list[CachedBatch], header: BatchHeader) -> CachedBatch | None:
    last_sequence = (header.base_sequence + header.last_offset_delta) % _SEQUENCE_COUNT
    for batch in batches:
        if batch.last_sequence == last_sequence and batch.offset_delta == header.last_offset_delta:
            return batch
    return None


def _check_sequence(producer: Producer, header: BatchHeader) -> None:
    if producer.epoch == NO_PRODUCER_EPOCH:
        return
    has_history = header.producer_epoch == producer.epoch and producer.batches
    expected = (producer.batches[-1].last_sequence + 1) % _SEQUENCE_COUNT if has_history else 0
    if header.base_sequence != expected:
        raise OutOfOrderSequenceError(
            f"Producer {header.producer_id} sent sequence number {header.base_sequence} where {expected} comes next."
        )


def is_next(last: BatchHeader, header: BatchHeader) -> bool:
    """Whether `header` is the batch that the producer of `last`, an idempotent one, writes right after it."""
    return (
        header.producer_id == last.producer_id
        and header.producer_epoch == last.producer_epoch
        and header.base_sequence == (last.base_sequence + last.last_offset_delta + 1) % _SEQUENCE_COUNT
    )


def encode_marker(producer_id: int, producer_epoch: int, marker: Marker, now_ms: int) -> bytearray:
    """The control batch that ends a producer's transaction."""
    return bytearray(_encoded_marker(producer_id, producer_epoch, marker, now_ms))


# A transaction's markers are the same in all of its partitions.
@lru_cache(maxsize=32)
def _encoded_marker(producer_id: int, producer_epoch: int, marker: Marker, now_ms: int) -> bytes:
    key, value = _MARKER_KEY.pack(0, marker.kind), _MARKER_VALUE.pack(0, marker.coordinator_epoch)
    batch = encode_batch(
        [Record(0, now_ms, key, value, [])],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    return bytes(batch)


def read_marker(records: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """The transaction marker in a control batch; None in one that compaction has emptied, and where none can be read."""
    try:
        found = decode_records(records, position, header)
    except KafkaError:
        return None
    key, value = (found[0].key, found[0].value) if found else (None, None)
    if key is None or len(key) < _MARKER_KEY.size or value is None or len(value) < _MARKER_VALUE.size:
        return None
    return Marker(_MARKER_KEY.unpack_from(key)[1], _MARKER_VALUE.unpack_from(value)[1])
