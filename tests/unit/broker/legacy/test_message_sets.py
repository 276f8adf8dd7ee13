"""Message formats 0 and 1: other clients' messages are read, ours are read by them; conversion to format 2 and back."""

from __future__ import annotations

import gzip
from itertools import count

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from headrace.broker.errors import (
    CorruptMessageError,
    InvalidRecordError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from headrace.broker.legacy import conversion
from headrace.broker.legacy.conversion import from_old_format, to_old_format
from headrace.broker.legacy.message_sets import (
    Message,
    _encode,
    encode_messages,
    iter_messages,
    read_messages,
    with_lz4_checksum,
    xxh32,
)
from headrace.broker.wire.batches import Record, decode_records, encode_batch, read_header

MAGICS = (0, 1)


def records(count: int = 7, first: int = 0) -> list[Record]:
    return [
        Record(
            first + number,
            1000 + number,
            b"k%d" % number if number % 2 else None,
            b"value" * 20 if number != 3 else None,
            [],
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", MAGICS)
def test_kafka_python_reads_what_is_written_here(magic: int, codec: int) -> None:
    theirs = MemoryRecords(encode_messages(records(first=10), magic=magic, codec=codec, timestamp_type=0))
    found = []
    while theirs.has_next():
        batch = theirs.next_batch()
        assert batch.validate_crc()
        found += [(record.offset, record.timestamp, record.key, record.value) for record in batch]
    assert found == [
        (record.offset, record.timestamp_ms if magic else None, record.key, record.value)
        for record in records(first=10)
    ]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", MAGICS)
def test_what_kafka_python_writes_is_read_here(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for record in records():
        builder.append(record.offset, record.timestamp_ms, record.key, record.value)
    expected = records() if magic else [record._replace(timestamp_ms=-1) for record in records()]
    assert read_messages(bytes(builder.build())) == (expected, codec)


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("magic", MAGICS)
def test_a_set_becomes_one_batch_and_comes_back(magic: int, codec: int) -> None:
    data = encode_messages(records(), magic=magic, codec=codec, timestamp_type=0)
    batch = from_old_format(data)
    header = read_header(batch)
    expected = records() if magic else [record._replace(timestamp_ms=-1) for record in records()]
    assert decode_records(batch, 0, header) == expected
    assert (header.codec, header.size, header.producer_id) == (codec, len(batch), -1)
    assert to_old_format(batch, magic, 0) == data


def test_relative_offsets_of_format_1_start_with_the_batch() -> None:
    data = encode_messages(records(3, first=40), magic=1, codec=1, timestamp_type=1)
    (outer,) = iter_messages(data)
    assert (outer.offset, outer.attributes, outer.timestamp_ms) == (42, 9, 1002)
    assert outer.value is not None
    assert [message.offset for message in iter_messages(gzip.decompress(outer.value))] == [0, 1, 2]


def test_lz4_of_format_0_has_the_checksum_of_its_time() -> None:
    # xxHash32 of "abc" and of nothing, as published with the algorithm.
    assert (xxh32(b"abc"), xxh32(b"")) == (0x32D153FF, 0x02CC5D05)
    (message,) = iter_messages(encode_messages(records(), magic=0, codec=3, timestamp_type=0))
    frame = message.value
    assert frame is not None
    right = with_lz4_checksum(frame, is_format_0=False)
    assert right[6] == xxh32(right[4:6]) >> 8 & 0xFF
    assert frame[6] == xxh32(frame[:6]) >> 8 & 0xFF
    assert right != frame
    assert right[:6] + right[7:] == frame[:6] + frame[7:]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (encode_messages(records(), magic=1, codec=0, timestamp_type=0)[:-1] + b"?", CorruptMessageError),
        (_encode(Message(0, 3, 0, 0, None, b"")), CorruptMessageError),
        (bytes(20), CorruptMessageError),
        (bytes(8) + b"\xff\xff\xff\xf4" + bytes(20), CorruptMessageError),
        (_encode(Message(0, 1, 1, 0, None, None)), InvalidRecordError),
        (_encode(Message(0, 1, 1, 0, None, gzip.compress(b""))), InvalidRecordError),
        (_encode(Message(0, 1, 1, 0, None, b"no gzip")), CorruptMessageError),
        (_encode(Message(0, 1, 3, 0, None, b"\x04\x22\x4d\x18")), CorruptMessageError),
        (_encode(Message(0, 1, 4, 0, None, b"zstd")), UnsupportedCompressionTypeError),
        (encode_messages(records(), magic=1, codec=1, timestamp_type=0) * 2, InvalidRecordError),
        (
            _encode(
                Message(
                    0,
                    1,
                    1,
                    0,
                    None,
                    gzip.compress(encode_messages(records(), magic=1, codec=1, timestamp_type=0)),
                )
            ),
            InvalidRecordError,
        ),
    ],
    ids=count(),
)
def test_bad_sets_are_refused(data: bytes, error: type[KafkaError]) -> None:
    with pytest.raises(error):
        read_messages(data)


def test_a_bomb_is_bounded_and_no_message_is_no_set() -> None:
    bomb = _encode(Message(0, 1, 1, 0, None, gzip.compress(bytes(1 << 20))))
    with pytest.raises(MessageTooLargeError):
        read_messages(bomb, size_max=1000)
    with pytest.raises(InvalidRecordError):
        from_old_format(b"\0" * 11)


def test_every_cut_of_a_set_is_read_up_to_the_cut_or_refused() -> None:
    data = encode_messages(records(3), magic=1, codec=0, timestamp_type=0)
    for size in range(len(data)):
        found, _ = read_messages(data[:size])
        assert found == records(3)[: len(found)]
        assert len(found) < 3


def test_down_conversion_is_bounded_and_starts_where_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    log = b"".join(bytes(encode_batch(records(5), base_offset=5 * number)) for number in range(4))
    found = list(iter_messages(to_old_format(log, 1, 2)))
    assert [message.offset for message in found] == list(range(2, 5 + 5 * ((len(found) - 3) // 5)))
    monkeypatch.setattr(conversion, "DOWN_CONVERTED_SIZE_MAX", 1)
    assert [message.offset for message in iter_messages(to_old_format(log, 0, 0))] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("bound", ["PUBLISHED_SIZE_MAX", "PUBLISHED_RECORDS_COUNT_MAX"])
def test_a_batch_too_large_to_look_into_is_not_converted_down(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    batch = encode_batch(records(5), codec=1)
    assert to_old_format(batch, 1, 0)
    monkeypatch.setattr(conversion, bound, 4)
    with pytest.raises(MessageTooLargeError):
        to_old_format(batch, 1, 0)


def test_a_set_too_large_to_look_into_is_not_converted_up(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_messages(records(3), magic=1, codec=0, timestamp_type=0)
    monkeypatch.setattr(conversion, "UP_CONVERTED_SIZE_MAX", len(data))
    assert from_old_format(data)
    monkeypatch.setattr(conversion, "UP_CONVERTED_SIZE_MAX", len(data) - 1)
    with pytest.raises(MessageTooLargeError):
        from_old_format(data)


def test_control_batches_are_left_out_and_zstd_is_refused() -> None:
    control = encode_batch([Record(0, 1, b"\0\0\0\1", b"\0" * 6, [])], control=True)
    plain = encode_batch(records(1), base_offset=1)
    assert [message.offset for message in iter_messages(to_old_format(control + plain, 1, 0))] == [1]
    assert to_old_format(control, 1, 0) == b""
    with pytest.raises(UnsupportedCompressionTypeError):
        to_old_format(encode_batch(records(1), codec=4), 1, 0)


def test_a_set_of_two_formats_is_refused() -> None:
    records = [Record(0, 5, None, b"v", [])]
    sets = [encode_messages(records, magic=magic, codec=0, timestamp_type=0) for magic in (0, 1)]
    with pytest.raises(InvalidRecordError):
        from_old_format(b"".join(sets))


def test_messages_in_a_stamped_one_have_its_time() -> None:
    records = [Record(number, 5 + number, None, b"v", []) for number in range(3)]
    data = encode_messages(records, magic=1, codec=1, timestamp_type=1)
    batch = from_old_format(data)
    assert {record.timestamp_ms for record in decode_records(batch, 0, read_header(batch))} == {7}


def test_what_is_converted_is_cut_where_the_log_would_have_been() -> None:
    """Messages of the old formats need more room than records: the last is cut, as in Kafka, for the next fetch."""
    log = b"".join(
        encode_batch([Record(0, 5, None, b"v", [])] * 50, base_offset=first) for first in (0, 50, 100)
    )
    first = encode_messages([Record(0, 5, None, b"v", [])] * 50, magic=1, codec=0, timestamp_type=0)
    assert len(first) > len(log)
    assert len(to_old_format(log, 1, 0)) == len(first)
    assert len(to_old_format(log * 3, 1, 0)) == len(log) * 3
