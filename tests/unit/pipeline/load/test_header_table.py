"""Headers as columns are those that are read one by one, and nothing is believed that is not believed one by one."""

from __future__ import annotations

import random
import struct

import pytest

from headrace.broker.wire.batches import HEADER_SIZE, BatchHeader, Record, encode_batch, iter_batches
from headrace.load.header_table import HeaderTable, believed, table_of, told

END = 10_000


def log(seed: int = 1, count: int = 30) -> tuple[bytearray, list[tuple[int, BatchHeader]]]:
    """Batches as several clients write them, and each of them with its place."""
    chance, data, offset = random.Random(seed), bytearray(), 0
    for number in range(count):
        records = [Record(0, 10_000 + number, b"k", b"%d" % n, []) for n in range(chance.randint(1, 4))]
        data += encode_batch(
            records,
            base_offset=offset,
            leader_epoch=chance.randint(0, 3),
            codec=chance.choice((0, 1)),
            producer_id=chance.choice((-1, 2**40)),
            producer_epoch=chance.choice((-1, 7)),
            base_sequence=chance.choice((-1, 2**31 - 1)),
            transactional=chance.random() < 0.5,
            control=chance.random() < 0.2,
        )
        offset += len(records) + chance.choice((0, 0, 3))
    return data, list(iter_batches(data))


@pytest.mark.parametrize("seed", range(5))
def test_a_table_has_the_headers_that_are_read_one_by_one(seed: int) -> None:
    data, placed = log(seed)
    headers = [header for _, header in placed]
    found = believed(memoryview(data), 0, END, END)
    assert found is not None
    assert list(found) == list(table_of(headers)) == headers
    assert table_of(found) is found
    assert (len(found), found[-1]) == (len(headers), headers[-1])
    assert list(found[2:5]) == headers[2:5]
    assert all(type(value) is int for value in found[0])


def test_a_batch_that_is_cut_off_ends_it_and_what_lies_behind_the_limit_is_left_out() -> None:
    data, placed = log()
    headers = [header for _, header in placed]
    cut = believed(memoryview(data)[:-1], 0, END, END)
    assert cut is not None
    assert list(cut) == headers[:-1]
    limit = headers[10].base_offset
    short = believed(memoryview(data), 0, END, limit)
    assert short is not None
    assert list(short) == headers[:10]
    first = believed(memoryview(data)[placed[10][0] :], limit, END, limit)
    assert first is not None
    assert list(first) == headers[10:11], "it says that the rest is empty"
    assert list(believed(memoryview(data), headers[0].last_offset, END, END) or ()) == headers


def test_nothing_is_believed_where_one_batch_is_not_what_it_says() -> None:
    data, placed = log()
    place, header = placed[7]

    def changed(at: int, form: str, value: int) -> HeaderTable | None:
        rotten = bytearray(data)
        struct.pack_into(form, rotten, place + at, value)
        return believed(memoryview(rotten), 0, END, 10 * END)

    assert changed(header.size - 1, ">B", data[place + header.size - 1] ^ 1) is None, "its last byte"
    assert changed(16, ">b", 1) is None, "its format"
    assert changed(8, ">i", 7) is None, "its length"
    assert changed(0, ">q", 0) is None, "its place"
    assert changed(0, ">q", END) is None, "its place beyond the end"
    assert changed(17, ">I", header.crc ^ 1) is None, "its checksum"
    assert believed(memoryview(data), 0, placed[-1][1].last_offset, END) is None, "the end"
    assert believed(memoryview(data), placed[0][1].next_offset, END, END) is None, "what comes first"
    for nothing in (b"", data[:60]):
        assert believed(memoryview(nothing), 0, END, END) is None


def test_headers_without_their_records_are_told_as_those_with_them() -> None:
    data, placed = log()
    headers = [header for _, header in placed]
    alone = b"".join(data[place : place + HEADER_SIZE] for place, _ in placed)

    def found(content: bytes, first: int = 0, end: int = END, limit: int = END) -> list[BatchHeader] | None:
        table = told(memoryview(content), first, end, limit)
        return None if table is None else list(table)

    assert found(alone) == headers
    assert found(alone, limit=headers[10].base_offset) == headers[:10]
    assert found(alone[10 * HEADER_SIZE :], headers[10].base_offset, limit=1) == headers[10:11]
    assert found(b"") is None
    assert found(alone[:-1]) is None, "one is cut off"
    assert found(alone, end=headers[-1].last_offset) is None, "the end"
    assert found(alone, first=headers[0].next_offset) is None, "what comes first"
    assert found(alone[HEADER_SIZE:] + alone[:HEADER_SIZE]) is None, "their order"
    assert found(alone[:16] + b"\1" + alone[17:]) is None, "a format"
