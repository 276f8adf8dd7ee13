"""What an event's fields are called as columns: never like another, and always the same."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.load.avro_types import writer_schema
from headrace.load.decode import TableShape, conform, is_growing
from headrace.load.names import RESERVED, column_of, distinct, spell

name = st.one_of(
    st.sampled_from(sorted(RESERVED)),
    st.sampled_from(
        ["path", "Path", "PATH", "pAth", "path_capitals_1", "Path_capitals_1", "_FILE", "_file_"]
    ),
    st.text("aAb_01", min_size=1, max_size=4),
).flatmap(lambda text: st.sampled_from([text, f"{text}_", spell(text)]))


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("path", "path"),
        ("_id", "_id"),
        ("_file", "_file_"),
        ("_File", "_File_"),
        ("_file_", "_file__"),
        ("_topic_partition", "_topic_partition_"),
        ("_partition", "_partition_"),
        ("_key", "_key_"),
        ("Path_capitals_1", "Path_capitals_1_"),
    ],
)
def test_a_field_has_its_own_name_unless_that_is_reserved(field: str, column: str) -> None:
    assert column_of(field, is_part=False) == column


def test_a_part_of_a_column_may_have_a_reserved_name() -> None:
    assert column_of("_file", is_part=True) == "_file"


@given(st.lists(st.lists(name, unique=True, max_size=5), max_size=5))
def test_columns_never_differ_in_case_alone_and_a_field_keeps_its_column(schemas: list[list[str]]) -> None:
    columns: list[str] = []
    of: dict[str, str] = {}
    for fields in schemas:
        for field, column in zip(fields, distinct(fields, columns), strict=True):
            assert of.setdefault(field, column) == column
            columns += [column] if column not in columns else []
    assert len({column.lower() for column in columns}) == len(columns) == len(of)
    assert not {column.lower() for column in columns} & RESERVED
    assert all(re.fullmatch(r"\w+", column) for column in columns)


def record(*fields: dict[str, Any], name: str = "E") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def test_values_and_defaults_go_to_the_columns_of_their_fields() -> None:
    inside = record({"name": "x", "type": "int"}, {"name": "X", "type": "int", "default": 5}, name="Inside")
    older = record({"name": "Path", "type": "string"}, {"name": "_file", "type": "string", "default": "f"})
    newer = record(
        {"name": "path", "type": "string", "default": "p"},
        {"name": "Path", "type": "string"},
        {"name": "in", "type": inside, "default": {"x": 1, "X": 2}},
        {"name": "many", "type": {"type": "array", "items": "Inside"}, "default": []},
    )
    first = writer_schema(1, older).named(pa.schema([]))
    assert first.table_fields.names == ["Path", "_file_"]
    second = writer_schema(2, newer).named(first.table_fields)
    assert second.table_fields.names == ["path_capitals_0", "Path", "in", "many"]
    assert [part.name for part in second.table_fields.field("in").type] == ["x", "X_capitals_1"]
    columns = pa.schema([*first.table_fields, *(item for item in second.table_fields if item.name != "Path")])
    shape = TableShape(columns=columns, defaults={**second.defaults, **first.defaults})
    assert not is_growing(second, shape)

    old_rows = pa.StructArray.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["Path", "_file"])
    assert conform(old_rows, first.named(columns), shape).to_pylist() == [
        {"Path": "a", "_file_": "b", "path_capitals_0": "p", "in": {"x": 1, "X_capitals_1": 2}, "many": []}
    ]
    values = [{"path": "1", "Path": "2", "in": {"x": 3, "X": 4}, "many": [{"x": 5, "X": 6}]}]
    new_rows = pa.array(values, type=writer_schema(2, newer).mapped.physical)
    assert conform(new_rows, second.named(columns), shape).to_pylist() == [
        {
            "Path": "2",
            "_file_": "f",
            "path_capitals_0": "1",
            "in": {"x": 3, "X_capitals_1": 4},
            "many": [{"x": 5, "X_capitals_1": 6}],
        }
    ]


def test_a_default_that_becomes_known_later_makes_the_table_grow_and_the_first_one_stays() -> None:
    bare = writer_schema(1, record({"name": "zone", "type": "string"}))
    shape = TableShape(columns=bare.table_fields)
    with_default = writer_schema(2, record({"name": "zone", "type": "string", "default": "eu"}))
    assert is_growing(with_default, shape)
    assert not is_growing(with_default, TableShape(columns=bare.table_fields, defaults=with_default.defaults))
    null_first = writer_schema(3, record({"name": "zone", "type": ["null", "string"], "default": None}))
    assert null_first.defaults["zone"].to_pylist() == [None]
