"""Arrow rows become one Parquet file, described as Iceberg wants it.

Owns a task's output files. Invariants: a file's name is never used twice, so a task that runs again cannot touch what
an earlier attempt wrote; a file is described only after it is closed; nothing is ever deleted here. Must not know where
rows come from, nor whether the file is committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping, pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from headrace.load import column_bounds
from headrace.load.tables import arrow_schema

ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
COMPRESSION: Final = "zstd"
COMPRESSION_LEVEL: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a task must know of a table to write for it; travels to the workers."""

    folder: str
    """Where this run's files go."""
    columns: pa.Schema
    schema_json: str
    properties: Mapping[str, str]
    io_properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A closed Parquet file: `statistics` are the keyword arguments of pyiceberg's `DataFile`."""

    path: str
    size_bytes: int
    row_count: int
    statistics: Mapping[str, Any]


def target_of(table: Table, folder: str) -> Target:
    return Target(
        folder=folder,
        columns=arrow_schema(table),
        schema_json=table.schema().model_dump_json(),
        properties=dict(table.properties),
        io_properties=dict(table.io.properties),
    )


class FileWriter:
    """Writes at most one file: opened with the first row, described by `close`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._path = f"{target.folder}/{uuid.uuid4()}.parquet"
        self._stream: Any = None
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    def write(self, rows: pa.Table) -> None:
        """Take rows; they are written when a row group is full, so memory stays below two of them."""
        if not len(rows):
            return
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> WrittenFile | None:
        """Finish the file and describe it; None when no row was written."""
        self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        metadata = self._writer.writer.metadata
        return _described(self._path, size, metadata, self._target.schema_json, self._target.properties)

    def abandon(self) -> None:
        """Let go of an unfinished file; the next start removes it."""
        if self._writer is not None:
            self._writer.close()
            self._stream.close()

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            io = load_file_io(dict(self._target.io_properties), self._target.folder)
            self._stream = io.new_output(self._path).create()
            self._writer = pq.ParquetWriter(
                self._stream,
                self._target.columns,
                compression=COMPRESSION,
                compression_level=COMPRESSION_LEVEL,
                store_schema=False,
            )
        self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=1 << 30)
        self._waiting.clear()
        self._waiting_bytes = 0


def describe_again(io: FileIO, path: str, properties: Mapping[str, str]) -> WrittenFile:
    """Describe a file that an earlier process wrote, maybe when its table's columns had other names."""
    source = io.new_input(path)
    with source.open() as stream:
        file = pq.ParquetFile(stream)
        schema_json = pyarrow_to_schema(file.schema_arrow).model_dump_json()
        return _described(path, len(source), file.metadata, schema_json, properties)


def _described(
    path: str, size: int, metadata: pq.FileMetaData, schema_json: str, properties: Mapping[str, str]
) -> WrittenFile:
    """Describe a file; the schema has the names that its columns have in it."""
    plan, ids = _plan(schema_json, frozenset(properties.items()))
    return WrittenFile(
        path=path,
        size_bytes=size,
        row_count=metadata.num_rows,
        statistics=column_bounds.statistics(metadata, plan, ids).to_serialized_dict(),
    )


@lru_cache(maxsize=10)
def _plan(
    schema_json: str, properties: frozenset[tuple[str, str]]
) -> tuple[column_bounds.Plan, dict[str, int]]:
    """Return what is to be known of files of a schema, and the ids of their columns by path; the same for round after round."""
    schema = Schema.model_validate_json(schema_json)
    return column_bounds.plan(schema, dict(properties)), parquet_path_to_id_mapping(schema)
