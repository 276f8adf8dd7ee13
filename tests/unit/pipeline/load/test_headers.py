"""Keys and headers as columns: the same ones that the codec reads one by one, and damage that costs its record alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.wire.batches import Record, decode_records, encode_batch, iter_batches
from headrace.broker.wire.varint import encode_varint
from headrace.load.columns import RecordColumns, columns
from headrace.load.headers import HEADERS_MAX, HEADERS_TYPE, bytes_column, headers_of

optional_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=3)
record = st.builds(Record, st.just(0), st.just(0), optional_bytes, optional_bytes, headers)


def as_rows(found: list[tuple[str, bytes | None]]) -> list[dict[str, Any]] | None:
    return [{"key": name, "value": value} for name, value in found] or None


@given(st.lists(record, min_size=1, max_size=20), st.data())
def test_keys_and_headers_are_those_of_the_codec(records: list[Record], data: st.DataObject) -> None:
    buffer = encode_batch(records)
    placed = list(iter_batches(buffer))
    parsed = columns(memoryview(buffer), placed)
    expected = decode_records(memoryview(buffer), *placed[0])
    found = headers_of(parsed, len(records))
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, len(records) - 1)))), dtype=np.int64)
    assert not found.bad.size
    assert found.of(chosen).type == HEADERS_TYPE
    assert found.of(chosen).to_pylist() == [as_rows(list(expected[index].headers)) for index in chosen]
    keys = bytes_column(parsed.data, parsed.key_start[chosen], parsed.key_size[chosen])
    assert keys.to_pylist() == [expected[index].key for index in chosen]


def records_with(sections: list[bytes]) -> RecordColumns:
    """Records whose headers are these bytes."""
    size = np.array([len(section) for section in sections], dtype=np.int64)
    end = np.cumsum(size)
    nothing = np.zeros(len(sections), dtype=np.int64)
    return RecordColumns(
        b"".join(sections) + bytes(64), nothing, nothing, nothing, nothing, nothing, nothing, end - size, end
    )


def header(name: bytes, value: bytes | None) -> bytes:
    size = -1 if value is None else len(value)
    return encode_varint(len(name)) + name + encode_varint(size) + (value or b"")


ONE = encode_varint(1) + header(b"a", b"1")
NONE = encode_varint(0)
BAD = {
    "too many claimed": encode_varint(2) + header(b"a", b"1"),
    "too few claimed": NONE + header(b"a", b"1"),
    "a negative count": encode_varint(-1),
    "a name without size": encode_varint(1) + encode_varint(-1) + encode_varint(0),
    "a name beyond the end": encode_varint(1) + encode_varint(40) + b"a",
    "a value beyond the end": encode_varint(1) + encode_varint(1) + b"a" + encode_varint(900),
    "a size of another sign": encode_varint(1) + encode_varint(1) + b"a" + encode_varint(-2),
    "a number without end": b"\xff" * 12,
    "more than the bound": encode_varint(HEADERS_MAX + 1) + header(b"", b"") * (HEADERS_MAX + 1),
}


def test_headers_that_do_not_parse_cost_their_record_alone() -> None:
    sections = [ONE, *(part for bad in BAD.values() for part in (bad, ONE)), NONE]
    found = headers_of(records_with(sections), len(sections))
    assert found.bad.tolist() == list(range(1, 2 * len(BAD), 2))
    rows = found.of(np.arange(len(sections))).to_pylist()
    good = [{"key": "a", "value": b"1"}]
    assert rows == [good if section is ONE else None for section in sections]


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=6))
def test_any_bytes_are_headers_or_bad_and_cost_no_neighbour(sections: list[bytes]) -> None:
    found = headers_of(records_with([ONE, *sections, ONE]), len(sections) + 2)
    rows = found.of(np.arange(len(sections) + 2)).to_pylist()
    assert rows[0] == rows[-1] == [{"key": "a", "value": b"1"}]
    assert not {0, len(sections) + 1} & set(found.bad.tolist())


def test_a_name_may_be_there_twice_and_need_not_be_text() -> None:
    section = encode_varint(3) + header(b"n", b"1") + header(b"n", None) + header(b"\xffx", b"")
    (row,) = headers_of(records_with([section]), 1).of(np.array([0])).to_pylist()
    assert [(item["key"], item["value"]) for item in row] == [("n", b"1"), ("n", None), ("\ufffdx", b"")]


def test_records_without_headers_have_no_list() -> None:
    found = headers_of(records_with([NONE, NONE]), 2)
    assert found.lists is None
    assert found.of(np.array([1])).to_pylist() == [None]
