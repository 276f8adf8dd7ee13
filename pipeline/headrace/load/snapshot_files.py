"""A table's current snapshot as a relation that DuckDB answers from its Parquet files, by field id.

Owns how a file's columns are found: by the id that Iceberg gave each, since a column may be called otherwise in files that
are older than its name. Files that name their columns alike are read together, with columns and filters pushed down. A file
that lost rows to a delete file, or in which a part of a column is called otherwise, is read whole through pyiceberg, into
memory. Must not know what is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table

from headrace.load.names import TOPIC_PARTITION, partition_column
from headrace.load.storage import filesystem_of
from headrace.load.tables import arrow_schema

FIELD_ID: Final = b"PARQUET:field_id"
FOOTERS_AT_ONCE: Final = 16

Names = tuple[str, ...]
"""What a file calls each of the table's columns."""


def relation(
    connection: duckdb.DuckDBPyConnection, table: Table, *, is_empty: bool = False
) -> duckdb.DuckDBPyRelation:
    """Return the table's rows, not yet read; nothing is registered with the connection that a user could see.

    Args:
        is_empty: leave the files alone, so that there are columns and no rows.
    """
    schema = arrow_schema(table)
    shown = [TOPIC_PARTITION if item == partition_column(schema.names) else item for item in schema.names]
    datasets, rest = _by_names(table, [] if is_empty else list(table.scan().plan_files()))
    parts: list[tuple[Names, Any]] = [*datasets.items()]
    if rest or not parts:
        parts.append((tuple(schema.names), _rows(table, rest)))
    found: duckdb.DuckDBPyRelation | None = None
    for names, source in parts:
        columns = (f"{_quoted(there)} AS {_quoted(here)}" for there, here in zip(names, shown, strict=True))
        rows = connection.from_arrow(source).project(", ".join(columns))
        found = rows if found is None else found.union(rows)
    assert found is not None
    return found


def _by_names(
    table: Table, planned: Sequence[FileScanTask]
) -> tuple[dict[Names, ds.FileSystemDataset], list[FileScanTask]]:
    """Return datasets of the files that name their columns alike, and the files that cannot be read so."""
    if not planned:
        return {}, []
    schema = arrow_schema(table)
    filesystem, _ = filesystem_of(table.io, planned[0].file.file_path)
    paths = [filesystem_of(table.io, task.file.file_path)[1] for task in planned]
    file_format = ds.ParquetFileFormat()
    fragments = [file_format.make_fragment(path, filesystem) for path in paths]
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        footers = list(pool.map(lambda fragment: fragment.physical_schema, fragments))
    groups: dict[Names, list[Any]] = {}
    rest = []
    for task, fragment, footer in zip(planned, fragments, footers, strict=True):
        names = None if task.delete_files else _names_in(footer, schema)
        if names is None:
            rest.append(task)
        else:
            groups.setdefault(names, []).append(fragment)
    datasets = {
        names: ds.FileSystemDataset(members, _renamed(schema, names), file_format, filesystem)
        for names, members in groups.items()
    }
    return datasets, rest


def _names_in(footer: pa.Schema, schema: pa.Schema) -> Names | None:
    """Return what the file calls each column; None where a part of a column is called otherwise than in the table.

    A column that the file lacks has a name that the file has no column of, and so is read as null.
    """
    present = {_id(item): item for item in footer if _id(item) is not None}
    if not present:
        return tuple(schema.names)
    if any(not _is_alike(present[_id(item)], item) for item in schema if _id(item) in present):
        return None
    return tuple(
        present[_id(item)].name if _id(item) in present else _free(item.name, footer.names) for item in schema
    )


def _is_alike(there: pa.Field, here: pa.Field) -> bool:
    """True when all parts of a column that both have are called alike."""
    parts, known = _parts(there.type), {part.name: part for part in _parts(here.type)}
    ids = {_id(part) for part in known.values()}
    return all(
        _id(part) == _id(known[part.name]) and _is_alike(part, known[part.name])
        if part.name in known
        else _id(part) not in ids
        for part in parts
    )


def _parts(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields of a struct, or of the structs inside a list or a map."""
    if pa.types.is_struct(kind):
        return [kind.field(index) for index in range(kind.num_fields)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _parts(kind.value_type)
    return _parts(kind.item_type) if pa.types.is_map(kind) else []


def _id(item: pa.Field) -> bytes | None:
    metadata: Mapping[bytes, bytes] = item.metadata or {}
    return metadata.get(FIELD_ID)


def _free(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _renamed(schema: pa.Schema, names: Names) -> pa.Schema:
    fields = [item.with_name(name) for item, name in zip(schema, names, strict=True)]
    return pa.schema(fields).remove_metadata()


def _rows(table: Table, planned: Sequence[FileScanTask]) -> pa.Table:
    if not planned:
        return arrow_schema(table).empty_table()
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    return scan.to_table(planned).cast(arrow_schema(table))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
