"""The records of `__transaction_state`, byte for byte as Apache Kafka 3.9 writes them.

Key: TransactionLogKey (version 0). Value: TransactionLogValue (reads 0 and 1, writes 0; version 1 is the first flexible one,
KIP-915). A value of None is a tombstone. Keys of versions above these are passed over. Knows nothing of batches or logs.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from headrace.broker.coordinators.records import RecordFormatError
from headrace.broker.coordinators.stored import INT8, INT16, INT32, INT64, FieldReader, string
from headrace.broker.txn.transaction import BY_NUMBER, State, Transaction
from headrace.broker.wire.partitions import TopicPartition

KEY_VERSION = 0
VALUE_VERSION, VALUE_VERSION_MAX = 0, 1
_VALUE_START = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_NULL_ARRAY = b"\xff\xff\xff\xff"
# Sets of partitions that are kept encoded, of so many partitions each at most.
SETS_MAX, SET_COUNT_MAX = 64, 256


def encode_key(transactional_id: str) -> bytes:
    """Raises RecordFormatError for an id that does not fit."""
    return struct.pack(">h", KEY_VERSION) + string(transactional_id)


def decode_key(data: bytes) -> str | None:
    """The transactional id; None for a key that later versions write."""
    reader = FieldReader(data)
    return reader.string() if reader.number(INT16) == KEY_VERSION else None


def encode_value(transaction: Transaction) -> bytes:
    """TransactionLogValue version 0."""
    start = _VALUE_START.pack(
        VALUE_VERSION,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.state.number,
    )
    return (
        start + _partitions_of(transaction) + _TIMES.pack(transaction.updated_ms, transaction.stored_start_ms)
    )


def _partitions_of(transaction: Transaction) -> bytes:
    if transaction.state is State.EMPTY:
        return _NULL_ARRAY
    partitions = transaction.partitions
    return _partitions(partitions) if len(partitions) > SET_COUNT_MAX else _kept_partitions(partitions)


def _partitions(partitions: frozenset[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    parts = [struct.pack(">i", len(topics))]
    for topic, indexes in topics.items():
        parts += [string(topic), struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)]
    return b"".join(parts)


# What is prepared has the partitions of what was begun, and a producer's transactions are often alike.
_kept_partitions = lru_cache(maxsize=SETS_MAX)(_partitions)


def decode_value(transactional_id: str, data: bytes) -> Transaction:
    """Any TransactionLogValue, versions 0 and 1."""
    reader = FieldReader(data)
    version = reader.number(INT16)
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise RecordFormatError(f"a transaction has the unknown version {version}")
    reader.flexible = version >= 1
    producer_id, producer_epoch = reader.number(INT64), reader.number(INT16)
    timeout_ms, number = reader.number(INT32), reader.number(INT8)
    if number not in BY_NUMBER:
        raise RecordFormatError(f"a transaction has the unknown state {number}")
    partitions = frozenset(_decode_partitions(reader))
    updated_ms, start_ms = reader.number(INT64), reader.number(INT64)
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=BY_NUMBER[number],
        partitions=partitions,
        start_ms=start_ms,
        updated_ms=updated_ms,
    )


def _decode_partitions(reader: FieldReader) -> list[TopicPartition]:
    partitions: list[TopicPartition] = []
    for _ in range(reader.count()):
        topic = reader.string()
        partitions += [TopicPartition(topic, reader.number(INT32)) for _ in range(reader.count())]
        reader.skip_tagged_fields()
    return partitions
