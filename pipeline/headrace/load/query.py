"""`headrace query`: SQL over the warehouse's tables, answered by DuckDB in this process.

Owns how tables appear to SQL and how answers are printed. Each table is read at its current snapshot, straight from
its Parquet files through pyarrow (columns and filters are pushed down), so no answer ever mixes two snapshots.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from rich.console import Console
from rich.table import Table as RichTable

from headrace.load.options import warehouse_options
from headrace.load.snapshot_files import select
from headrace.load.tables import CATALOG_FILE, NAMESPACE, WarehouseError, open_catalog

ROWS_SHOWN_MAX: Final = 1000


def connect(catalog: Catalog, sql: str | None = None) -> duckdb.DuckDBPyConnection:
    """Open an in-memory database in which every warehouse table is a view, `warehouse.<name>`.

    Args:
        sql: what will be asked; a table whose name is not in it has its columns and no rows, which saves a look at its files.
    """
    connection = duckdb.connect()
    connection.execute(f"CREATE SCHEMA {NAMESPACE}")
    try:
        identifiers = catalog.list_tables(NAMESPACE)
    except NoSuchNamespaceError:
        identifiers = []
    for identifier in identifiers:
        name = identifier[-1]
        is_asked = sql is None or name.lower() in sql.lower()
        rows = select(
            connection, f"{NAMESPACE}_{name}", catalog.load_table(identifier), is_empty=not is_asked
        )
        connection.execute(f'CREATE VIEW {NAMESPACE}."{name}" AS {rows}')
    return connection


@click.command()
@click.argument("sql")
@warehouse_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of objects.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values with a header.")
def query(sql: str, warehouse: str, catalog_properties: dict[str, str], as_json: bool, as_csv: bool) -> None:
    """Ask the warehouse tables a question in SQL (DuckDB's).

    Example: headrace query "SELECT status, count(*) FROM warehouse.pageviews GROUP BY status"
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other.")
    if not catalog_properties and not Path(warehouse, CATALOG_FILE).exists():
        raise click.ClickException(f"there is no warehouse in {warehouse}; name its folder with --warehouse")
    try:
        answer = connect(open_catalog(warehouse, catalog_properties), sql).sql(sql)
    except (duckdb.Error, WarehouseError) as error:
        raise click.ClickException(str(error).splitlines()[0]) from error
    if answer is None:
        raise click.ClickException("the statement has no answer; the tables can only be read")
    try:
        rows = answer.to_arrow_table()
    except (duckdb.Error, pa.ArrowException) as error:
        raise click.ClickException(str(error).splitlines()[0]) from error
    _print(rows, as_json, as_csv)


def _print(rows: pa.Table, as_json: bool, as_csv: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows.to_pylist(), default=_plain, indent=2, ensure_ascii=False))
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(rows.column_names)
        writer.writerows([_text(value) for value in row.values()] for row in rows.to_pylist())
    else:
        _print_table(rows.column_names, rows)


def _print_table(names: Sequence[str], rows: pa.Table) -> None:
    shown = RichTable(*names)
    for row in rows.slice(0, ROWS_SHOWN_MAX).to_pylist():
        shown.add_row(*(_text(value) for value in row.values()))
    console = Console()
    console.print(shown)
    if len(rows) > ROWS_SHOWN_MAX:
        console.print(f"{len(rows)} rows, the first {ROWS_SHOWN_MAX} are shown; use --csv or --json for all.")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return (
        json.dumps(value, default=_plain, ensure_ascii=False)
        if isinstance(value, dict | list)
        else str(_plain(value))
    )
