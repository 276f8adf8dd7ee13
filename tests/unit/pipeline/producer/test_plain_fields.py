"""Fields of plain types are encoded byte for byte as fastavro does, and whatever is unusual is left to it."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest
from fastavro import schemaless_reader, schemaless_writer
from fastavro.schema import parse_schema
from hypothesis import given
from hypothesis import strategies as st

from headrace.events.avro_schemas import schema_text
from headrace.events.envelope import FRAME_SIZE
from headrace.producer.checks import EventError
from headrace.producer.plain_fields import LONGS, LONGS_KEPT, UNUSUAL, fields_writer
from headrace.producer.stream import Encoder, Envelope

LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "text": ("string", TEXT),
    "data": ("bytes", st.binary()),
    "long": ("long", LONG),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "boolean": ("boolean", st.booleans()),
    "double": ("double", st.floats(allow_nan=False)),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "when": ({"type": "long", "logicalType": "timestamp-millis"}, LONG),
    "null_first": (["null", "string"], st.none() | TEXT),
    "null_last": (["long", "null"], st.none() | LONG),
}
FIELDS = [{"name": name, "type": kind} for name, (kind, _) in VALUES.items()]
HEADER = json.loads(schema_text("page_view"))["fields"][0]
NOW = 1_700_000_000_000
ENVELOPE = Envelope("web-1", "café", "p")


def encoder(fields: list[dict[str, Any]]) -> Encoder:
    return Encoder(json.dumps({"type": "record", "name": "Own", "fields": [HEADER, *fields]}), 1)


@given(st.fixed_dictionaries({name: values for name, (_, values) in VALUES.items()}))
def test_what_is_plain_is_encoded_as_fastavro_does(values: dict[str, Any]) -> None:
    schema = parse_schema({"type": "record", "name": "R", "fields": FIELDS})
    expected = io.BytesIO()
    schemaless_writer(expected, schema, values)
    write = fields_writer(FIELDS)
    assert write is not None
    assert write(values) == expected.getvalue()
    assert len(LONGS) <= len(LONGS_KEPT), "only small numbers are kept"


@given(st.integers(0, 2**40), st.integers(0, 2**62))
def test_a_header_is_encoded_as_fastavro_does(time_ms: int, sequence: int) -> None:
    plain = encoder([{"name": "n", "type": "long"}, {"name": "s", "type": "string"}])
    fields = {"n": 1, "s": "x"}
    body = plain.body(fields)
    assert body is not None
    written = plain.event(ENVELOPE, time_ms, sequence, fields, body)
    assert written == plain.event(ENVELOPE, time_ms, sequence, fields, None)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", b"x"),
        ("string", "\ud800"),
        ("long", True),
        ("long", 2**63),
        ("int", 2**31),
        ("int", 1.5),
        ("boolean", 1),
        ("double", 1),
        ("float", 1e300),
        ("bytes", bytearray(b"x")),
        (["null", "string"], 1),
        ({"type": "long", "logicalType": "timestamp-millis"}, datetime.now(UTC)),
    ],
)
def test_a_value_of_another_type_is_left_to_the_slower_way(kind: Any, value: Any) -> None:
    write = fields_writer([{"name": "n", "type": "long"}, {"name": "v", "type": kind}])
    assert write is not None
    with pytest.raises(UNUSUAL):
        write({"n": 1, "v": value})


@pytest.mark.parametrize(
    "values", [{"n": 1}, {"n": 1, "v": 2, "w": 3}, {"n": 1, "w": 2}, defaultdict(int, {"n": 1}), [("n", 1)]]
)
def test_fields_that_are_not_all_of_them_are_left_to_the_slower_way(values: Any) -> None:
    write = fields_writer([{"name": "n", "type": "long"}, {"name": "v", "type": "long"}])
    assert write is not None
    with pytest.raises(UNUSUAL):
        write(values)


@pytest.mark.parametrize(
    "kind",
    [
        ["long", "double"],
        ["null", "long", "string"],
        ["null"],
        {"type": "array", "items": "long"},
        {"type": "bytes", "logicalType": "decimal", "precision": 4},
        {"type": "enum", "name": "E", "symbols": ["A"]},
        "Header",
    ],
)
def test_a_schema_with_other_types_is_fastavros(kind: Any) -> None:
    assert fields_writer([{"name": "n", "type": "long"}, {"name": "v", "type": kind}]) is None


def test_what_the_fast_way_leaves_fits_or_is_refused_as_ever() -> None:
    own = encoder(
        [
            {"name": "when", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "n", "type": "int", "default": 7},
        ]
    )
    fields = {"when": datetime.fromtimestamp(1_700_000_000, UTC)}
    body = own.body(fields)
    assert body is None
    payload = own.event(ENVELOPE, NOW, 5, fields, body)[FRAME_SIZE:]
    record: Any = schemaless_reader(io.BytesIO(payload), own.schema, None)
    assert (record["n"], record["when"].timestamp()) == (7, 1_700_000_000)
    assert record["header"]["service"] == "café"
    for wrong in ({"when": NOW, "m": 1}, {"when": NOW, "n": 2**31}, {"n": 1}, {"when": True, "n": 1}):
        with pytest.raises(EventError, match="does not fit its schema"):
            own.body(wrong)


def test_a_header_of_other_types_is_fastavros() -> None:
    fields = [{**HEADER["type"]["fields"][0], "type": "string"}, *HEADER["type"]["fields"][1:]]
    header = {"name": "header", "type": {**HEADER["type"], "fields": fields}}
    schema = {
        "type": "record",
        "name": "Own",
        "fields": [header, {"name": "n", "type": "long"}, {"name": "m", "type": "long"}],
    }
    assert Encoder(json.dumps(schema), 1).body({"n": 1, "m": 2}) is None
