"""The warehouse's catalog and its tables: where they are, what columns they have, how they grow.

Owns names, properties and schema evolution. Invariant: columns are only added or promoted, never dropped. Must not know
offsets, brokers or Spark.

Tables of the namespace `warehouse`:
- one an event topic, `<datacenter>.<name>` → `warehouse.<name>`: `_datacenter`, `_topic` (without the datacenter),
  `_topic_partition`, `_offset`, `_timestamp`, `_key`, `_headers` (the record's own), and the event's columns (see `names`);
- `dead_letter`: records that have no row; `_offset` to `_last_offset` is one record, or a batch that does not parse;
- `load_history`: which offsets arrived or were passed over when, of snapshots that have expired (see `history`);
- `audit_windows` and `audit_findings`: what the audit settled (see `audit/archive`).
Where a partition went on in another log, its table and `dead_letter` have the column `_life`, too (see `names`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pydantic import ValidationError as InvalidMetadataError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.types import IntegerType

import headrace.load.pyiceberg_mends  # noqa: F401
from headrace.load.avro_types import NOTHING_AHEAD, WriterSchema
from headrace.load.decode import TableShape
from headrace.load.defaults import as_properties, fitting, read_defaults
from headrace.load.headers import HEADERS_TYPE
from headrace.load.names import (
    DATACENTER,
    HEADERS,
    KEY,
    LIFE,
    OFFSET,
    OWN_COLUMNS,
    TIMESTAMP,
    TOPIC,
    TOPIC_PARTITION,
)
from headrace.load.upgrade import LAYOUT, LAYOUT_PROPERTY, upgrade

NAMESPACE: Final = "warehouse"
DEAD_LETTER: Final = "dead_letter"
LOAD_HISTORY: Final = "load_history"
AUDIT_WINDOWS: Final = "audit_windows"
AUDIT_FINDINGS: Final = "audit_findings"
AUDIT_BATCH: Final = "headrace.audit-batch"
"""The number of the last batch of the audit's in these tables, and in a snapshot of theirs."""
OWN_TABLES: Final = (DEAD_LETTER, LOAD_HISTORY, AUDIT_WINDOWS, AUDIT_FINDINGS)
CATALOG_FILE: Final = "catalog.db"
SQLITE_WAIT_SECONDS: Final = 30
FORMAT_VERSION: Final = 2
"""pyiceberg reads Iceberg's format 3 and cannot write it."""
COMMIT_ATTEMPTS_MAX: Final = 20
"""Tries of a change that others get ahead of."""

