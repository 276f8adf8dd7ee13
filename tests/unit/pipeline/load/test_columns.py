"""Records as columns: the same records that the codec reads one by one, and damage that stays bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.wire.batches import HEADER_SIZE, Record, decode_records, encode_batch, iter_batches
from headrace.load.columns import RecordColumns, UnreadableBatchError, columns

optional_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=3)
record = st.builds(Record, st.just(0), st.integers(0, 1 << 45), optional_bytes, optional_bytes, headers)


def listed(parsed: RecordColumns) -> list[tuple[int, int, bytes | None, bytes | None]]:
    def piece(start: int, size: int) -> bytes | None:
        return None if size < 0 else parsed.data[start : start + size]

    return [
        (offset, timestamp, piece(key, key_size), piece(value, value_size))
        for offset, timestamp, key, key_size, value, value_size in zip(
            *(column.tolist() for column in parsed[1:7]), strict=True
        )
    ]


@given(
    st.lists(
        st.tuples(st.lists(record, min_size=1, max_size=8), st.sampled_from([0, 1, 2, 3, 4]), st.booleans()),
        min_size=1,
        max_size=4,
    )
)
def test_columns_are_the_records_of_the_codec(batches: list[tuple[list[Record], int, bool]]) -> None:
    buffer = bytearray()
    offset = 1000
    for records, codec, is_append_time in batches:
        batch = encode_batch(records, base_offset=offset, codec=codec, timestamp_type=int(is_append_time))
        buffer += batch
        offset += len(records) + 3
    placed = list(iter_batches(buffer))
    expected = [
        (item.offset, item.timestamp_ms, item.key, item.value)
        for position, header in placed
        for item in decode_records(memoryview(buffer), position, header)
    ]
    assert listed(columns(memoryview(buffer), placed)) == expected


@given(st.lists(record, min_size=1, max_size=5), st.integers(0, 10_000), st.integers(0, 255))
def test_damaged_records_are_refused_or_stay_inside_their_data(
    records: list[Record], place: int, byte: int
) -> None:
    buffer = encode_batch(records)
    buffer[HEADER_SIZE + place % (len(buffer) - HEADER_SIZE)] = byte
    try:
        parsed = columns(memoryview(buffer), list(iter_batches(buffer)))
    except UnreadableBatchError:
        return
    assert len(parsed.offset) == len(records)
    for start, size in ((parsed.key_start, parsed.key_size), (parsed.value_start, parsed.value_size)):
        assert (size >= -1).all()
        assert (start + size <= len(buffer)).all()


@given(st.lists(st.integers(0, 9000), min_size=1, max_size=6), st.integers(0, 5))
def test_a_length_that_is_not_in_its_shortest_form_is_read_all_the_same(
    sizes: list[int], padded: int
) -> None:
    batches = [
        encode_batch([Record(0, 7, None, bytes(size), [])], base_offset=n) for n, size in enumerate(sizes)
    ]
    chosen = batches[padded % len(batches)]
    last = next(i for i in range(HEADER_SIZE, len(chosen)) if chosen[i] < 0x80)
    chosen[last : last + 1] = bytes((chosen[last] | 0x80, 0))
    chosen[8:12] = (len(chosen) - 12).to_bytes(4, "big")
    buffer = memoryview(b"".join(batches))
    parsed = listed(columns(buffer, list(iter_batches(buffer))))
    assert parsed == [(n, 7, None, bytes(size)) for n, size in enumerate(sizes)]


@pytest.mark.parametrize("count", [-5, 0, 1, 3, 2**31 - 1])
def test_a_wrong_record_count_is_refused(count: int) -> None:
    buffer = encode_batch([Record(0, 1, None, b"a", []), Record(1, 2, None, b"b", [])])
    ((position, header),) = iter_batches(buffer)
    with pytest.raises(UnreadableBatchError):
        columns(memoryview(buffer), [(position, header._replace(record_count=count))])


def test_bytes_that_do_not_decompress_are_refused() -> None:
    buffer = encode_batch([Record(0, 1, None, b"a" * 100, [])], codec=4)
    buffer[HEADER_SIZE : HEADER_SIZE + 8] = b"\x00" * 8
    with pytest.raises(UnreadableBatchError, match="decompress"):
        columns(memoryview(buffer), list(iter_batches(buffer)))


def test_no_batches_have_no_records() -> None:
    assert listed(columns(b"", [])) == []
