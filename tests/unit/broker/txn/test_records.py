"""Stored transactions, byte for byte: `value` below is what Apache Kafka 3.9's TransactionLogValue makes of the fields."""

from __future__ import annotations

import struct

import pytest

from headrace.broker.coordinators.records import RecordFormatError
from headrace.broker.txn.records import decode_key, decode_value, encode_key, encode_value
from headrace.broker.txn.transaction import State, Transaction
from headrace.broker.wire.partitions import TopicPartition

ONGOING = Transaction(
    transactional_id="tx",
    producer_id=4000,
    producer_epoch=7,
    timeout_ms=60_000,
    state=State.ONGOING,
    partitions=frozenset({TopicPartition("b", 1), TopicPartition("a", 3), TopicPartition("a", 0)}),
    start_ms=1000,
    updated_ms=2000,
)
STORED = (
    b"\0\0"
    + (4000).to_bytes(8, "big")
    + b"\0\7"
    + (60_000).to_bytes(4, "big")
    + b"\1"
    + b"\0\0\0\2"
    + b"\0\1a\0\0\0\2\0\0\0\0\0\0\0\3"
    + b"\0\1b\0\0\0\1\0\0\0\1"
    + struct.pack(">qq", 2000, 1000)
)
EMPTY = Transaction(transactional_id="tx", producer_id=1, producer_epoch=0, timeout_ms=5, updated_ms=9)


def test_what_is_stored_is_kafkas() -> None:
    assert encode_key("tx") == b"\0\0\0\2tx"
    assert encode_value(ONGOING) == STORED
    assert encode_value(EMPTY) == struct.pack(">hqhibiqq", 0, 1, 0, 5, 0, -1, 9, -1)


@pytest.mark.parametrize("transaction", [ONGOING, EMPTY], ids=["ongoing", "empty"])
def test_what_is_stored_is_read(transaction: Transaction) -> None:
    assert decode_key(encode_key("tx")) == "tx"
    assert decode_value("tx", encode_value(transaction)) == transaction


def test_the_flexible_version_is_read() -> None:
    start = struct.pack(">hqhib", 1, 4000, 7, 60_000, 1)
    topics = b"\3" + b"\2a\3\0\0\0\0\0\0\0\3\0" + b"\2b\2\0\0\0\1\0"
    assert decode_value("tx", start + topics + struct.pack(">qq", 2000, 1000) + b"\0") == ONGOING


def test_a_key_of_a_later_version_is_passed_over() -> None:
    assert decode_key(b"\0\1\0\2tx") is None


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"\0\2" + STORED[2:], STORED[:16] + b"\x63" + STORED[17:], STORED[:40]],
    ids=["nothing", "half a version", "unknown version", "unknown state", "cut"],
)
def test_what_nobody_writes_is_refused(data: bytes) -> None:
    with pytest.raises(RecordFormatError):
        decode_value("tx", data)
