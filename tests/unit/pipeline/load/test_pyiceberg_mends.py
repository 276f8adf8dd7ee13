"""What pyiceberg gets wrong of nested columns is right where headrace reads and rewrites tables."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import _StrictMetricsEvaluator
from pyiceberg.table import Table
from pyiceberg.types import TimestamptzType
from pyiceberg.utils.datetime import datetime_to_micros

from headrace.load import tables

RECORD = pa.struct([("x", pa.int32())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("header", pa.struct([("time", pa.timestamp("us", "UTC"))])),
        ("items", pa.list_(RECORD)),
        ("parts", pa.map_(pa.string(), RECORD)),
        ("tags", pa.list_(pa.string())),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "items": None, "parts": None, "tags": None},
    {"id": 2, "items": [], "parts": [], "tags": []},
    {"id": 3, "items": [{"x": 1}, None], "parts": [("a", {"x": 1}), ("b", None)], "tags": ["a"]},
    {"id": 4, "items": None, "parts": [("c", {"x": 2})], "tags": None},
]
TIMES = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)]


def table_of_rows(folder: Path) -> Table:
    catalog = tables.open_catalog(str(folder))
    catalog.create_namespace_if_not_exists(tables.NAMESPACE)
    table = catalog.create_table(f"{tables.NAMESPACE}.nested", SCHEMA)
    rows = [{**row, "header": {"time": time}} for row, time in zip(ROWS, TIMES, strict=True)]
    table.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    return table


def without_header(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.drop_columns("header").to_pylist(), key=lambda row: row["id"])


def test_a_list_or_map_of_records_that_is_null_stays_null(tmp_path: Path) -> None:
    table = table_of_rows(tmp_path)
    assert without_header(table.scan().to_arrow()) == ROWS
    table.delete("id = 2")
    assert without_header(table.scan().to_arrow()) == [ROWS[0], *ROWS[2:]]


def test_a_part_of_a_record_that_a_file_has_bounds_for_is_compared_with_them(tmp_path: Path) -> None:
    table = table_of_rows(tmp_path)
    (task,) = table.scan().plan_files()
    time = table.schema().find_field("header.time")
    # As Spark and the load write them: pyiceberg gives them none.
    for bounds, at in ((task.file.lower_bounds, TIMES[0]), (task.file.upper_bounds, TIMES[-1])):
        bounds[time.field_id] = to_bytes(TimestamptzType(), datetime_to_micros(at))
    for since, are_all in (("2026-01-01", True), ("2026-01-03", False)):
        later = parse(f"header.time >= '{since}T00:00:00+00:00'")
        assert _StrictMetricsEvaluator(table.schema(), later).eval(task.file) is are_all
