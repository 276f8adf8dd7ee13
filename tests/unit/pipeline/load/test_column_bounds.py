"""By which columns a query leaves files of a load unopened."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from load_kit import TOPIC, own
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.load import commit, tables
from headrace.load.leftovers import Run
from headrace.load.query import connect
from headrace.load.task import RangeResult, TaskResult
from headrace.load.write import FileWriter, target_of

DAY_US = 86_400_000_000
YEAR_50000_US = 1_515_700_000_000_000_000
TIME = pa.timestamp("us", "UTC")
INNER = pa.struct([("price", pa.decimal128(12, 2)), ("ratio", pa.float64()), ("text", pa.string())])
HEADER = pa.struct(
    [
        ("time", TIME),
        ("server", pa.string()),
        ("sequence", pa.int64()),
        ("day", pa.date32()),
        ("clock", pa.time64("us")),
        ("inner", INNER),
        ("names", pa.list_(pa.string())),
        ("parts", pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
    ]
)
EVENT = pa.schema([*tables.EVENT_TABLE, pa.field("header", HEADER), pa.field("logged_at", TIME)])


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return tables.ensure_table(catalog, "pageviews", EVENT)


def load(table: Table, run: Run, first: int, headers: Sequence[dict[str, Any] | None], **columns: Any) -> Any:
    """Commit a file of one row a header; returns its statistics."""
    target = target_of(table, run.folder_of(table))
    rows: list[dict[str, Any]] = [
        own(first + number) | {"header": header} | columns for number, header in enumerate(headers)
    ]
    writer = FileWriter(target)
    for row in rows:
        values = {name: [row.get(name)] for name in target.columns.names}
        writer.write(pa.table(values, schema=target.columns))
        writer._flush()  # a row group each
    file = writer.close()
    assert file is not None
    result = RangeResult(
        topic=TOPIC,
        partition=0,
        first_offset=first,
        next_offset=first + len(rows),
        row_count=len(rows),
        dead_letter_count=0,
        size_bytes=1,
    )
    commit.commit(table.refresh(), [TaskResult(ranges=(result,), rows=file, dead_letters=None, worker_pid=1)])
    return file.statistics


def offsets(table: Table, row_filter: str) -> tuple[int, list[int]]:
    """How many files a query opens, and what it finds."""
    scan = table.refresh().scan(row_filter=row_filter)
    return len(list(scan.plan_files())), sorted(scan.to_arrow().column("_offset").to_pylist())


def test_a_query_by_a_part_of_a_record_opens_the_files_that_may_have_it(table: Table, run: Run) -> None:
    for day in range(3):
        headers = [
            {
                "time": day * DAY_US + number,
                "server": f"web-{day}" + "x" * 40,
                "sequence": day * 10 + number,
                "day": day,
                "clock": day * 1000,
                "inner": {"price": Decimal(f"{day}.5"), "ratio": day + 0.5, "text": None},
            }
            for number in range(2)
        ]
        load(table, run, day * 3, [*headers, None])
    for row_filter in (
        "header.time >= '1970-01-02T00:00:00+00:00' and header.time < '1970-01-03T00:00:00+00:00'",
        f"header.server = 'web-1{'x' * 40}'",
        "header.sequence >= 10 and header.sequence < 12",
        "header.day = '1970-01-02'",
        "header.inner.price = '1.50'",
        "header.inner.ratio > 1 and header.inner.ratio < 2",
    ):
        assert offsets(table, row_filter) == (1, [3, 4]), row_filter
    assert offsets(table, "header.sequence is null") == (3, [2, 5, 8])
    assert offsets(table, "header.inner.text is null")[0] == 3


def test_lists_maps_and_what_has_no_value_have_no_bounds(table: Table, run: Run) -> None:
    found = load(
        table,
        run,
        0,
        [{"time": 5, "names": ["a"], "parts": [("a", {"x": 1})]}, None],
    )
    names = {table.schema().find_column_name(field_id) for field_id in found["lower_bounds"]}
    assert {name for name in names if name and name.startswith("header")} == {"header.time"}
    assert found["lower_bounds"].keys() == found["upper_bounds"].keys()


def test_the_tables_properties_may_want_less(table: Table, run: Run) -> None:
    prefix = "write.metadata.metrics"
    wanted = {
        f"{prefix}.default": "counts",
        f"{prefix}.column.header.time": "full",
        f"{prefix}.column.header.server": "truncate(2)",
        f"{prefix}.column.logged_at": "none",
    }
    table.transaction().set_properties(wanted).commit_transaction()
    found = load(table.refresh(), run, 0, [{"time": 5, "server": "web-1", "sequence": 1}], logged_at=7)
    bounds = {
        table.schema().find_column_name(field_id): value for field_id, value in found["upper_bounds"].items()
    }
    assert bounds == {"header.time": (5).to_bytes(8, "little"), "header.server": b"wf"}


def test_a_time_that_python_lacks_is_a_bound_like_others(table: Table, run: Run, catalog: Catalog) -> None:
    load(table, run, 0, [{"time": YEAR_50000_US, "day": 2**30, "clock": -1}], logged_at=-YEAR_50000_US)
    load(table, run, 1, [{"time": 0, "day": 0, "clock": 1}], logged_at=0)
    later, earlier = "header.time > '9999-01-01T00:00:00+00:00'", "logged_at < '0001-01-02T00:00:00+00:00'"
    for row_filter in (later, earlier, f"{later} and {earlier}", "header.day > '9999-01-01'"):
        assert len(list(table.refresh().scan(row_filter=row_filter).plan_files())) == 1
    sql = "SELECT _offset FROM pageviews WHERE header.time > '9999-01-01' AND logged_at < '0001-01-02'"
    assert connect(catalog, sql).sql(sql).fetchall() == [(0,)]


def test_a_file_that_is_rewritten_keeps_its_bounds(table: Table, run: Run) -> None:
    load(table, run, 0, [{"time": YEAR_50000_US}, {"time": 1}, {"time": 2}], logged_at=YEAR_50000_US)
    table.refresh().delete("header.time < '1970-01-01T00:00:00.000002+00:00'")
    assert offsets(table, "header.time >= '1970-01-01T00:00:00.000002+00:00'")[0] == 1
    assert offsets(table, "header.time < '1970-01-01T00:00:00.000002+00:00'") == (0, [])
