"""Record batches against two other encoders, with every codec, and against any damage."""

import os
import struct

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch

from headrace.broker.errors import (
    CorruptMessageError,
    InvalidConfigError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from headrace.broker.wire.batches import (
    HEADER_SIZE,
    Record,
    check_crc,
    decode_records,
    encode_batch,
    iter_batches,
    magic_of,
    read_header,
    records_of,
    set_base_offset_and_epoch,
    set_crc,
    times_of,
)
from headrace.broker.wire.columns import read_columns
from headrace.broker.wire.compression import Codec, codec_of, compress, decompress

CODECS = list(Codec)

optional_bytes = st.none() | st.binary(max_size=80)
timestamps = st.integers(-(2**20), 2**20).map(lambda delta: 1_700_000_000_000 + delta)
record_headers = st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=2)
any_records = st.lists(
    st.builds(Record, st.just(0), timestamps, optional_bytes, optional_bytes, record_headers),
    min_size=1,
    max_size=9,
)
dense_records = st.lists(
    st.builds(Record, st.just(0), timestamps, st.none(), st.binary(max_size=9000), st.just([])),
    min_size=1,
    max_size=9,
)


def numbered(records: list[Record], base_offset: int = 0) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(records)]


def sample(count: int = 3) -> list[Record]:
    return [
        Record(
            index,
            1_700_000_000_000 + index,
            b"k" if index % 2 else None,
            b"v" * 50,
            [("h", None), ("i", b"x")],
        )
        for index in range(count)
    ]


@settings(max_examples=120)
@given(records=any_records, codec=st.sampled_from(CODECS), base_offset=st.integers(0, 2**62))
def test_records_come_back_as_they_were_written(records: list[Record], codec: int, base_offset: int) -> None:
    batch = encode_batch(records, base_offset=base_offset, codec=codec)
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    assert (header.size, header.codec, header.record_count) == (len(batch), codec, len(records))
    assert (header.base_offset, header.next_offset) == (base_offset, base_offset + len(records))
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    assert decode_records(batch, 0, header) == numbered(records, base_offset)


@settings(max_examples=100)
@given(records=any_records, codec=st.sampled_from(CODECS))
def test_aiokafka_reads_what_headrace_writes_and_the_reverse(records: list[Record], codec: int) -> None:
    ours = encode_batch(
        records, codec=codec, producer_id=9, producer_epoch=1, base_sequence=4, transactional=True
    )
    read = DefaultRecordBatch(bytes(ours))
    assert read.validate_crc()
    assert (read.producer_id, read.producer_epoch, read.base_sequence, read.is_transactional) == (
        9,
        1,
        4,
        True,
    )
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in read] == [
        tuple(record) for record in numbered(records)
    ]

    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=True,
        producer_id=9,
        producer_epoch=1,
        base_sequence=4,
        batch_size=1_000_000,
    )
    for record in numbered(records):
        assert builder.append(*record)
    theirs = bytes(builder.build())
    assert decode_records(theirs, 0, read_header(theirs)) == numbered(records)
    if codec == Codec.NONE:
        set_base_offset_and_epoch(ours, 0, 0, read_header(theirs).leader_epoch)
        assert ours == theirs


def test_kio_reads_what_headrace_writes() -> None:
    batch = encode_batch(
        sample(), base_offset=40, leader_epoch=3, producer_id=9, producer_epoch=1, base_sequence=4
    )
    read, size = read_batch(bytes(batch), 0)
    assert size == len(batch)
    assert (read.base_offset, read.partition_leader_epoch, read.producer_id) == (40, 3, 9)
    assert [record.value for record in read.records] == [record.value for record in sample()]


