"""One Spark task: ranges in, one Parquet file of rows and one of dead letters out, and what they cover.

Owns the composition `source` → `decode` → `write` in a worker process. Invariants: every offset of [first, next) of a
result is a row in its file, a dead letter in its other file, or carries no record (control batches, gaps); a range that
cannot go on ends early and says why; a task that dies leaves files that nobody refers to. Must not know snapshots.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import KafkaError
from headrace.broker.wire.partitions import TopicPartition
from headrace.events import registry_client
from headrace.events.registry_address import RegistryAddress
from headrace.load.avro_types import EventSchema, UnsupportedSchemaError
from headrace.load.columns import Int64s, RecordColumns
from headrace.load.decode import (
    FRAME_SIZE,
    NO_SCHEMA,
    TableShape,
    decode,
    is_growing,
    no_frame_reason,
    schema_ids,
)
from headrace.load.fences import Fence, fence_at
from headrace.load.headers import BAD_HEADERS, Headers, bytes_column, headers_of
from headrace.load.log_client import LogClient
from headrace.load.names import DATACENTER, HEADERS, KEY, LIFE, OFFSET, TIMESTAMP, TOPIC, TOPIC_PARTITION
from headrace.load.ranges import Limits, LoadFinding, OffsetRange
from headrace.load.registry import RegistryUnreachableError, SchemaRegistry, UnknownSchemaError
from headrace.load.schema_waits import TopicSchema
from headrace.load.source import Chunk, StandstillError, UnreadableBatch, chunks
from headrace.load.tables import split_topic
from headrace.load.write import FileWriter, Target, WrittenFile

YEAR_1_MS: Final = -62_135_596_800_000
YEAR_9999_MS: Final = 253_402_300_799_999
UNKNOWN_PER_CHUNK_MAX: Final = 1000
"""Unknown schemas that the registry is asked for in one go; records of others wait for the next."""

Standing = Literal["fits", "unfit", "new", "unknown", "unasked"]
"""Of a schema's records: rows, dead letters, wait until the table has grown, wait for the schema, wait to ask for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What one task does; everything in it travels to the worker."""

    ranges: tuple[OffsetRange, ...]
    bootstrap: Bootstrap
    registry: RegistryAddress
    rows: Target
    dead_letters: Target
    shape: TableShape
    limits: Limits
    given_up: frozenset[TopicSchema] = frozenset()
    """Schemas that were waited for long enough: their records become dead letters."""
    given_up_before: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offsets below which no record waits for its schema any longer, of partitions that have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResult:
    """What became of a range: [first_offset, next_offset) is done, `next_offset` may be below the planned one."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    row_count: int
    dead_letter_count: int
    size_bytes: int
    fence: Fence | None = None
    """The last batch below `next_offset`."""
    life: int = 0
    finding: LoadFinding | None = None
    new_schema: int | None = None
    """The table has to grow for this schema before the next record fits."""
    unknown_schemas: tuple[int, ...] = ()
    """Schemas of records from `next_offset` on that the registry does not know, yet."""
    failure: str | None = None
    """A broker or registry did not answer; the next round tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    ranges: tuple[RangeResult, ...]
    rows: WrittenFile | None
    dead_letters: WrittenFile | None
    worker_pid: int


@dataclass(slots=True)
class _Progress:
    """The state of one range while it is read."""

    next_offset: int
    fence: Fence | None
    row_count: int = 0
    dead_letter_count: int = 0
    size_bytes: int = 0
    stop: dict[str, Any] = field(default_factory=dict)


def is_imported(_: int) -> bool:
    """What a worker answers once it has this module and all that the module needs, a look-up of a schema included."""
    registry_client.import_client()
    return True


def run(assignment: Assignment) -> TaskResult:
    """Read, decode and write an assignment's ranges in this process."""
    rows = FileWriter(assignment.rows)
    dead = FileWriter(assignment.dead_letters)
    try:
        results = tuple(_Reader(assignment, wanted, rows, dead).read() for wanted in assignment.ranges)
        return TaskResult(
            ranges=results, rows=rows.close(), dead_letters=dead.close(), worker_pid=os.getpid()
        )
    except BaseException:
        rows.abandon()
        dead.abandon()
        raise


@cache
def _client(bootstrap: Bootstrap, pid: int) -> LogClient:
    """One client a worker process: Spark reuses workers, and a fork must not share its parent's sockets."""
    return LogClient(bootstrap, client_id="headrace-load")


@cache
def _registry(address: RegistryAddress, pid: int) -> SchemaRegistry:
    return SchemaRegistry(address)


