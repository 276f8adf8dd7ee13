"""What tests of a load's tables share: what a task would have written, and what is in the tables then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import StaticTable, Table

from headrace.load import commit, history, tables
from headrace.load.leftovers import Run
from headrace.load.storage import local_path
from headrace.load.task import RangeResult, TaskResult
from headrace.load.write import FileWriter, WrittenFile, target_of

TOPIC = "dc-east.pageviews"


def own(offset: int) -> dict[str, Any]:
    return {
        "_datacenter": "dc-east",
        "_topic": "pageviews",
        "_topic_partition": 0,
        "_offset": offset,
        "_timestamp": 0,
    }


def written(table: Table, run: Run, rows: list[dict[str, Any]]) -> WrittenFile | None:
    target = target_of(table, run.folder_of(table))
    writer = FileWriter(target)
    columns = {name: [row.get(name) for row in rows] for name in target.columns.names}
    writer.write(pa.table(columns, schema=target.columns))
    return writer.close()


def attempt(
    catalog: Catalog, run: Run, first: int, following: int, dead: tuple[int, ...] = ()
) -> list[TaskResult]:
    """Do what a task would for offsets [first, following), of which `dead` do not decode."""
    table = tables.ensure_table(catalog, "pageviews")
    letters = tables.ensure_table(catalog, tables.DEAD_LETTER, tables.DEAD_LETTER_TABLE)
    result = RangeResult(
        topic=TOPIC,
        partition=0,
        first_offset=first,
        next_offset=following,
        row_count=following - first - len(dead),
        dead_letter_count=len(dead),
        size_bytes=1,
    )
    rows = [own(offset) for offset in range(first, following) if offset not in dead]
    buried = [own(offset) | {"_last_offset": offset, "_reason": "bad"} for offset in dead]
    return [
        TaskResult(
            ranges=(result,),
            rows=written(table, run, rows),
            dead_letters=written(letters, run, buried),
            worker_pid=1,
        )
    ]


def offsets_in(catalog: Catalog, name: str) -> list[int]:
    return sorted(tables.load_table(catalog, name).scan().to_arrow().column("_offset").to_pylist())


def load(
    catalog: Catalog, run: Run, first: int, following: int, dead: tuple[int, ...] = ()
) -> list[TaskResult]:
    """Load offsets [first, following) as a round does."""
    table = commit.settle(catalog, "pageviews")
    results = attempt(catalog, run, first, following, dead)
    commit.commit(table, results)
    commit.settle(catalog, "pageviews")
    return results


def letter_at(offset: int, value: bytes | None, reason: str, **fields: Any) -> dict[str, Any]:
    return {**own(offset), "_last_offset": offset, "_reason": reason, "value": value, **fields}


def bury(catalog: Catalog, run: Run, following: int, letters: list[dict[str, Any]]) -> None:
    """Load up to an offset, so that these are all there is since the load's last position."""
    table = commit.settle(catalog, "pageviews")
    buried = tables.ensure_table(catalog, tables.DEAD_LETTER, tables.DEAD_LETTER_TABLE)
    result = RangeResult(
        topic=TOPIC,
        partition=0,
        first_offset=max(history.positions(table).values(), default=0),
        next_offset=following,
        row_count=0,
        dead_letter_count=len(letters),
        size_bytes=1,
    )
    file = written(buried, run, letters)
    commit.commit(table, [TaskResult(ranges=(result,), rows=None, dead_letters=file, worker_pid=1)])
    commit.settle(catalog, "pageviews")


def rows_by_snapshot(table: Table) -> dict[int, list[int]]:
    """Return what every snapshot holds that the table's metadata or any older one in its log still knows."""
    locations = [table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)]
    rows: dict[int, list[int]] = {}
    for location in locations:
        known = StaticTable.from_metadata(location, dict(table.io.properties))
        for key in {item.snapshot_id for item in known.snapshots()} - rows.keys():
            rows[key] = sorted(known.scan(snapshot_id=key).to_arrow().column("_offset").to_pylist())
    return rows


def files_of(table: Table, *suffixes: str) -> set[Path]:
    """Return the files below a table's folder, by default all of Iceberg's."""
    folder = local_path(table.location())
    assert folder is not None
    wanted = suffixes or (".parquet", ".avro", ".json")
    return {path for path in folder.rglob("*") if path.suffix in wanted}


def file_of(results: list[TaskResult]) -> str:
    assert results[0].rows is not None
    return results[0].rows.path


def existing(results: list[TaskResult]) -> bool:
    path = local_path(file_of(results))
    return path is not None and path.exists()


def make_unreadable(catalog: Catalog, name: str) -> None:
    """Give a table a format and a type that pyiceberg does not know, as Spark can."""
    location = Path(catalog.load_table(f"warehouse.{name}").metadata_location.removeprefix("file://"))
    metadata = json.loads(location.read_text(encoding="utf-8"))
    metadata |= {"format-version": 3, "next-row-id": 0}
    metadata["schemas"][0]["fields"][0]["type"] = "variant"
    location.write_text(json.dumps(metadata), encoding="utf-8")