def test_the_header_fields_lie_where_kafka_puts_them() -> None:
    batch = encode_batch(
        sample(2),
        base_offset=0x0102030405060708,
        leader_epoch=7,
        codec=Codec.ZSTD,
        timestamp_type=1,
        producer_id=10,
        producer_epoch=11,
        base_sequence=12,
        transactional=True,
        control=True,
    )
    assert batch[:8] == bytes(range(1, 9))
    assert struct.unpack_from(">ii", batch, 8) == (len(batch) - 12, 7)
    assert batch[16] == 2
    assert struct.unpack_from(">hiqqqhii", batch, 21) == (
        0b111100,
        1,
        1_700_000_000_000,
        1_700_000_000_001,
        10,
        11,
        12,
        2,
    )
    header = read_header(batch)
    assert (header.is_transactional, header.is_control, header.timestamp_type, header.codec) == (
        True,
        True,
        1,
        4,
    )


def test_log_append_time_is_every_records_time() -> None:
    batch = encode_batch(sample(3), timestamp_type=1)
    header = read_header(batch)
    assert {record.timestamp_ms for record in decode_records(batch, 0, header)} == {header.max_timestamp}
    assert set(read_columns(batch, 0, header).timestamps_ms) == {header.max_timestamp}


def test_the_leader_writes_offset_and_epoch_without_breaking_the_checksum() -> None:
    buffer = bytearray(b"junk") + encode_batch(sample())
    set_base_offset_and_epoch(memoryview(buffer), 4, 2**40, 6)
    header = read_header(buffer, 4)
    assert (header.base_offset, header.leader_epoch) == (2**40, 6)
    assert check_crc(buffer, 4, header)
    assert decode_records(buffer, 4, header)[2].offset == 2**40 + 2


def test_every_flipped_bit_behind_the_checksum_is_noticed() -> None:
    batch = encode_batch(sample(1))
    for index in range(17, len(batch)):
        for bit in range(8):
            damaged = bytearray(batch)
            damaged[index] ^= 1 << bit
            assert not check_crc(damaged, 0, read_header(damaged))


def test_a_changed_header_is_signed_again() -> None:
    batch = encode_batch(sample())
    batch[22] |= 8
    assert not check_crc(batch, 0, read_header(batch))
    set_crc(batch, 0)
    assert check_crc(batch, 0, read_header(batch))


def test_batches_are_walked_up_to_one_that_is_cut_off() -> None:
    batches = [encode_batch(sample(count), base_offset=count * 10) for count in (1, 2, 3)]
    whole = b"".join(batches)
    assert [(position, h.base_offset) for position, h in iter_batches(whole)] == [
        (0, 10),
        (len(batches[0]), 20),
        (len(batches[0]) + len(batches[1]), 30),
    ]
    for cut in (1, len(batches[2]) - HEADER_SIZE, len(batches[2]) - 1, len(batches[2])):
        assert len(list(iter_batches(whole[:-cut]))) == 2
    assert list(iter_batches(b"")) == []


def test_a_batch_that_claims_less_than_its_header_is_corrupt() -> None:
    batch = encode_batch(sample())
    for length in (48, 0, -1, -(2**31)):
        struct.pack_into(">i", batch, 8, length)
        with pytest.raises(CorruptMessageError, match="fewer than its header"):
            list(iter_batches(batch))


def test_other_message_formats_are_told_apart() -> None:
    batch = encode_batch(sample())
    assert magic_of(batch) == 2
    for magic, error in ((0, UnsupportedForMessageFormatError), (1, UnsupportedForMessageFormatError)):
        batch[16] = magic
        assert magic_of(batch) == magic
        with pytest.raises(error):
            list(iter_batches(batch))
        with pytest.raises(error):
            decode_records(batch, 0, read_header(batch))
    batch[16] = 3
    with pytest.raises(CorruptMessageError, match="magic 3"):
        list(iter_batches(batch))
    with pytest.raises(CorruptMessageError):
        magic_of(b"short")
    with pytest.raises(CorruptMessageError, match="cannot hold"):
        read_header(b"x" * 60)