class _Reader:
    """Reads one range into the task's writers."""

    def __init__(
        self, assignment: Assignment, wanted: OffsetRange, rows: FileWriter, dead: FileWriter
    ) -> None:
        self._assignment = assignment
        self._wanted = wanted
        self._rows = rows
        self._dead = dead
        self._datacenter, self._topic = split_topic(wanted.topic)
        self._registry = _registry(assignment.registry, os.getpid())
        self._schemas: dict[int, EventSchema] = {}
        self._progress = _Progress(next_offset=wanted.first_offset, fence=wanted.fence)

    def read(self) -> RangeResult:
        progress = self._progress
        try:
            for chunk in chunks(_client(self._assignment.bootstrap, os.getpid()), self._wanted):
                self._take(chunk)
                if progress.stop or progress.size_bytes >= self._assignment.limits.bytes_per_range_max:
                    break
        except StandstillError as error:
            progress.stop["finding"] = error.finding
        except (ConnectionFailedError, KafkaError, RegistryUnreachableError) as error:
            progress.stop["failure"] = str(error)
        return RangeResult(
            topic=self._wanted.topic,
            partition=self._wanted.partition,
            first_offset=self._wanted.first_offset,
            next_offset=progress.next_offset,
            row_count=progress.row_count,
            dead_letter_count=progress.dead_letter_count,
            size_bytes=progress.size_bytes,
            fence=progress.fence,
            life=self._wanted.life,
            **progress.stop,
        )

    def _take(self, chunk: Chunk) -> None:
        """Write a chunk up to the first record that has to wait; nothing of it is written when the registry is away."""
        ids = [schema_ids(records) for records in chunk.records]
        standings = self._standings(ids)
        limit = self._limit(chunk, ids, standings)
        decoded = [
            self._decoded(records, kinds, limit, standings)
            for records, kinds in zip(chunk.records, ids, strict=True)
        ]
        for rows, dead in decoded:
            self._rows.write(rows)
            self._progress.row_count += len(rows)
            self._bury(dead)
        self._bury([self._letter_of_batch(batch) for batch in chunk.unreadable if batch.first_offset < limit])
        self._progress.next_offset = limit
        self._progress.fence = fence_at(chunk.headers, limit) or self._progress.fence
        self._progress.size_bytes += chunk.size_bytes

    def _standings(self, ids: Sequence[npt.NDArray[np.int64]]) -> dict[int, tuple[Standing, str]]:
        """Ask for every schema before anything is written, in the records' order, and say what becomes of its records."""
        standings: dict[int, tuple[Standing, str]] = {NO_SCHEMA: ("unfit", "")}
        unknown = 0
        for schema_id in (each for kinds in ids for each in _in_order(kinds)):
            if schema_id not in standings:
                is_over = unknown >= UNKNOWN_PER_CHUNK_MAX
                standings[schema_id] = ("unasked", "") if is_over else self._standing(schema_id)
                unknown += standings[schema_id][0] == "unknown"
        return standings

    def _standing(self, schema_id: int) -> tuple[Standing, str]:
        """Return what becomes of a schema's records, and why they have no rows."""
        try:
            has_all = not is_growing(self._schema(schema_id), self._assignment.shape)
            return ("fits", "") if has_all else ("new", "")
        except UnsupportedSchemaError as error:
            return "unfit", f"schema {schema_id}: {error}"
        except UnknownSchemaError as error:
            is_over = (self._wanted.topic, schema_id) in self._assignment.given_up
            return ("unfit" if is_over else "unknown"), str(error)

    def _schema(self, schema_id: int) -> EventSchema:
        """Return a schema with its fields called as the table's columns."""
        if schema_id not in self._schemas:
            found = self._registry.schema(self._wanted.topic, schema_id)
            self._schemas[schema_id] = found.named(self._assignment.shape.columns)
        return self._schemas[schema_id]

    def _limit(
        self,
        chunk: Chunk,
        ids: Sequence[npt.NDArray[np.int64]],
        standings: Mapping[int, tuple[Standing, str]],
    ) -> int:
        """Return the first offset that has to wait for a schema, or the chunk's end."""
        limit, unknown = chunk.next_offset, []
        given_up_before = self._assignment.given_up_before.get(self._wanted.topic_partition, 0)
        for records, kinds in zip(chunk.records, ids, strict=True):
            for schema_id in distinct(kinds):
                standing, _ = standings[schema_id]
                if standing in ("fits", "unfit"):
                    continue
                waiting = records.offset[kinds == schema_id]
                if standing == "unknown":
                    waiting = waiting[waiting >= given_up_before]
                    unknown += [schema_id] if len(waiting) else []
                if len(waiting) and waiting[0] < limit:
                    limit = int(waiting[0])
                    self._progress.stop = {"new_schema": schema_id} if standing == "new" else {}
        if limit < chunk.next_offset:
            self._progress.stop["unknown_schemas"] = tuple(unknown)
        return limit

    def _decoded(
        self,
        records: RecordColumns,
        ids: npt.NDArray[np.int64],
        limit: int,
        standings: Mapping[int, tuple[Standing, str]],
    ) -> tuple[pa.Table, list[dict[str, Any]]]:
        """Return the rows of the records below `limit`, and the dead letters among them."""
        count = int(np.searchsorted(records.offset, limit))
        headers = headers_of(records, count)
        tables: list[pa.Table] = []
        dead = [self._letter(records, index, headers, BAD_HEADERS) for index in headers.bad.tolist()]
        for schema_id in distinct(ids[:count]):
            chosen = np.flatnonzero(ids[:count] == schema_id)
            if headers.bad.size:
                chosen = np.setdiff1d(chosen, headers.bad, assume_unique=True)
            standing, reason = standings[schema_id]
            if standing != "fits":
                dead += [self._letter(records, index, headers, reason) for index in chosen.tolist()]
                continue
            values = _unframed(records, chosen)
            decoded = decode(values, self._schema(schema_id), self._assignment.shape)
            dead += [
                self._letter(records, int(chosen[index]), headers, why) for index, why in decoded.bad.items()
            ]
            tables.append(self._with_own_columns(decoded.rows, records, chosen[decoded.kept], headers))
        return pa.concat_tables(tables) if tables else self._assignment.rows.columns.empty_table(), dead

    def _with_own_columns(
        self, rows: pa.Table, records: RecordColumns, chosen: npt.NDArray[np.int64], headers: Headers
    ) -> pa.Table:
        """Put the table's own columns before the event's, in the table's order."""
        own = own_columns(records, chosen, self._wanted, headers)
        schema = self._assignment.rows.columns
        arrays = [
            own[item.name].cast(item.type) if item.name in own else rows.column(item.name) for item in schema
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _letter(self, records: RecordColumns, index: int, headers: Headers, reason: str) -> dict[str, Any]:
        value = _bytes(records.data, records.value_start[index], records.value_size[index])
        offset = int(records.offset[index])
        return self._letter_at(offset, offset, int(records.timestamp_ms[index])) | {
            "_reason": reason or no_frame_reason(value),
            "key": _bytes(records.data, records.key_start[index], records.key_size[index]),
            "value": value,
            "headers": headers.of(np.array([index]))[0].as_py() if headers.lists is not None else None,
        }

    def _letter_of_batch(self, batch: UnreadableBatch) -> dict[str, Any]:
        return self._letter_at(batch.first_offset, batch.last_offset, batch.timestamp_ms) | {
            "_reason": batch.reason,
            "key": None,
            "value": batch.content,
            "headers": None,
        }

    def _letter_at(self, first: int, last: int, timestamp_ms: int) -> dict[str, Any]:
        return {
            DATACENTER: self._datacenter,
            TOPIC: self._topic,
            TOPIC_PARTITION: self._wanted.partition,
            OFFSET: first,
            TIMESTAMP: int(_microseconds(np.array([timestamp_ms]))[0]),
            LIFE: self._wanted.life or None,
            "_last_offset": last,
        }

    def _bury(self, dead: list[dict[str, Any]]) -> None:
        if not dead:
            return
        schema = self._assignment.dead_letters.columns
        columns = {name: [letter.get(name) for letter in dead] for name in schema.names}
        self._dead.write(pa.table(columns, schema=schema))
        self._progress.dead_letter_count += len(dead)


def own_columns(
    records: RecordColumns, chosen: npt.NDArray[np.int64], wanted: OffsetRange, headers: Headers
) -> dict[str, pa.Array]:
    """Return the columns that a table has of its own of each chosen record."""
    count = len(chosen)
    datacenter, topic = split_topic(wanted.topic)
    return {
        DATACENTER: pa.repeat(datacenter, count),
        TOPIC: pa.repeat(topic, count),
        TOPIC_PARTITION: pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
        OFFSET: pa.array(records.offset[chosen]),
        TIMESTAMP: pa.array(_microseconds(records.timestamp_ms[chosen]), type=pa.timestamp("us", "UTC")),
        KEY: bytes_column(records.data, records.key_start[chosen], records.key_size[chosen]),
        HEADERS: headers.of(chosen),
        LIFE: pa.repeat(pa.scalar(wanted.life or None, pa.int32()), count),
    }


def values_of(data: bytes, start: Int64s, size: Int64s) -> list[bytes | None]:
    """Return keys or values as bytes, None where they are null."""
    ends = (start + size).tolist()
    return [
        data[first:last] if last >= first else None for first, last in zip(start.tolist(), ends, strict=True)
    ]


def _unframed(records: RecordColumns, chosen: npt.NDArray[np.int64]) -> list[bytes]:
    """Return the values without their frame, which the caller has seen they have."""
    data = records.data
    start = records.value_start[chosen]
    end = start + records.value_size[chosen]
    return [data[first:last] for first, last in zip((start + FRAME_SIZE).tolist(), end.tolist(), strict=True)]


def _bytes(data: bytes, start: Any, size: Any) -> bytes | None:
    return None if size < 0 else data[int(start) : int(start) + int(size)]


def distinct(ids: npt.NDArray[np.int64]) -> list[int]:
    """Return the different values; a chunk almost always has one."""
    if len(ids) and (ids == ids[0]).all():
        return [int(ids[0])]
    return [int(value) for value in np.unique(ids)]


def _in_order(ids: npt.NDArray[np.int64]) -> list[int]:
    """Return the different values in the order in which they first occur."""
    values, first = np.unique(ids, return_index=True)
    return [int(value) for value in values[np.argsort(first)]]


def _microseconds(milliseconds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return record times in microseconds; a client may send any number, so it is cut to the years 1 to 9999."""
    return np.clip(milliseconds, YEAR_1_MS, YEAR_9999_MS) * 1000
