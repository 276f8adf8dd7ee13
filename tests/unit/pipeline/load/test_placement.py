"""A field that was of one type becomes one of several, and the other way: its values keep their column, or go to their member."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from avro_kit import decoded_in, encoded, field, mapped, record, shape_of

from headrace.load.avro_types import UnsupportedSchemaError
from headrace.load.decode import Decoded, TableShape, decode, grown, is_growing

CLICK = {"type": "record", "name": "web.Click", "fields": [field("at", "int")]}
VIEW = {"type": "record", "name": "web.View", "fields": [field("of", "string")]}
SIZE = {"type": "enum", "name": "Size", "symbols": ["S", "L"]}
DATE = {"type": "int", "logicalType": "date"}


EMPTY = TableShape(columns=pa.schema([]))


def shape_after(*kinds: Any) -> TableShape:
    """Return the shape of a table that got events whose field `u` was of each of these types in turn."""
    shape = EMPTY
    for kind in kinds:
        shape = grown(shape, mapped(record(field("u", kind))))
    return shape


def written(kind: Any, values: list[Any], shape: TableShape) -> Decoded:
    schema = record(field("u", kind))
    return decoded_in(shape, schema, [{"u": value} for value in values])


def rows(kind: Any, values: list[Any], shape: TableShape) -> list[Any]:
    found: list[Any] = written(kind, values, shape).rows.column("u").to_pylist()
    return [_set(value) for value in found]


def _set(value: Any) -> Any:
    """Return a struct without what is not set in it."""
    return (
        {name: part for name, part in value.items() if part is not None} if isinstance(value, dict) else value
    )


@pytest.mark.parametrize(
    ("alone", "branches", "given", "kept"),
    [
        ("string", ["null", "string", "long"], ["a", 5, None], ["a", None]),
        (["null", "string"], ["long", "string"], ["a", 5], ["a"]),
        ("int", ["int", "string", "long"], [1, 1 << 40, "a"], [1, 1 << 40]),
        ("long", ["null", "string", "int"], [7, "a"], [7]),
        ("double", ["double", "float", "string"], [1.5, "a"], [1.5]),
        ("string", ["null", SIZE, "string", "long"], [("test.Size", "L"), "x", 3], ["L", "x"]),
        ("bytes", ["bytes", "string", "long"], [b"\xff", "a", 3], [b"\xff", b"a"]),
        (DATE, ["string", DATE], [datetime.date(2026, 1, 2), "a"], [datetime.date(2026, 1, 2)]),
    ],
)
def test_a_column_of_one_type_takes_the_values_of_a_union_that_it_can_hold(
    alone: Any, branches: list[Any], given: list[Any], kept: list[Any]
) -> None:
    assert rows(branches, given, shape_after(alone, branches)) == kept


def test_a_value_of_another_branch_is_bad_and_its_reason_says_what_to_do() -> None:
    found = written(["null", "string", "long"], ["a", 5, "b"], shape_after("string"))
    assert found.kept.tolist() == [0, 2]
    assert found.bad == {
        1: "schema 7: field u is a value of long, but the table's column is string: "
        "rename the column, and the field gets its own"
    }


def test_a_decimal_of_a_union_keeps_its_column() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    price = decimal.Decimal("1.25")
    assert rows(["null", money, "string"], [price, "free", None], shape_after(money)) == [price, None]


def test_a_union_without_the_columns_type_has_no_column() -> None:
    writer, shape = mapped(record(field("u", ["string", "boolean"]))), shape_after("long")
    with pytest.raises(
        UnsupportedSchemaError, match=r"field u is struct.*column is int64: rename the column"
    ):
        is_growing(writer.named(shape.columns), shape)


@pytest.mark.parametrize(
    ("branches", "alone", "given", "kept"),
    [
        (["null", "string", "long"], "string", ["a"], [{"string": "a"}]),
        (["string", "long"], ["null", "long"], [3, None], [{"long": 3}, None]),
        (["string", "long"], "double", [1.5], [{"double": 1.5}]),
        (["string", "long"], DATE, [datetime.date(2026, 1, 2)], [{"int": datetime.date(2026, 1, 2)}]),
        (["string", CLICK], CLICK, [{"at": 1}], [{"Click": {"at": 1}}]),
        ([CLICK, VIEW], CLICK, [{"at": 1}], [{"Click": {"at": 1}}]),
        (["string", "long"], CLICK, [{"at": 1}], [{"Click": {"at": 1}}]),
        (["string", SIZE], SIZE, ["L"], [{"Size": "L"}]),
        (
            ["long", {"type": "array", "items": "int"}],
            {"type": "array", "items": "int"},
            [[1]],
            [{"array": [1]}],
        ),
    ],
)
def test_a_type_alone_goes_to_its_member_of_a_unions_struct(
    branches: list[Any], alone: Any, given: list[Any], kept: list[Any]
) -> None:
    assert rows(alone, given, shape_after(branches, alone)) == kept


def test_a_member_whose_name_needed_its_namespace_is_found_again() -> None:
    one, other = ({**CLICK, "name": f"{at}.Click"} for at in ("a", "b"))
    assert rows(other, [{"at": 1}], shape_after(["null", one, other], other)) == [{"b_Click": {"at": 1}}]


def test_a_record_keeps_its_fields_beside_the_members_of_a_union_that_it_joins() -> None:
    either = ["null", CLICK, VIEW, "string"]
    shape = shape_after(CLICK, either, CLICK)
    given: list[Any] = [("web.Click", {"at": 1}), ("web.View", {"of": "p"}), "a", None]
    assert rows(either, given, shape) == [{"at": 1}, {"View": {"of": "p"}}, {"string": "a"}, None]
    assert rows(CLICK, [{"at": 2}], shape) == [{"at": 2}]


def test_a_record_whose_fields_are_called_as_types_stays_a_record() -> None:
    value = {"type": "record", "name": "Value", "fields": [field("string", "string"), field("long", "long")]}
    assert rows(value, [{"string": "a", "long": 3}], shape_after(value)) == [{"string": "a", "long": 3}]


def test_unions_in_lists_maps_and_unions_keep_their_columns() -> None:
    several, one = ["string", "long"], "string"
    for kind in ("array", "map"):
        key = {"array": "items", "map": "values"}[kind]
        alone, either = {"type": kind, key: one}, {"type": kind, key: several}
        fitting, odd = (["a"], ["a", 3]) if kind == "array" else ({"k": "a"}, {"k": 3})
        found = written(either, [fitting, odd], shape_after(alone, either))
        assert found.kept.tolist() == [0]
        inside = "u[]" if kind == "array" else "u{}"
        assert f"field {inside} is a value of long" in found.bad[1]
        (row,) = written(alone, [fitting], shape_after(either)).rows.column("u").to_pylist()
        member = {"string": "a", "long": None}
        assert row == ([member] if kind == "array" else [("k", member)])
    nested = {"type": "record", "name": "R", "fields": [field("x", several)]}
    before = {"type": "record", "name": "R", "fields": [field("x", one)]}
    found = written(
        ["null", nested, "long"], [{"x": "a"}, {"x": 3}, 5], shape_after(["null", before, "long"], "long")
    )
    assert [_set(value) for value in found.rows.column("u").to_pylist()] == [{"R": {"x": "a"}}, {"long": 5}]


def test_defaults_go_where_values_go() -> None:
    bare = record(field("n", "int"))
    (old,) = encoded(bare, [{"n": 1}])
    for first, then, default in (
        (field("u", "string"), field("u", ["string", "long"], default="x"), "x"),
        (field("u", ["string", "long"]), field("u", "string", default="x"), {"string": "x", "long": None}),
        (field("u", "string"), field("u", ["long", "string"], default=3), None),
    ):
        shape = grown(EMPTY, mapped(record(field("n", "int"), first)))
        shape = grown(shape, mapped(record(field("n", "int"), then)))
        (row,) = decode([old], mapped(bare).named(shape.columns), shape).rows.to_pylist()
        assert row == {"n": 1, "u": default}
        again = mapped(record(field("n", "int"), then)).named(shape.columns)
        assert not is_growing(again, shape)


def test_defaults_inside_a_record_follow_it_to_its_member() -> None:
    more = {**CLICK, "fields": [*CLICK["fields"], field("zone", "string", default="eu")]}
    shape = shape_after(["string", CLICK], more)
    assert rows(["string", CLICK], [{"at": 1}], shape) == [{"Click": {"at": 1, "zone": "eu"}}]


def test_a_placed_field_may_have_another_name_too() -> None:
    table = grown(EMPTY, mapped(record(field("_file", "string"))))
    schema = record(field("_file", ["string", "long"]))
    assert decoded_in(table, schema, [{"_file": "a"}]).rows.to_pylist() == [{"_file_": "a"}]
    assert shape_of(mapped(schema)).columns.names == ["_file"]
