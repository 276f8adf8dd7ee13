"""Tables of an older release get today's columns without a file being touched, and read the same before and after."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from headrace.audit.ledger.ledger import Ledger
from headrace.audit.warehouse import Warehouse
from headrace.broker.wire.partitions import TopicPartition
from headrace.load import commit, history, query, tables
from headrace.load.avro_types import writer_schema
from headrace.load.decode import is_growing
from headrace.load.defaults import as_properties
from headrace.load.leftovers import Run
from headrace.load.task import RangeResult, TaskResult
from headrace.load.upgrade import upgrade
from headrace.load.write import FileWriter, WrittenFile, target_of

FORMER_OWN = [
    pa.field("_datacenter", pa.string(), nullable=False),
    pa.field("_topic", pa.string(), nullable=False),
    pa.field("_partition", pa.int32(), nullable=False),
    pa.field("_offset", pa.int64(), nullable=False),
    pa.field("_timestamp", pa.timestamp("us", "UTC"), nullable=False),
]
HEADER = pa.struct([("time", pa.timestamp("us", "UTC")), ("producer", pa.string()), ("sequence", pa.int64())])
FORMER_EVENTS = [*FORMER_OWN, pa.field("header", HEADER), pa.field("path", pa.string())]
FORMER_LETTERS = [
    *FORMER_OWN,
    pa.field("_last_offset", pa.int64(), nullable=False),
    pa.field("_reason", pa.string(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
]
ASKED = "SELECT _topic_partition, _offset, path FROM warehouse.pageviews ORDER BY 2"
LETTERS_ASKED = "SELECT _topic_partition, _offset FROM warehouse.dead_letter"


def former_table(catalog: Catalog, name: str, columns: list[pa.Field]) -> Table:
    catalog.create_namespace_if_not_exists(tables.NAMESPACE)
    return catalog.create_table(
        f"{tables.NAMESPACE}.{name}", pa.schema(columns), properties=tables.TABLE_PROPERTIES
    )


def written(table: Table, run: Run, rows: list[dict[str, Any]]) -> WrittenFile | None:
    target = target_of(table, run.folder_of(table))
    writer = FileWriter(target)
    columns = {name: [row.get(name) for row in rows] for name in target.columns.names}
    writer.write(pa.table(columns, schema=target.columns))
    return writer.close()


def columns_of(name: str) -> pa.Schema:
    return tables.DEAD_LETTER_TABLE if name == tables.DEAD_LETTER else tables.EVENT_TABLE


def row(partition_column: str, offset: int, **more: Any) -> dict[str, Any]:
    own = {"_datacenter": "dc-east", "_topic": "pageviews", partition_column: 3, "_offset": offset}
    return {**own, "_timestamp": 0, **more}


def event(partition_column: str, offset: int) -> dict[str, Any]:
    header = {"time": 1_700_000_000_000_000, "producer": "p", "sequence": offset}
    return row(partition_column, offset, header=header, path="/")


def load(catalog: Catalog, run: Run, partition_column: str, first: int, following: int, dead: int) -> None:
    """Commit what a load would of offsets [first, following), of which one is a dead letter."""
    table = tables.load_table(catalog, "pageviews")
    letters = tables.load_table(catalog, tables.DEAD_LETTER)
    result = RangeResult(
        topic="dc-east.pageviews",
        partition=3,
        first_offset=first,
        next_offset=following,
        row_count=following - first - 1,
        dead_letter_count=1,
        size_bytes=1,
    )
    rows = [event(partition_column, offset) for offset in range(first, following) if offset != dead]
    buried = [row(partition_column, dead, _last_offset=dead, _reason="bad", value=b"x")]
    commit.commit(
        table,
        [
            TaskResult(
                ranges=(result,),
                rows=written(table, run, rows),
                dead_letters=written(letters, run, buried),
                worker_pid=1,
            )
        ],
    )


@pytest.fixture
def former(catalog: Catalog, run: Run) -> Catalog:
    """A warehouse of an older release, whose dead letters have not followed their table yet."""
    former_table(catalog, tables.DEAD_LETTER, FORMER_LETTERS)
    former_table(catalog, "pageviews", FORMER_EVENTS)
    load(catalog, run, "_partition", 0, 4, dead=2)
    return catalog


def counted(catalog: Catalog) -> tuple[list[Any], dict[tuple[str, str], int], dict[Any, int]]:
    """Return what the audit finds in the tables: places with offsets, letters that are no events, and positions."""
    ledger = Ledger()
    Warehouse(catalog).read_into(ledger)
    found = sorted(
        (counter.place, parcel.first, parcel.next)
        for counter, parcels in ledger.copies.backlog.items()
        for parcel in parcels
    )
    return found, {key[1:]: number for key, number in ledger.foreign.items()}, dict(ledger.reach.loaded)


def test_an_older_table_reads_the_same_before_and_after_and_loading_goes_on(
    former: Catalog, run: Run
) -> None:
    before = counted(former)
    rows = [(3, offset, "/") for offset in (0, 1, 3)]
    assert query.connect(former).sql(ASKED).fetchall() == rows
    snapshots = [item.snapshot_id for item in tables.load_table(former, "pageviews").snapshots()]
    ids = ids_of(tables.load_table(former, "pageviews"))

    assert sorted(tables.upgrade_all(former)) == ["dead_letter", "pageviews"]
    assert tables.upgrade_all(former) == []
    table = tables.load_table(former, "pageviews")
    ids["_topic_partition"] = ids.pop("_partition")
    assert ids_of(table).items() >= ids.items()
    added = [item for item in ids_of(table).items() if item not in ids.items()]
    assert min(number for _, number in added) > max(ids.values())
    assert table.schema().find_field("_headers.element.value").field_id > max(ids.values())
    assert [item.name for item in table.schema().fields] == [*tables.EVENT_TABLE.names, "header", "path"]
    letters = tables.load_table(former, tables.DEAD_LETTER)
    assert [item.name for item in letters.schema().fields] == tables.DEAD_LETTER_TABLE.names
    assert [item.snapshot_id for item in table.snapshots()] == snapshots
    assert counted(former) == before
    assert query.connect(former).sql(ASKED).fetchall() == rows
    assert table.scan().to_arrow().column("_topic_partition").to_pylist() == [3, 3, 3]

    commit.settle(former, "pageviews")
    assert query.connect(former).sql(LETTERS_ASKED).fetchall() == [(3, 2)]
    assert counted(former) == before
    load(former, run, "_topic_partition", 4, 8, dead=6)
    commit.settle(former, "pageviews")
    rows += [(3, offset, "/") for offset in (4, 5, 7)]
    assert query.connect(former).sql(ASKED).fetchall() == rows
    assert query.connect(former).sql(f"{LETTERS_ASKED} ORDER BY 2").fetchall() == [(3, 2), (3, 6)]
    assert sum(parcel[2] - parcel[1] for parcel in counted(former)[0]) == 10
    assert history.positions(table.refresh()) == {TopicPartition("dc-east.pageviews", 3): 8}


def ids_of(table: Table) -> dict[str, int]:
    return {name: table.schema().find_field(name).field_id for name in table.schema().column_names}


def test_events_columns_that_nobody_else_can_read_get_their_other_names(catalog: Catalog) -> None:
    inside = pa.struct([("x", pa.int32()), ("X", pa.int32()), ("_pos", pa.int32())])
    former_table(
        catalog,
        "pageviews",
        [
            *FORMER_OWN,
            pa.field("_file", pa.string()),
            pa.field("_file_", pa.string()),
            pa.field("path", pa.string()),
            pa.field("Path", pa.string()),
            pa.field("_key", pa.string()),
            pa.field("_topic_partition", pa.string()),
            pa.field("list", pa.list_(inside)),
            pa.field("map", pa.map_(pa.string(), inside)),
        ],
    )
    table = tables.load_table(catalog, "pageviews")
    defaults = {"_file": pa.array(["f"]), "list[].X": pa.array([1], pa.int32()), "path": pa.array(["p"])}
    table.transaction().set_properties(as_properties(defaults)).commit_transaction()
    before = ids_of(table)

    assert tables.upgrade_all(catalog) == ["pageviews"]
    table = tables.load_table(catalog, "pageviews")
    after = ids_of(table)
    moved = {
        "_partition": "_topic_partition",
        "_file": "_file_",
        "_file_": "_file__",
        "path": "path",
        "Path": "Path_capitals_1",
        "_key": "_key_",
        "_topic_partition": "_topic_partition_",
        "list.element.x": "list.element.x",
        "list.element.X": "list.element.X_capitals_1",
        "list.element._pos": "list.element._pos",
        "map.value.X": "map.value.X_capitals_1",
    }
    assert {old: before[old] for old in moved} == {old: after[new] for old, new in moved.items()}
    found = tables.shape_of(table).defaults
    assert {path: value.to_pylist() for path, value in found.items()} == {
        "_file_": ["f"],
        "list[].X_capitals_1": [1],
        "path": ["p"],
    }
    kinds = {"type": "record", "name": "K", "fields": [{"name": "X", "type": "int"}]}
    fields: list[dict[str, Any]] = [
        {"name": name, "type": "string"} for name in ("Path", "_file_", "_file", "_key", "_topic_partition")
    ]
    fields.append({"name": "map", "type": {"type": "map", "values": kinds}})
    schema = writer_schema(1, {"type": "record", "name": "E", "fields": fields}).named(
        tables.shape_of(table).columns
    )
    assert not is_growing(schema, tables.shape_of(table))


def test_of_two_drivers_that_upgrade_at_once_one_is_refused_and_finds_it_done(former: Catalog) -> None:
    fast, slow = (tables.load_table(former, "pageviews") for _ in range(2))
    assert upgrade(fast, tables.EVENT_TABLE)
    with pytest.raises(CommitFailedException):
        upgrade(slow, tables.EVENT_TABLE)
    assert not upgrade(tables.load_table(former, "pageviews"), tables.EVENT_TABLE)


def test_a_start_that_loses_the_race_takes_what_the_winner_made(
    former: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_table = tables.load_table

    def overtaken(catalog: Catalog, name: str) -> Table:
        table = load_table(catalog, name)
        upgrade(load_table(catalog, name), columns_of(name))
        return table

    monkeypatch.setattr(tables, "load_table", overtaken)
    assert tables.upgrade_all(former) == []
    assert "_topic_partition" in load_table(former, "pageviews").schema().column_names


def test_a_table_that_no_load_made_is_left_alone(catalog: Catalog) -> None:
    theirs = former_table(catalog, "theirs", [pa.field("_partition", pa.int32(), nullable=False)])
    assert tables.upgrade_all(catalog) == []
    assert tables.load_table(catalog, "theirs").metadata_location == theirs.metadata_location


def test_a_query_finds_columns_by_id_whatever_their_files_call_them(former: Catalog) -> None:
    table = tables.load_table(former, "pageviews")
    with table.update_schema() as update:
        update.rename_column("path", "url").rename_column("header.producer", "maker")
    with table.update_schema() as update:
        update.add_column("path", LongType()).add_column(("header", "producer"), StringType())
    found = query.connect(former).sql(
        "SELECT url, path, header.maker, header.producer FROM warehouse.pageviews"
    )
    assert found.fetchall() == [("/", None, "p", None)] * 3


def test_a_query_looks_at_the_files_of_the_tables_that_it_names_alone(former: Catalog) -> None:
    connection = query.connect(former, "SELECT * FROM warehouse.Dead_Letter")
    assert connection.sql("DESCRIBE warehouse.pageviews").fetchall()[2][0] == "_topic_partition"
    assert connection.sql("SELECT count(*) FROM warehouse.pageviews").fetchall() == [(0,)]
