"""Tables of a warehouse: several loads make them at once, and others set properties of theirs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from load_kit import load, make_unreadable
from pyiceberg.catalog import Catalog
from sqlalchemy.exc import IntegrityError

from headrace.load import query, tables
from headrace.load.avro_types import WriterSchema, writer_schema
from headrace.load.kept import NeedsUnknownError, dead_letter_files
from headrace.load.leftovers import Run
from headrace.load.names import TOPIC_PARTITION
from headrace.load.snapshot_files import relation

PAGE = Path(__file__).resolve().parents[4] / "docs" / "tables.md"


def test_a_namespace_that_another_load_makes_in_the_same_moment_is_taken(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find none, as pyiceberg looks before it writes."""
    catalog.create_namespace(tables.NAMESPACE)
    looks = iter([False])
    monkeypatch.setattr(catalog, "namespace_exists", lambda _: next(looks, True))
    assert tables.ensure_table(catalog, "pageviews").name() == (tables.NAMESPACE, "pageviews")


def test_a_namespace_that_cannot_be_made_is_an_error(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise IntegrityError("INSERT", {}, Exception("refused"))

    monkeypatch.setattr(catalog, "create_namespace", refuse)
    with pytest.raises(IntegrityError):
        tables.ensure_table(catalog, "pageviews")


def test_a_table_of_a_format_that_no_load_writes_is_refused_in_a_sentence(
    catalog: Catalog, tmp_path: Path
) -> None:
    metadata = tables.ensure_table(catalog, "pageviews").metadata.model_dump(mode="json", by_alias=True)
    upgraded = tmp_path / "00001-upgraded.metadata.json"
    upgraded.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 0}), encoding="utf-8")
    catalog.drop_table("warehouse.pageviews")
    catalog.register_table("warehouse.pageviews", f"file://{upgraded}")
    with pytest.raises(tables.WarehouseError, match=r"has Iceberg's format 3.*: rename the table"):
        tables.ensure_table(catalog, "pageviews")


def test_a_table_keeps_all_properties_but_those_that_the_page_calls_the_loads_own(catalog: Catalog) -> None:
    table = tables.ensure_table(catalog, "pageviews")
    theirs = {"write.target-file-size-bytes": "1000000", "owner": "analysts"}
    other = {"true": "false", "zstd": "snappy"}
    ours = {key: other.get(value, "7") for key, value in tables.TABLE_PROPERTIES.items()}
    table.transaction().set_properties({**ours, **theirs}).commit_transaction()
    properties = tables.ensure_table(catalog, "pageviews").properties
    assert {key: properties[key] for key in theirs} == theirs
    assert {key: properties[key] for key in tables.TABLE_PROPERTIES} == tables.TABLE_PROPERTIES
    page = PAGE.read_text(encoding="utf-8")
    assert [key for key in tables.TABLE_PROPERTIES if f"`{key}`" not in page] == []


def test_others_may_repeat_their_commits_in_new_tables_and_in_those_of_older_releases(
    catalog: Catalog,
) -> None:
    table = tables.ensure_table(catalog, "pageviews")
    assert tables.COMMIT_RETRIES not in table.properties
    table.transaction().set_properties({tables.COMMIT_RETRIES: "0"}).commit_transaction()
    assert tables.COMMIT_RETRIES not in tables.ensure_table(catalog, "pageviews").properties
    table.transaction().set_properties({tables.COMMIT_RETRIES: "9"}).commit_transaction()
    assert tables.ensure_table(catalog, "pageviews").properties[tables.COMMIT_RETRIES] == "9"


def test_a_table_that_cannot_be_read_says_what_to_do_and_stops_no_other(catalog: Catalog, run: Run) -> None:
    load(catalog, run, 0, 3)
    catalog.create_table("warehouse.theirs", schema=pa.schema([("id", pa.int64())]))
    make_unreadable(catalog, "theirs")
    with pytest.raises(tables.UnreadableTableError, match=r"'variant'.*move the table to another namespace"):
        tables.ensure_table(catalog, "theirs")
    assert tables.upgrade_all(catalog) == []
    assert query.connect(catalog).sql("SELECT count(*) FROM warehouse.pageviews").fetchall() == [(3,)]
    with pytest.raises(duckdb.Error, match=r"warehouse\.theirs cannot be read"):
        query.connect(catalog).sql("SELECT * FROM warehouse.theirs").fetchall()
    with pytest.raises(NeedsUnknownError, match="cannot be read"):
        list(dead_letter_files(catalog))


def test_a_table_without_a_column_of_a_loads_own_is_refused_until_it_has_it_again(catalog: Catalog) -> None:
    table = tables.ensure_table(catalog, "pageviews")
    with table.update_schema() as update:
        update.rename_column("_topic", "source")
    with pytest.raises(tables.WarehouseError, match=r"no column _topic .*RENAME COLUMN"):
        tables.ensure_table(catalog, "pageviews")
    with table.update_schema() as update:
        update.rename_column("source", "_topic")
        update.delete_column("_headers")
    assert "_headers" not in tables.ensure_table(catalog, "pageviews").schema().column_names


def test_a_decimal_gets_more_digits_and_files_of_before_are_read(catalog: Catalog) -> None:
    def schema(precision: int) -> WriterSchema:
        kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}
        return writer_schema(
            precision, {"type": "record", "name": "R", "fields": [{"name": "amount", "type": kind}]}
        )

    tables.ensure_table(catalog, "sales")
    amounts = [Decimal("1.25"), Decimal("123456789012.50")]
    for precision, amount in zip((10, 14), amounts, strict=True):
        table = tables.load_table(catalog, "sales")
        tables.evolve(table, schema(precision))
        table = tables.load_table(catalog, "sales")
        columns = tables.arrow_schema(table)
        there: dict[str, object] = {"_datacenter": "dc", "_topic": "sales", "_offset": precision}
        there |= {TOPIC_PARTITION: 0, "_timestamp": datetime.fromtimestamp(0, UTC)}
        row = dict.fromkeys(columns.names) | there | {"amount": amount}
        table.append(pa.Table.from_pylist([row], schema=columns))
    found = relation(duckdb.connect(), tables.load_table(catalog, "sales")).order("amount")
    assert [value for (value,) in found.project("amount").fetchall()] == amounts
