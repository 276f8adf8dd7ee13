"""What the auditor makes of tables that are not all of events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from load_kit import make_unreadable
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from headrace.audit import warehouse
from headrace.audit.latency import SourcePartition
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.warehouse import Warehouse
from headrace.load.tables import UnreadableTableError

OWN = {"_datacenter": "dc-east", "_topic": "t", "_topic_partition": 0, "_offset": 0}
OWN_TYPES: list[tuple[str, pa.DataType]] = [
    ("_datacenter", pa.string()),
    ("_topic", pa.string()),
    ("_topic_partition", pa.int32()),
    ("_offset", pa.int64()),
]
HEADER = pa.struct(
    [
        ("time", pa.timestamp("us", "UTC")),
        ("server", pa.string()),
        ("service", pa.string()),
        ("producer", pa.string()),
        ("sequence", pa.int64()),
    ]
)
EVENT = {
    "time": datetime(2026, 1, 31, tzinfo=UTC),
    "server": "s",
    "service": "v",
    "producer": "p",
    "sequence": 0,
}
ODD: dict[str, tuple[list[tuple[str, Any]], dict[str, Any]]] = {
    "no_header": ([*OWN_TYPES, ("id", pa.int64())], {**OWN, "id": 7}),
    "another_header": ([*OWN_TYPES, ("header", pa.string())], {**OWN, "header": "x"}),
    "half_a_header": (
        [*OWN_TYPES, ("header", pa.struct([("time", pa.string()), ("producer", pa.string())]))],
        {**OWN, "header": {"time": "noon", "producer": "p"}},
    ),
    "no_loads": ([("anything", pa.int64())], {"anything": 1}),
}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = SqlCatalog("unit", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("warehouse")
    return catalog


def add(catalog: Catalog, name: str, types: list[tuple[str, Any]], row: dict[str, Any]) -> None:
    schema = pa.schema(types)
    table = catalog.create_table(f"warehouse.{name}", schema=schema)
    table.append(pa.Table.from_pylist([row], schema=schema))


def counted(ledger: Ledger) -> list[tuple[str, str, str, int]]:
    return [
        (counter.tier, counter.place.topic, producer, copies.count)
        for counter, parcel in ledger.copies.open_parcels()
        for producer, copies in parcel.copies.items()
    ]


@pytest.mark.parametrize("name", ODD)
def test_a_table_without_envelopes_costs_the_others_nothing(catalog: Catalog, name: str) -> None:
    add(catalog, name, *ODD[name])
    add(catalog, "t", [*OWN_TYPES, ("header", HEADER)], {**OWN, "header": EVENT})
    ledger = Ledger()
    assert Warehouse(catalog).read_into(ledger) == 2
    assert counted(ledger) == [("warehouse", "t", "p", 1)]


def test_a_copy_of_a_table_beside_it_doubles_nothing(catalog: Catalog) -> None:
    for name in ("t", "t_of_march"):
        add(catalog, name, [*OWN_TYPES, ("header", HEADER)], {**OWN, "header": EVENT})
    ledger = Ledger()
    Warehouse(catalog).read_into(ledger)
    assert counted(ledger) == [("warehouse", "t", "p", 1)]


def test_a_time_of_microseconds_is_of_its_millisecond(catalog: Catalog) -> None:
    before = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    add(catalog, "t", [*OWN_TYPES, ("header", HEADER)], {**OWN, "header": {**EVENT, "time": before}})
    ledger = Ledger()
    assert Warehouse(catalog).read_into(ledger) == 1
    assert [rows.time_ms.tolist() for rows in ledger.latencies.waiting] == [[-1]]


@pytest.mark.parametrize(("settled_after", "files"), [(timedelta(hours=23), 1), (timedelta(hours=25), 0)])
def test_files_of_settled_windows_are_not_read_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, settled_after: timedelta, files: int
) -> None:
    time = datetime(2026, 1, 31, tzinfo=UTC)
    types = [*OWN_TYPES, ("_timestamp", pa.timestamp("us", "UTC")), ("header", HEADER)]
    add(catalog, "t", types, {**OWN, "_timestamp": time, "header": EVENT})
    ledger = Ledger()
    ledger.on_loaded(SourcePartition("dc-east", "t", 0), 0, 1, 0)
    ledger.rebuilt = {("dc-east", "t"): round((time + settled_after).timestamp() * 1000)}
    read: list[object] = []

    def envelopes(_: object, task: object) -> list[object]:
        read.append(task)
        return []

    monkeypatch.setattr(warehouse, "_envelopes", envelopes)
    Warehouse(catalog).read_into(ledger)
    assert (len(read), len(ledger.files["t"])) == (files, 1)


def test_a_table_that_cannot_be_read_costs_the_others_nothing(catalog: Catalog) -> None:
    add(catalog, "t", [*OWN_TYPES, ("header", HEADER)], {**OWN, "header": EVENT})
    add(catalog, "theirs", *ODD["no_loads"])
    make_unreadable(catalog, "theirs")
    ledger = Ledger()
    assert Warehouse(catalog).read_into(ledger) == 1
    assert counted(ledger) == [("warehouse", "t", "p", 1)]


def test_a_table_that_cannot_be_read_any_longer_is_no_loss(catalog: Catalog) -> None:
    add(catalog, "t", [*OWN_TYPES, ("header", HEADER)], {**OWN, "header": EVENT})
    ledger = Ledger()
    Warehouse(catalog).read_into(ledger)
    make_unreadable(catalog, "t")
    with pytest.raises(UnreadableTableError, match=r"warehouse\.t cannot be read .*variant"):
        Warehouse(catalog).read_into(ledger)
    assert counted(ledger) == [("warehouse", "t", "p", 1)]