COMMIT_RETRIES: Final = "commit.retry.num-retries"
TABLE_PROPERTIES: Final = {
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
}
PLACE_FIELDS: Final = [
    pa.field(DATACENTER, pa.string(), nullable=False),
    pa.field(TOPIC, pa.string(), nullable=False),
    pa.field(TOPIC_PARTITION, pa.int32(), nullable=False),
    pa.field(OFFSET, pa.int64(), nullable=False),
    pa.field(TIMESTAMP, pa.timestamp("us", "UTC"), nullable=False),
]
OWN_FIELDS: Final = [*PLACE_FIELDS, pa.field(KEY, pa.binary()), pa.field(HEADERS, HEADERS_TYPE)]
EVENT_TABLE: Final = pa.schema(OWN_FIELDS)
DEAD_LETTER_TABLE: Final = pa.schema(
    [
        *PLACE_FIELDS,
        pa.field("_last_offset", pa.int64(), nullable=False),
        pa.field("_reason", pa.string(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
    ]
)
LOAD_HISTORY_TABLE: Final = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first_offset", pa.int64(), nullable=False),
        pa.field("next_offset", pa.int64(), nullable=False),
        pa.field("committed_at_ms", pa.int64(), nullable=False),
        pa.field("life", pa.int32()),
        pa.field("kind", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("table_uuid", pa.string()),
    ]
)


class WarehouseError(Exception):
    """The warehouse cannot be used as asked; the message says what to do."""


class UnreadableTableError(WarehouseError):
    """A table has what pyiceberg does not know, as a newer format's types."""


def open_catalog(warehouse: str, properties: Mapping[str, str] | None = None) -> Catalog:
    """Open the catalog: the one that the properties name, or SQLite and files below the folder `warehouse`.

    Args:
        warehouse: a local folder (made when missing), or with `properties` the catalog's warehouse location.
        properties: pyiceberg's catalog properties, for instance `{"type": "glue"}`; empty for the embedded one.
    """
    if properties:
        return load_catalog("headrace", **{"warehouse": warehouse, **properties})
    folder = Path(warehouse).absolute()
    if set(str(folder)) & set("#?%"):
        raise WarehouseError(
            f"the warehouse folder {warehouse} has one of # ? % in its name, which no file URL may"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WarehouseError(f"the warehouse folder {warehouse} cannot be made: {error.strerror}") from error
    return load_catalog(
        "headrace",
        type="sql",
        uri=f"sqlite:///{folder}/{CATALOG_FILE}?timeout={SQLITE_WAIT_SECONDS}",
        warehouse=f"file://{folder}",
    )


def is_present(warehouse: str, properties: Mapping[str, str]) -> bool:
    """Return whether the embedded catalog is there; what another catalog has, it says itself."""
    return bool(properties) or Path(warehouse, CATALOG_FILE).exists()


def check_present(warehouse: str, properties: Mapping[str, str]) -> None:
    """Refuse a folder without a catalog.

    Raises:
        WarehouseError: it is one.
    """
    if not is_present(warehouse, properties):
        raise WarehouseError(f"there is no warehouse in {warehouse}; name its folder with --warehouse")


def open_present(warehouse: str, properties: Mapping[str, str]) -> Catalog:
    """Open the catalog to read; none is made.

    Raises:
        WarehouseError: there is none.
    """
    check_present(warehouse, properties)
    return open_catalog(warehouse, properties)


def split_topic(topic: str) -> tuple[str, str]:
    """Return (datacenter, topic in that datacenter); a topic without a dot has no datacenter."""
    datacenter, dot, name = topic.partition(".")
    return (datacenter, name) if dot else ("", topic)


def table_of_topic(topic: str) -> str:
    """Return the table's name for a topic: letters, digits and underscores.

    Raises:
        WarehouseError: the name belongs to a table of headrace itself.
    """
    name = _table_name(topic)
    if name in OWN_TABLES:
        raise WarehouseError(
            f"topic {topic} cannot be loaded: {NAMESPACE}.{name} is a table of headrace itself"
        )
    return name


def is_table_of(name: str, topic: str) -> bool:
    """Return whether a topic's rows are in this table; what another table has of it is a copy that others made."""
    return _table_name(topic) == name


def _table_name(topic: str) -> str:
    return re.sub(r"\W", "_", split_topic(topic)[1]).lower()


def strangers(name: str, topics: Collection[str], loaded: Collection[str]) -> dict[str, str]:
    """Return which topics cannot be loaded into a table, each with a sentence.

    A table belongs to the topic, whatever its datacenter, whose records it got first. Of several that would be the first
    none is, whatever their order, but for one that is called as the table is.

    Args:
        name: the table's.
        topics: all that are to be loaded of those that `table_of_topic` gives this table.
        loaded: the topics that it has positions of; tables of older releases may have several, and keep them.
    """
    wanted = {split_topic(topic)[1] for topic in topics}
    owners = {split_topic(topic)[1] for topic in loaded} or (wanted if len(wanted) == 1 else wanted & {name})
    reason = (
        f"is that of {', '.join(sorted(owners))}"
        if owners
        else f"could be that of any of {', '.join(sorted(wanted))}"
    )
    return {
        topic: f"topic {topic} cannot be loaded: its table {NAMESPACE}.{name} {reason}, and topics that differ in "
        "'.', '-', '_' or case alone do not share one; leave all but one out with --topics, or load it into another "
        "warehouse"
        for topic in topics
        if split_topic(topic)[1] not in owners
    }


def ensure_table(catalog: Catalog, name: str, columns: pa.Schema = EVENT_TABLE) -> Table:
    """Return the table, made when missing, with the columns and properties that loads rely on.

    Raises:
        CommitFailedException: somebody else changed an older release's table meanwhile; ask again.
        WarehouseError: the table has a format that no load can write, or lacks a column that each row has.
    """
    identifier = f"{NAMESPACE}.{name}"
    try:
        table = _read(catalog, identifier)
    except NoSuchTableError:
        table = _create(catalog, identifier, columns)
    if table.metadata.format_version > FORMAT_VERSION:
        raise WarehouseError(
            f"{identifier} has Iceberg's format {table.metadata.format_version}, and a load writes format "
            f"{FORMAT_VERSION}: rename the table, and a new one is loaded from the start of the log"
        )
    upgrade(table, columns)
    _check_columns(table, columns)
    _set_properties(table)
    return table


def _check_columns(table: Table, columns: pa.Schema) -> None:
    required = {item.name for item in columns if not item.nullable}
    missing = sorted(required - set(table.schema().column_names))
    if missing:
        raise WarehouseError(
            f"{'.'.join(table.name())} has no column {', '.join(missing)} any longer, which a load writes: give it its name "
            "back (`ALTER TABLE ... RENAME COLUMN`), or rename the table, and a new one is loaded from the start of the log"
        )


def _set_properties(table: Table) -> None:
    """Set the load's own properties, and let others repeat their commits, which tables of older releases forbid."""
    differing = {key: value for key, value in TABLE_PROPERTIES.items() if table.properties.get(key) != value}
    forbidding = [COMMIT_RETRIES] if table.properties.get(COMMIT_RETRIES) == "0" else []
    if differing or forbidding:
        with table.transaction() as transaction:
            transaction.set_properties(differing)
            transaction.remove_properties(*forbidding)


def ensure_history(catalog: Catalog) -> Table:
    """Return the load history, made when missing; one of an older release gets today's columns.

    Raises:
        CommitFailedException: somebody else changed it meanwhile; ask again.
    """
    table = ensure_table(catalog, LOAD_HISTORY, LOAD_HISTORY_TABLE)
    if not set(LOAD_HISTORY_TABLE.names) <= set(table.schema().column_names):
        with table.update_schema() as update:
            update.union_by_name(LOAD_HISTORY_TABLE)
    return table


def ensure_life(table: Table) -> None:
    """Give a table the column that tells a partition's lives apart.

    Raises:
        CommitFailedException: somebody else changed the table meanwhile; ask again.
    """
    if LIFE not in table.schema().column_names:
        with table.update_schema() as update:
            update.add_column(LIFE, IntegerType(), "how often the log had been given up for another one")


def upgrade_all(catalog: Catalog) -> list[str]:
    """Give every older release's table today's columns, also those that this load does not write to.

    Returns:
        the names of the tables that changed.

    Raises:
        WarehouseError: a table is changed by others all the time.
    """
    try:
        names = [identifier[-1] for identifier in catalog.list_tables(NAMESPACE)]
    except NoSuchNamespaceError:
        return []
    return [name for name in names if _upgraded(catalog, name)]


def _upgraded(catalog: Catalog, name: str) -> bool:
    for _ in range(COMMIT_ATTEMPTS_MAX):
        try:
            return upgrade(
                load_table(catalog, name), DEAD_LETTER_TABLE if name == DEAD_LETTER else EVENT_TABLE
            )
        except UnreadableTableError:
            return False
        except CommitFailedException:
            continue
    raise WarehouseError(
        f"{NAMESPACE}.{name} was changed by others {COMMIT_ATTEMPTS_MAX} times while it was to get its columns; "
        "start the load again"
    )


def load_table(catalog: Catalog, name: str) -> Table:
    """Return a table as it is now.

    Raises:
        UnreadableTableError
        WarehouseError: there is none.
    """
    try:
        return _read(catalog, f"{NAMESPACE}.{name}")
    except NoSuchTableError as error:
        raise WarehouseError(f"there is no table {NAMESPACE}.{name}; load a topic first") from error


def _read(catalog: Catalog, identifier: str) -> Table:
    """Raise UnreadableTableError or NoSuchTableError where that cannot be done."""
    try:
        return catalog.load_table(identifier)
    except (ValidationError, InvalidMetadataError) as error:
        raise UnreadableTableError(
            f"{identifier} cannot be read ({_cause(error)}): drop what is not known, or move the table to another namespace"
        ) from error


def _cause(error: Exception) -> str:
    """Return the first thing that is wrong with a table's metadata."""
    cause = error.__cause__ or error
    return str(cause.errors()[0]["msg"] if isinstance(cause, InvalidMetadataError) else cause)


def shape_of(table: Table) -> TableShape:
    """Return the event's columns and defaults, without the table's own columns."""
    columns = pa.schema([item for item in arrow_schema(table) if item.name not in OWN_COLUMNS])
    return TableShape(columns=columns, defaults=fitting(read_defaults(table.properties), columns))


def arrow_schema(table: Table) -> pa.Schema:
    """Return the table's columns as Arrow fields with Iceberg's field ids, strings and lists with 32-bit offsets."""
    return pa.schema([_small(item) for item in schema_to_pyarrow(table.schema())])


def in_columns(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return rows with these columns alone; one that they lack is null."""
    arrays = [
        rows.column(item.name).cast(item.type)
        if item.name in rows.column_names
        else pa.nulls(len(rows), item.type)
        for item in columns
    ]
    return pa.Table.from_arrays(arrays, schema=columns)


def evolve(table: Table, schema: WriterSchema, ahead: pa.Schema = NOTHING_AHEAD) -> None:
    """Add the schema's new fields as optional columns, promote widened ones, remember the new fields' defaults.

    Args:
        ahead: columns that the table is going to get (see `WriterSchema.named`).

    Raises:
        CommitFailedException: somebody else changed the table meanwhile; load it again.
    """
    shape = shape_of(table)
    named = schema.named(shape.columns, ahead)
    with table.transaction() as transaction:
        with transaction.update_schema() as update:
            update.union_by_name(named.table_fields)
        transaction.set_properties(as_properties({**named.defaults, **shape.defaults}))


def _create(catalog: Catalog, identifier: str, columns: pa.Schema) -> Table:
    _create_namespace(catalog)
    properties = {**TABLE_PROPERTIES, LAYOUT_PROPERTY: LAYOUT}
    try:
        return catalog.create_table(identifier, schema=columns, properties=properties)
    except TableAlreadyExistsError:
        return catalog.load_table(identifier)


def _create_namespace(catalog: Catalog) -> None:
    """Create it unless it is there. Two loads may do so at once, of which pyiceberg fails one with an error of its database."""
    try:
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(NAMESPACE)
    except Exception:
        if not catalog.namespace_exists(NAMESPACE):
            raise


def _small(item: pa.Field) -> pa.Field:
    return item.with_type(_small_type(item.type))


def _small_type(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return pa.struct([_small(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_small(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_small(kind.key_field), _small(kind.item_field))
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)
