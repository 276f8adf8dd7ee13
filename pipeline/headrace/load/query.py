"""`headrace query`: SQL over the warehouse's tables, answered by DuckDB in this process.

Owns how tables appear to SQL. Each table is read at its current snapshot, straight from its Parquet files through pyarrow
(columns and filters are pushed down), so no answer ever mixes two snapshots.
"""

from __future__ import annotations

import click
import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from sqlalchemy.exc import SQLAlchemyError

from headrace.load import answers
from headrace.load.options import warehouse_options
from headrace.load.snapshot_files import relation
from headrace.load.tables import NAMESPACE, UnreadableTableError, WarehouseError, load_table, open_present


def connect(catalog: Catalog, sql: str | None = None) -> duckdb.DuckDBPyConnection:
    """Open an in-memory database in which every warehouse table is a view, `warehouse.<name>` or just its name.

    A table that cannot be read is one whose rows are an error.

    Args:
        sql: what will be asked; a table whose name is not in it has its columns and no rows, which saves a look at its files,
            unless it asks by DuckDB's `query` or `query_table`, which take names that are made up first.
    """
    connection = duckdb.connect()
    connection.execute(f"CREATE SCHEMA {NAMESPACE}")
    connection.execute(f"SET search_path = '{NAMESPACE},main'")
    try:
        identifiers = catalog.list_tables(NAMESPACE)
    except NoSuchNamespaceError:
        identifiers = []
    for identifier in identifiers:
        name = identifier[-1]
        is_asked = sql is None or name.lower() in sql.lower() or "query" in sql.lower()
        try:
            table = load_table(catalog, name)
        except UnreadableTableError as error:
            reason = duckdb.ConstantExpression(str(error))
            connection.sql("SELECT 1").select(duckdb.FunctionExpression("error", reason)).create_view(name)
        else:
            relation(connection, table, is_empty=not is_asked).create_view(name)
    return connection


@click.command()
@click.argument("sql")
@warehouse_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of objects.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values with a header.")
def query(sql: str, warehouse: str, catalog_properties: dict[str, str], as_json: bool, as_csv: bool) -> None:
    """Ask the warehouse tables a question in SQL (DuckDB's); "SHOW TABLES" lists them.

    Example: headrace query "SELECT status, count(*) FROM warehouse.pageviews GROUP BY status"

    Times are printed as ISO 8601; one before the year 1 or after 9999 as its milliseconds since 1970. Bytes are printed as
    the UTF-8 that they are, each that is none as \\xNN and a backslash as two; base64(_key) and hex(_key) are SQL. On a
    terminal a table has at most 1000 rows; in a pipe or a file, and with --csv or --json, all are printed.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other.")
    if not sql.strip():
        raise click.UsageError('There is no question: try "SHOW TABLES".')
    try:
        answer = connect(open_present(warehouse, catalog_properties), sql).sql(sql)
        if answer is None:
            raise click.ClickException("the statement has no answer; the tables can only be read")
        rows = answer.to_arrow_table()
    except (duckdb.Error, pa.ArrowException, WarehouseError) as error:
        raise click.ClickException(str(error).rstrip()) from error
    except (OSError, SQLAlchemyError, ValueError) as error:
        what = " ".join(str(error).partition("(Background on")[0].split())
        raise click.ClickException(f"the warehouse cannot be read: {what}") from error
    if as_json:
        answers.print_json(rows)
    elif as_csv:
        answers.print_csv(rows)
    else:
        answers.print_table(rows)