@pytest.mark.parametrize("count", [-1, 2, 4, 2**31 - 1])
def test_a_record_count_that_is_not_true_is_corrupt(count: int) -> None:
    dense = [Record(0, 0, None, b"value", [])] * 3
    for batch in (encode_batch(sample(3)), encode_batch(dense)):
        struct.pack_into(">i", batch, 57, count)
        for read in (decode_records, read_columns):
            with pytest.raises(CorruptMessageError):
                read(batch, 0, read_header(batch))


def test_a_count_above_what_is_compared_at_once_is_not_taken_on_trust() -> None:
    batch = encode_batch([Record(0, 0, None, b"v", [])] * (32 * 1024))
    struct.pack_into(">i", batch, 57, 32 * 1024 + 1)
    with pytest.raises(CorruptMessageError):
        read_columns(batch, 0, read_header(batch))


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        (b"\x0e\x00\x00\x00\x01\x00\x00\x00", "to -1 bytes from its end"),
        (b"\x0c\x00\x00\x00\x01\x04\x00", "2 bytes does not fit its record"),
        (b"\x10\x00\x00\x00\x01\x00\x02\x01\x01", "has no name"),
        (b"\x0c\x00\x00\x00\x01\x00\x01", "-1 record headers"),
        (b"\x0c\x00\x00\x00\x01\x00\x7e", "63 record headers"),
        (b"\x01\x00\x00\x00\x01\x00\x00", "a record of -1 bytes"),
        (b"\x0f\x00\x00\x00\x01\x02v\x00", "a record of -8 bytes"),
        (b"\x85\x01\x00\x00\x00\x01\x78" + b"v" * 60 + b"\x00", "a record of -67 bytes"),
        (b"\x80\x80\x80\x80\x80\x00\x00", "longer than 5 bytes"),
    ],
)
def test_a_record_that_contradicts_itself_is_corrupt(section: bytes, reason: str) -> None:
    batch = encode_batch([Record(0, 0, None, b"v", [])])[:HEADER_SIZE] + section
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    with pytest.raises(CorruptMessageError, match=reason):
        decode_records(batch, 0, read_header(batch))
    with pytest.raises(CorruptMessageError, match=reason):
        read_columns(batch, 0, read_header(batch))


def test_an_empty_batch_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([])


@settings(max_examples=300)
@given(
    records=any_records | dense_records,
    codec=st.sampled_from(CODECS),
    at=st.integers(0, 10_000),
    patch=st.binary(max_size=6),
)
def test_damage_is_read_the_same_by_both_readers_or_refused_by_both(
    records: list[Record], codec: int, at: int, patch: bytes
) -> None:
    batch = encode_batch(records, codec=codec)
    at = HEADER_SIZE + at % (len(batch) - HEADER_SIZE)
    batch[at : at + len(patch)] = patch
    header = read_header(batch)
    try:
        expected = decode_records(batch, 0, header, 1_000_000)
    except (CorruptMessageError, MessageTooLargeError) as error:
        with pytest.raises(type(error)):
            read_columns(batch, 0, header, 1_000_000)
        return
    columns = read_columns(batch, 0, header, 1_000_000)
    assert columns.offsets == [record.offset for record in expected]
    assert columns.timestamps_ms == [record.timestamp_ms for record in expected]
    assert columns.keys == [record.key for record in expected]
    assert columns.values == [record.value for record in expected]
    times = list(times_of(bytes(records_of(batch, 0, header)), header))
    assert times == [(record.offset, record.timestamp_ms) for record in expected]


def test_times_are_read_no_further_than_asked_and_end_where_the_records_end() -> None:
    batch = encode_batch([Record(0, 1000 + index, b"k", b"v" * 5, []) for index in range(3)], base_offset=7)
    header = read_header(batch)
    times = times_of(bytes(batch[HEADER_SIZE:-3]), header)
    assert [next(times), next(times)] == [(7, 1000), (8, 1001)]
    with pytest.raises(CorruptMessageError, match="does not fit its batch"):
        next(times)
    with pytest.raises(CorruptMessageError, match="2 bytes are left"):
        list(times_of(bytes(batch[HEADER_SIZE:]) + b"xx", header))
    with pytest.raises(CorruptMessageError, match="cannot be read"):
        list(times_of(bytes(batch[HEADER_SIZE:]), header._replace(record_count=4)))


