"""Envelopes read from whole batches without their schema."""

from __future__ import annotations

import io
from typing import Any

import pytest
from fastavro import schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.audit.counting.count import census, count, envelopes
from headrace.audit.windows import ProducerName
from headrace.broker.wire.batches import Record, encode_batch, read_header
from headrace.events.avro_schemas import parsed_schema
from headrace.events.envelope import Header, frame_prefix
from headrace.load.columns import RecordColumns, columns

GOOD = Header(1_700_000_000_123, "web-1", "shop", "0b0c3a1e-6a3f-4a0b-8f6e-2f1e7f1d2c3b", 7)


def value(header: Header) -> bytes:
    sink = io.BytesIO()
    record: dict[str, Any] = {
        "header": header._asdict(),
        "reason": "r",
        "line": b"x",
        "size": 1,
        "sha256": "",
    }
    schemaless_writer(sink, parsed_schema("rejected_line"), record)
    return frame_prefix(7) + sink.getvalue()


def fetched(values: list[bytes | None], codec: int = 0) -> RecordColumns:
    records = [Record(offset, GOOD.time, None, content, []) for offset, content in enumerate(values)]
    batch = bytes(encode_batch(records, codec=codec))
    return columns(batch, [(0, read_header(batch))])


def read(values: list[bytes | None]) -> list[tuple[int, int, str, int]]:
    found = envelopes(fetched(values))
    return [
        (record, time_ms, found.names[producer], sequence)
        for record, time_ms, producer, sequence in zip(
            found.record.tolist(),
            found.time_ms.tolist(),
            found.producer.tolist(),
            found.sequence.tolist(),
            strict=True,
        )
    ]


headers = st.builds(
    Header,
    st.integers(-(2**40), 2**50),
    st.text(max_size=20),
    st.text(max_size=20),
    st.text(min_size=1, max_size=12),
    st.integers(0, 2**62),
)


@given(st.lists(headers, min_size=1, max_size=20))
@settings(max_examples=100)
def test_reads_what_was_written(written: list[Header]) -> None:
    assert read([value(header) for header in written]) == [
        (at, header.time, header.producer, header.sequence) for at, header in enumerate(written)
    ]


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"\0\0\0\0\7",
        b"no event at all",
        b"\1" + value(GOOD)[1:],
        value(GOOD)[:20],
        value(GOOD._replace(sequence=-1)),
        value(GOOD._replace(producer="")),
        value(GOOD._replace(producer="x" * 2000)),
        b"\0\0\0\0\7" + b"\xff" * 40,
    ],
)
def test_what_is_no_event_is_foreign_and_its_neighbours_are_read(content: bytes | None) -> None:
    records = fetched([value(GOOD), content, value(GOOD._replace(sequence=8))])
    assert [sequence for *_, sequence in read([value(GOOD), content, value(GOOD._replace(sequence=8))])] == [
        7,
        8,
    ]
    tallies, foreign = count([records], 1000)
    assert foreign == 1
    assert [(item.producer, item.count, item.runs.tolist()) for item in tallies] == [
        (GOOD.producer, 2, [[7, 8]])
    ]


@given(st.binary(max_size=60))
def test_no_bytes_make_it_fail(content: bytes) -> None:
    tallies, foreign = count([fetched([content, value(GOOD)])], 1000)
    assert sum(item.count for item in tallies) + foreign == 2


def test_producers_of_equal_and_different_length_are_told_apart() -> None:
    names = ["aa", "ab", "aa", "b", "ab"]
    written = [value(GOOD._replace(producer=name, sequence=at)) for at, name in enumerate(names)]
    assert [name for _, _, name, _ in read(list(written))] == names


def test_tells_who_published_by_the_first_record_of_each_producer() -> None:
    written: list[bytes | None] = [
        value(GOOD),
        b"no event",
        value(GOOD._replace(server="web-2", service="search", producer="other")),
        value(GOOD._replace(sequence=8)),
    ]
    assert census([fetched(written), fetched([value(GOOD._replace(server="later"))])], 1000).producers == {
        GOOD.producer: ProducerName("web-1", "shop"),
        "other": ProducerName("web-2", "search"),
    }
