"""Avro values become the table's rows; what does not decode is named, alone."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from avro_kit import encoded, field, mapped, record, shape_of
from hypothesis import given
from hypothesis import strategies as st

from headrace.load.avro_types import UnsupportedSchemaError, event_schema, writer_schema
from headrace.load.columns import RecordColumns
from headrace.load.decode import (
    NO_SCHEMA,
    Decoded,
    TableShape,
    decode,
    grown,
    is_growing,
    no_frame_reason,
    schema_ids,
)

TIME = {"type": "long", "logicalType": "timestamp-millis"}
HEADER = {
    "type": "record",
    "name": "Header",
    "fields": [{"name": "time", "type": TIME}, {"name": "producer", "type": "string"}],
}
ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "count", "type": "int"}, {"name": "note", "type": ["null", "string"]}],
}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
NOW = datetime.datetime(2026, 1, 31, 23, 59, 50, 5000, tzinfo=datetime.UTC)


def decoded_alone(schema: dict[str, Any], rows: list[dict[str, Any]]) -> Decoded:
    writer = mapped(schema)
    return decode(encoded(schema, rows), writer, shape_of(writer))


FAST = [
    field("header", HEADER),
    field("id", {"type": "string", "logicalType": "uuid"}),
    field("tags", ["null", {"type": "map", "values": ["null", "long"]}]),
    field("at", {"type": "int", "logicalType": "time-millis"}),
    field("day", ["null", {"type": "int", "logicalType": "date"}]),
    field("items", ["null", {"type": "array", "items": ITEM}]),
    field("first", ["null", "Item"]),
    field("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    field("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
    field("ratio", "double"),
    field("alone", ["string"]),
]
SLOW = [*FAST, field("price", ["null", DECIMAL]), field("raw", "bytes")]


def event(number: int) -> dict[str, Any]:
    return {
        "header": {"time": NOW, "producer": f"producer-{number}"},
        "id": str(uuid.UUID(int=number)),
        "tags": None if number % 2 else {"a": number, "b": None},
        "at": datetime.time(1, 2, 3, 4000),
        "day": None if number % 3 else NOW.date(),
        "items": [{"count": 1, "note": "é"}, {"count": 2, "note": None}][: number % 3]
        if number % 4
        else None,
        "first": None if number % 3 else {"count": number, "note": "x"},
        "kind": "AB"[number % 2],
        "local": NOW.replace(tzinfo=None),
        "ratio": number / 2,
        "alone": f"only {number}",
        "price": decimal.Decimal("1.25") if number % 2 else None,
        "raw": b"\xff\x00",
    }


@pytest.mark.parametrize(("fields", "is_fast"), [(FAST, True), (SLOW, False)])
def test_every_type_keeps_its_value_with_either_decoder(fields: list[dict[str, Any]], is_fast: bool) -> None:
    schema = record(*fields)
    assert mapped(schema).is_fast is is_fast
    names = [item["name"] for item in fields]
    rows = [{name: event(number)[name] for name in names} for number in range(13)]
    decoded = decoded_alone(schema, rows)
    decoded.rows.validate(full=True)
    assert decoded.bad == {}
    got = decoded.rows.to_pylist()
    for row in got:
        row["tags"] = None if row["tags"] is None else dict(row["tags"])
    assert got == rows


def test_one_bad_value_never_costs_its_neighbours() -> None:
    schema = record(*FAST)
    names = [item["name"] for item in FAST]
    values = encoded(schema, [{name: event(number)[name] for name in names} for number in range(50)])
    values[0] = b""
    values[31] = values[31][:9]
    values[32] = b"\xff" * 40
    writer = mapped(schema)
    decoded = decode(values, writer, shape_of(writer))
    assert sorted(decoded.bad) == [0, 31, 32]
    assert decoded.kept.tolist() == [number for number in range(50) if number not in (0, 31, 32)]
    assert decoded.rows.column("ratio").to_pylist() == [number / 2 for number in decoded.kept]
    assert all("schema 7" in reason for reason in decoded.bad.values())


def test_text_that_is_not_utf8_is_bad_although_the_decoder_takes_it() -> None:
    writer = mapped(record(field("name", "string")))
    decoded = decode([b"\x02a", b"\x04\xff\xfe", b"\x02b"], writer, shape_of(writer))
    assert decoded.rows.to_pylist() == [{"name": "a"}, {"name": "b"}]
    assert list(decoded.bad) == [1]


def test_a_time_that_no_column_can_hold_is_bad() -> None:
    schema = record(field("time", TIME))
    writer = mapped(schema)
    values = encoded(record(field("time", "long")), [{"time": 5}, {"time": 1 << 62}])
    decoded = decode(values, writer, shape_of(writer))
    assert len(decoded.rows) == 1
    assert list(decoded.bad) == [1]


def test_an_event_without_a_value_for_a_required_column_is_bad() -> None:
    writer = mapped(record(field("name", ["null", "string"])))
    required = TableShape(columns=pa.schema([pa.field("name", pa.string(), nullable=False)]))
    decoded = decode([b"\x02\x02a", b"\x00", b"\x02\x02b"], writer, required)
    assert decoded.rows.to_pylist() == [{"name": "a"}, {"name": "b"}]
    assert list(decoded.bad) == [1]
    assert "requires column name" in decoded.bad[1]


@given(st.lists(st.binary(max_size=40), max_size=12))
def test_any_bytes_come_back_once_as_a_row_or_as_bad(values: list[bytes]) -> None:
    writer = mapped(record(*FAST[:6]))
    decoded = decode(values, writer, shape_of(writer))
    assert sorted([*decoded.kept.tolist(), *decoded.bad]) == list(range(len(values)))
    assert len(decoded.rows) == len(decoded.kept)


def test_an_old_event_gets_the_defaults_of_the_fields_it_lacks_nested_ones_included() -> None:
    old = record(field("header", HEADER), field("items", {"type": "array", "items": ITEM}), field("n", "int"))
    newer = json.loads(json.dumps(old))
    newer["fields"][0]["type"]["fields"].append(field("zone", "string", default="eu"))
    newer["fields"][1]["type"]["items"]["fields"].append(field("weight", "int", default=7))
    newer["fields"][2]["type"] = "long"
    newer["fields"].append(field("since", TIME, default=1000))
    newer["fields"].append(field("price", DECIMAL, default="\u0001\u0000"))
    newer["fields"].append(field("maybe", ["null", "string"], default=None))
    row = {"header": {"time": NOW, "producer": "p"}, "items": [{"count": 1, "note": None}], "n": 3}
    decoded = decode(encoded(old, [row]), mapped(old), shape_of(mapped(newer)))
    assert decoded.rows.to_pylist() == [
        {
            "header": {"time": NOW, "producer": "p", "zone": "eu"},
            "items": [{"count": 1, "note": None, "weight": 7}],
            "n": 3,
            "since": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
            "price": decimal.Decimal("2.56"),
            "maybe": None,
        }
    ]


def test_an_old_event_gets_a_records_default_with_those_of_the_fields_that_it_grew_since() -> None:
    old = record(field("n", "int"))
    place = {"type": "record", "name": "Place", "fields": [field("city", "string")]}
    first = record(*old["fields"], field("place", place, default={"city": "Ulm"}))
    later = json.loads(json.dumps(first))
    later["fields"][1]["type"]["fields"].append(field("zone", "string", default="eu"))
    first_defaults, writer = mapped(first).defaults, mapped(later)
    shape = TableShape(columns=writer.table_fields, defaults={**writer.defaults, **first_defaults})
    decoded = decode(encoded(old, [{"n": 3}]), mapped(old), shape)
    assert decoded.rows.to_pylist() == [{"n": 3, "place": {"city": "Ulm", "zone": "eu"}}]


def test_fields_that_a_records_default_leaves_out_have_their_own() -> None:
    place = {"type": "record", "name": "Place", "fields": [field("zone", "string", default="eu")]}
    newer = record(field("n", "int"), field("place", place, default={}))
    old = record(field("n", "int"))
    decoded = decode(encoded(old, [{"n": 3}]), mapped(old), shape_of(mapped(newer)))
    assert decoded.rows.to_pylist() == [{"n": 3, "place": {"zone": "eu"}}]


def test_a_table_grows_for_new_and_wider_fields_only() -> None:
    narrow, wide = mapped(record(field("n", "int"))), mapped(record(field("n", "long")))
    more = mapped(record(field("n", "int"), field("header", HEADER)))
    assert is_growing(wide, shape_of(narrow))
    assert is_growing(more, shape_of(narrow))
    assert not is_growing(narrow, shape_of(wide))
    assert not is_growing(narrow, shape_of(more))


def decimal_field(precision: int, scale: int = 2) -> dict[str, Any]:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return field("amount", kind)


def test_a_decimal_grows_by_digits_before_its_point_alone() -> None:
    narrow, wide = mapped(record(decimal_field(10))), mapped(record(decimal_field(14)))
    assert is_growing(wide, shape_of(narrow))
    assert not is_growing(narrow, shape_of(wide))
    with pytest.raises(UnsupportedSchemaError, match="field amount is"):
        is_growing(mapped(record(decimal_field(14, 4))), shape_of(narrow))
    (value,) = encoded(record(decimal_field(10)), [{"amount": decimal.Decimal("1.25")}])
    rows = decode([value], narrow, shape_of(wide)).rows
    assert rows.column("amount").to_pylist() == [decimal.Decimal("1.25")]
    assert rows.schema.field("amount").type == pa.decimal128(14, 2)


def test_a_field_that_changed_its_type_is_unsupported_and_named() -> None:
    changed = {**HEADER, "fields": [field("time", "string")]}
    writer = mapped(record(field("extra", "int"), field("header", changed)))
    with pytest.raises(UnsupportedSchemaError, match=r"field header\.time is string"):
        is_growing(writer, shape_of(mapped(record(*FAST))))


def doubling(depth: int) -> dict[str, Any]:
    schema: Any = {"type": "record", "name": "R0", "fields": [field("x", "int")]}
    for level in range(1, depth):
        name = f"R{level - 1}"
        schema = {"type": "record", "name": f"R{level}", "fields": [field("a", schema), field("b", name)]}
    return record(field("top", schema))


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("string", "is an Avro record"),
        (record(field("u", ["null"])), "u is always null"),
        (record(field("u", ["long", "string"], default="x")), "the default 'x'"),
        (record(field("u", "null")), "no column can hold"),
        (record(field("next", ["null", "test.Event"])), "contains itself"),
        (record(field("e", {"type": "record", "name": "Empty", "fields": []})), "has no fields"),
        (record(field("x", "int", default="five")), "the default 'five'"),
        (doubling(20), "unfolds to more than"),
    ],
)
def test_a_schema_that_no_table_holds_is_refused_with_a_sentence(schema: Any, sentence: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match=sentence):
        writer_schema(1, schema)


CLICK = {"type": "record", "name": "Click", "namespace": "web", "fields": [field("at", "int", default=7)]}
VIEW = {"type": "record", "name": "View", "fields": [field("of", "string"), field("click", "web.Click")]}


def union_rows(branches: list[Any], values: list[Any]) -> list[Any]:
    rows: pa.Table = decoded_alone(record(field("u", branches)), [{"u": value} for value in values]).rows
    found: list[Any] = rows.column("u").to_pylist()
    return found


def test_a_union_of_several_types_is_a_struct_of_which_one_member_is_set() -> None:
    size = {"type": "enum", "name": "Size", "symbols": ["S", "L"]}
    branches = ["null", "string", "long", "boolean", CLICK, VIEW, size, {"type": "array", "items": "int"}]
    click = {"at": 5}
    values: list[Any] = [
        None,
        "a",
        3,
        True,
        ("web.Click", click),
        ("test.View", {"of": "p", "click": click}),
        [1],
    ]
    found = union_rows(branches, [*values, ("test.Size", "L")])
    assert found[0] is None
    set_members = [{name: value for name, value in row.items() if value is not None} for row in found[1:]]
    assert set_members == [
        {"string": "a"},
        {"long": 3},
        {"boolean": True},
        {"Click": click},
        {"View": {"of": "p", "click": click}},
        {"array": [1]},
        {"Size": "L"},
    ]


def test_members_whose_values_look_alike_are_told_apart_by_what_was_written() -> None:
    one, other = (
        {"type": "record", "name": f"{at}.Same", "fields": [field("x", "int")]} for at in ("a.b", "c")
    )
    (value,) = encoded(record(field("u", ["int", other])), [{"u": {"x": 1}}])
    columns = mapped(record(field("u", ["int", "long", "float", one, other]))).table_fields
    assert [part.name for part in columns.field("u").type] == ["int", "long", "float", "a_b_Same", "c_Same"]
    assert union_rows(["int", one, other], [("c.Same", {"x": 1})]) == [
        {"int": None, "a_b_Same": None, "c_Same": {"x": 1}}
    ]
    alone = mapped(record(field("u", ["int", other])))
    assert decode([value], alone, shape_of(alone)).rows.column("u").to_pylist() == [
        {"int": None, "Same": {"x": 1}}
    ]


def test_unions_lie_in_lists_and_maps_and_have_defaults() -> None:
    either: list[Any] = ["string", "long"]
    old = record(field("n", "int"))
    new = record(
        field("n", "int"),
        field("items", {"type": "array", "items": either}, default=["a"]),
        field("by", {"type": "map", "values": [CLICK, "null", "long"]}, default={"k": {}}),
        field("u", either, default="x"),
    )
    (value,) = encoded(old, [{"n": 1}])
    (row,) = decode([value], mapped(old), shape_of(mapped(new))).rows.to_pylist()
    assert row == {
        "n": 1,
        "items": [{"string": "a", "long": None}],
        "by": [("k", {"Click": {"at": 7}, "long": None})],
        "u": {"string": "x", "long": None},
    }
    given = {"n": 2, "items": ["b", 4], "by": {"m": None, "l": 3}, "u": 9}
    (row,) = decoded_alone(new, [given]).rows.to_pylist()
    assert row["items"] == [{"string": "b", "long": None}, {"string": None, "long": 4}]
    assert (row["by"], row["u"]) == (
        [("m", None), ("l", {"Click": None, "long": 3})],
        {"string": None, "long": 9},
    )


def test_a_union_grows_by_members_and_a_type_alone_does_not_become_one() -> None:
    narrow, wide = (mapped(record(field("u", ["string", "long", *more]))) for more in ((), (CLICK,)))
    assert is_growing(wide, shape_of(narrow))
    assert not is_growing(narrow, shape_of(wide))
    (value,) = encoded(record(field("u", ["string", "long"])), [{"u": 3}])
    rows = decode([value], narrow, shape_of(wide)).rows.column("u").to_pylist()
    assert rows == [{"string": None, "long": 3, "Click": None}]
    with pytest.raises(UnsupportedSchemaError, match="field u is struct"):
        is_growing(narrow, shape_of(mapped(record(field("u", "string")))))


def test_a_value_of_a_union_of_records_has_the_row_of_its_record() -> None:
    other = {
        "type": "record",
        "name": "Buy",
        "fields": [field("price", DECIMAL), field("click", "web.Click")],
    }
    union = ["null", CLICK, other, "string"]
    values = encoded(
        union,
        [("web.Click", {"at": 1}), ("Buy", {"price": decimal.Decimal(1), "click": {"at": 2}}), None, "a"],
    )
    writer = event_schema(7, json.loads(json.dumps(union)))
    shape = grown(TableShape(columns=pa.schema([])), writer)
    assert not is_growing(writer.named(shape.columns), shape)
    found = decode([*values[::-1], b"", b"\x7f", b"\x08"], writer, shape)
    assert found.rows.to_pylist() == [
        {"at": 7, "price": decimal.Decimal(1), "click": {"at": 2}},
        {"at": 1, "price": None, "click": None},
    ]
    assert found.kept.tolist() == [2, 3]
    assert found.bad == {
        0: "schema 7: an event's schema is an Avro record, string is not",
        1: "schema 7: an event's schema is an Avro record, null is not",
        4: "schema 7: the value has no branch of the union",
        5: "schema 7: the value has no branch of the union",
        6: "schema 7: the value has no branch of the union",
    }


def test_a_record_of_a_union_that_no_column_holds_costs_its_own_values() -> None:
    retyped = {"type": "record", "name": "Buy", "fields": [field("at", "string")]}
    writer = event_schema(7, [CLICK, retyped])
    shape = shape_of(mapped(CLICK))
    assert not is_growing(writer, shape)
    found = decode(encoded([CLICK, retyped], [("Buy", {"at": "x"}), ("web.Click", {"at": 1})]), writer, shape)
    assert found.rows.to_pylist() == [{"at": 1}]
    assert "field at is string, but the table's column is int32" in found.bad[0]
    with pytest.raises(UnsupportedSchemaError, match="field at is"):
        is_growing(event_schema(7, [retyped]), shape)


def test_a_union_without_a_record_is_refused() -> None:
    with pytest.raises(UnsupportedSchemaError, match=r"no branch .* string is not"):
        event_schema(7, ["null", "string"])


def records_of(values: list[bytes | None]) -> RecordColumns:
    data = b"".join(value or b"" for value in values) + bytes(64)
    sizes = np.array([-1 if value is None else len(value) for value in values], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0))[:-1]]).astype(np.int64)
    nothing = np.full(len(values), -1, dtype=np.int64)
    return RecordColumns(
        data, np.arange(len(values)), nothing, nothing, nothing, starts, sizes, starts, starts
    )


def test_schema_ids_are_read_from_frames_and_only_from_frames() -> None:
    values = [
        b"\x00\x00\x00\x00\x07abc",
        b"\x00\x7f\xff\xff\xff",
        b"\x01\x00\x00\x00\x07",
        b"\x00\x00",
        None,
        b"",
    ]
    ids = schema_ids(records_of(values)).tolist()
    assert ids == [7, 0x7FFFFFFF, NO_SCHEMA, NO_SCHEMA, NO_SCHEMA, NO_SCHEMA]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [(None, "tombstone"), (b"\x00", "has 1 bytes"), (b"garbage", "begins with byte 103")],
)
def test_a_value_without_frame_says_why(value: bytes | None, sentence: str) -> None:
    assert sentence in no_frame_reason(value)


def test_columns_have_the_types_that_iceberg_stores() -> None:
    types = {item.name: item.type for item in mapped(record(*SLOW)).table_fields}
    assert types["header"].field("time").type == pa.timestamp("us", "UTC")
    assert types["at"] == pa.time64("us")
    assert types["price"] == pa.decimal128(6, 2)
    assert types["id"] == pa.string()