@settings(max_examples=200)
@given(data=st.binary(min_size=61, max_size=200))
def test_any_bytes_are_records_or_an_error_of_ours(data: bytes) -> None:
    data = data[:16] + b"\x02" + data[17:]
    for length in (len(data) - 12, read_header(data).length):
        header = read_header(data)._replace(length=length)
        try:
            decode_records(data, 0, header, 100_000)
        except (CorruptMessageError, MessageTooLargeError, UnsupportedCompressionTypeError):
            continue


def test_columns_of_many_records_and_of_large_values_are_those_of_the_records() -> None:
    for count, size in ((9000, 3), (40_000, 0), (70, 20_000)):
        records = [Record(0, 1_700_000_000_000 + index * 7, None, b"v" * size, []) for index in range(count)]
        batch = encode_batch(records, base_offset=5)
        columns = read_columns(batch, 0, read_header(batch))
        assert columns.offsets == list(range(5, 5 + count))
        assert columns.timestamps_ms == [record.timestamp_ms for record in records]
        assert columns.values == [record.value for record in records]
        assert columns.keys == [None] * count


@settings(max_examples=100)
@given(data=st.binary(max_size=100_000), codec=st.sampled_from(CODECS))
def test_what_a_codec_packs_it_unpacks(data: bytes, codec: int) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data
    assert decompress(codec, memoryview(bytearray(compress(codec, data))), len(data) + 1) == data


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_refused_within_the_bound(codec: Codec) -> None:
    bomb = compress(codec, bytes(30_000_000))
    assert len(bomb) < 2_000_000
    with pytest.raises(MessageTooLargeError, match="100000 bytes allowed"):
        decompress(codec, bomb, 100_000)
    assert len(decompress(codec, bomb, 30_000_000)) == 30_000_000


@pytest.mark.parametrize("codec", CODECS[1:])
def test_damaged_compressed_data_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, os.urandom(5000))
    for damaged in (packed[:-1], packed[: len(packed) // 2], b"", b"\x00" * 40):
        if codec is Codec.SNAPPY and damaged == b"\x00" * 40:
            continue  # forty empty plain blocks are no error to every snappy reader
        with pytest.raises(CorruptMessageError):
            decompress(codec, damaged, 1_000_000)


def test_a_snappy_block_that_claims_gigabytes_costs_nothing() -> None:
    with pytest.raises(MessageTooLargeError):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 20, 1_000_000)


@pytest.mark.parametrize("size", [0, -4, 100])
def test_a_snappy_java_block_that_does_not_fit_is_corrupt(size: int) -> None:
    header = compress(Codec.SNAPPY, b"")
    with pytest.raises(CorruptMessageError, match="does not fit"):
        decompress(Codec.SNAPPY, header + struct.pack(">i", size) + b"\x00" * 20, 1000)


def test_plain_snappy_and_linked_lz4_are_read_too() -> None:
    data = b"some text " * 20_000
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(data)), len(data)) == data


def test_lz4_frames_have_independent_blocks_which_the_java_client_insists_on() -> None:
    packed = compress(Codec.LZ4, b"x" * 200_000)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0b0010_0000


def test_codecs_by_name_and_unknown_ones() -> None:
    assert codec_of("zstd") is Codec.ZSTD
    with pytest.raises(InvalidConfigError, match="use one of none, gzip"):
        codec_of("producer")
    for codec in (5, 7):
        with pytest.raises(UnsupportedCompressionTypeError):
            decompress(codec, b"", 1)
        with pytest.raises(UnsupportedCompressionTypeError):
            compress(codec, b"")
