"""Values of the registry's frame become Arrow rows of the table; what does not decode becomes a dead letter.

Owns the choice of decoder (pyruhvro where the schema allows, else fastavro), the search for the one bad record of a
failed chunk, and the step from the writer's fields to the table's columns (project, promote, fill defaults).
Invariants: every value given comes back exactly once, as a row or as a bad record with a reason; rows keep the order
of their values; one bad record never costs its batch. Must not know offsets, files, Spark or HTTP.
The frame (Confluent's): byte 0, schema id as big-endian int32, Avro binary. Bytes behind the Avro value are ignored,
as every Avro reader ignores them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyruhvro

from headrace.load.avro_types import EventSchema, UnsupportedSchemaError, WriterSchema, WriterUnion
from headrace.load.column_types import is_storable, is_wider
from headrace.load.columns import Int64s, RecordColumns
from headrace.load.placement import OtherBranchError, unfitting

FRAME_SIZE: Final = 5
NO_SCHEMA: Final = -1
REASON_SIZE_MAX: Final = 500
BRANCH_SIZE_MAX: Final = 5
"""Bytes of an Avro int."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """What the table's rows look like: the event's columns and the defaults of fields that a writer lacks."""

    columns: pa.Schema
    defaults: Mapping[str, pa.Array] = field(default_factory=dict)


@dataclass(slots=True)
class Decoded:
    """Rows in the order of their values; `bad` maps the index of a value to the reason why it has no row."""

    rows: pa.Table
    kept: npt.NDArray[np.int64]
    """The index of each row's value."""
    bad: dict[int, str]


def schema_ids(records: RecordColumns) -> Int64s:
    """Return each value's schema id, `NO_SCHEMA` where the value is no frame (null, too short, wrong first byte)."""
    raw = np.frombuffer(records.data, dtype=np.uint8)
    start = np.minimum(records.value_start, len(raw) - FRAME_SIZE)
    ids = np.zeros(len(start), dtype=np.int64)
    for index in range(1, FRAME_SIZE):
        ids = ids << 8 | raw[start + index]
    framed = (records.value_size >= FRAME_SIZE) & (raw[start] == 0)
    return np.where(framed, ids, NO_SCHEMA)


def no_frame_reason(value: bytes | None) -> str:
    if value is None:
        return "the record has no value (a tombstone), so it is no event"
    if len(value) < FRAME_SIZE:
        return f"the value has {len(value)} bytes, fewer than the {FRAME_SIZE} of a schema registry's frame"
    return f"the value begins with byte {value[0]}, a schema registry's frame begins with 0"


def decode(values: Sequence[bytes], schema: EventSchema, shape: TableShape) -> Decoded:
    """Decode values (without their frame) that were written with one schema.

    The caller has named the schema's fields as the table does, and made sure that it has a column for each (`is_growing`).
    """
    if isinstance(schema, WriterUnion):
        return _decode_union(values, schema, shape)
    bad: dict[int, str] = {}
    parts: list[pa.Table] = []
    kept: list[int] = []
    _decode_span(values, 0, schema, shape, parts, kept, bad)
    rows = pa.concat_tables(parts) if parts else shape.columns.empty_table()
    return Decoded(rows, np.array(kept, dtype=np.int64), bad)


def _decode_union(values: Sequence[bytes], union: WriterUnion, shape: TableShape) -> Decoded:
    """Decode each value as its branch's record would be, and put the rows in the order of their values."""
    starts = [_union_branch(value) for value in values]
    tables, kept, bad = [shape.columns.empty_table()], [np.arange(0)], dict[int, str]()
    for number in dict.fromkeys(branch for branch, _ in starts):
        chosen = [index for index, (branch, _) in enumerate(starts) if branch == number]
        record = _record_of(union, number, shape)
        if isinstance(record, str):
            bad |= dict.fromkeys(chosen, f"schema {union.schema_id}: {record}"[:REASON_SIZE_MAX])
            continue
        found = decode([values[index][starts[index][1] :] for index in chosen], record, shape)
        tables.append(found.rows)
        kept.append(np.array(chosen)[found.kept])
        bad |= {chosen[index]: why for index, why in found.bad.items()}
    places = np.concatenate(kept)
    order = np.argsort(places)
    return Decoded(pa.concat_tables(tables).take(pa.array(order)), places[order], bad)


def _record_of(union: WriterUnion, number: int, shape: TableShape) -> WriterSchema | str:
    """Return a branch's schema, or why its values have no rows."""
    if not 0 <= number < len(union.branches):
        return "the value has no branch of the union"
    branch = union.branches[number]
    if not isinstance(branch, WriterSchema):
        return str(branch)
    try:
        is_growing(branch, shape)
    except UnsupportedSchemaError as error:
        return str(error)
    return branch


def _union_branch(value: bytes) -> tuple[int, int]:
    """Return the number of a value's branch, and where its record begins; -1 where there is none."""
    number = 0
    for size, byte in enumerate(value[:BRANCH_SIZE_MAX]):
        number |= (byte & 0x7F) << 7 * size
        if byte < 0x80:
            return number >> 1 if number % 2 == 0 else -1, size + 1
    return -1, 0


def is_growing(schema: EventSchema, shape: TableShape) -> bool:
    """True when the table must evolve before this schema's events fit, or to know the defaults of its fields.

    Raises:
        UnsupportedSchemaError: a field of each record that the schema has is of a type that its column can neither hold nor
            be promoted to.
    """
    if isinstance(schema, WriterSchema):
        return _is_record_growing(schema, shape)
    found, errors = list[bool](), list[UnsupportedSchemaError]()
    for record in schema.records:
        try:
            found.append(_is_record_growing(record, shape))
        except UnsupportedSchemaError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return any(found)


def _is_record_growing(schema: WriterSchema, shape: TableShape) -> bool:
    missing = sum(_lacks(item, shape.columns, "") for item in schema.table_fields)
    return missing > 0 or not schema.defaults.keys() <= shape.defaults.keys()


def grown(shape: TableShape, schema: EventSchema) -> TableShape:
    """Return the shape of a table once it has what a schema's events need.

    Raises:
        UnsupportedSchemaError: as `is_growing`.
    """
    if isinstance(schema, WriterSchema):
        return _grown_by_record(shape, schema)
    is_growing(schema.named(shape.columns), shape)
    for record in schema.records:
        with suppress(UnsupportedSchemaError):
            shape = _grown_by_record(shape, record)
    return shape


def _grown_by_record(shape: TableShape, schema: WriterSchema) -> TableShape:
    named = schema.named(shape.columns)
    if not is_growing(named, shape):
        return shape
    columns = pa.unify_schemas([shape.columns, named.table_fields], promote_options="permissive")
    return TableShape(columns=columns, defaults={**named.defaults, **shape.defaults})


def _lacks(wanted: pa.Field, present: pa.Schema | pa.DataType, path: str) -> bool:
    name = f"{path}{wanted.name}"
    index = present.get_field_index(wanted.name)
    if index < 0:
        return True
    return _lacks_type(wanted.type, present.field(index).type, name)


def _lacks_type(wanted: pa.DataType, present: pa.DataType, name: str) -> bool:
    if pa.types.is_struct(wanted) and pa.types.is_struct(present):
        parts = (wanted.field(index) for index in range(wanted.num_fields))
        return sum(_lacks(part, present, f"{name}.") for part in parts) > 0
    if pa.types.is_list(wanted) and pa.types.is_list(present):
        return _lacks_type(wanted.value_type, present.value_type, f"{name}[]")
    if pa.types.is_map(wanted) and pa.types.is_map(present):
        return _lacks_type(wanted.item_type, present.item_type, f"{name}{{}}")
    if is_wider(wanted, present):
        return True
    if not is_storable(wanted, present):
        raise UnsupportedSchemaError(unfitting(name, str(wanted), present))
    return False


def _decode_span(
    values: Sequence[bytes],
    base: int,
    schema: WriterSchema,
    shape: TableShape,
    parts: list[pa.Table],
    kept: list[int],
    bad: dict[int, str],
) -> None:
    """Decode all values at once; when that fails, halve until the bad ones stand alone."""
    try:
        rows, places, unfit = _conformed(_read(values, schema), schema, shape)
        parts.append(rows)
        kept.extend((base + places).tolist())
        bad |= {base + place: _reason(schema, why) for place, why in unfit.items()}
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # pyruhvro's PanicException is no Exception
        if len(values) == 1:
            bad[base] = _reason(schema, f"{type(error).__name__}: {error}".rstrip(": "))
            return
        half = len(values) // 2
        _decode_span(values[:half], base, schema, shape, parts, kept, bad)
        _decode_span(values[half:], base + half, schema, shape, parts, kept, bad)


def _reason(schema: WriterSchema, why: str) -> str:
    return f"schema {schema.schema_id}: {why}"[:REASON_SIZE_MAX]


def _conformed(
    rows: pa.StructArray, schema: WriterSchema, shape: TableShape
) -> tuple[pa.Table, Int64s, dict[int, str]]:
    """Conform rows; return them with their places, and by its place why a row has a value that its column cannot hold."""
    places, unfit = np.arange(len(rows)), dict[int, str]()
    while True:
        try:
            return conform(rows, schema, shape), places, unfit
        except OtherBranchError as error:
            unfit |= dict.fromkeys(places[error.places].tolist(), str(error))
            rest = np.ones(len(rows), dtype=bool)
            rest[error.places] = False
            rows, places = rows.filter(pa.array(rest)), places[rest]


def _read(values: Sequence[bytes], schema: WriterSchema) -> pa.StructArray:
    """Decode with the writer's schema into the physical types.

    Arrow's own check follows, since pyruhvro takes strings as they come, valid UTF-8 or not.
    """
    if schema.is_fast:
        batch = pyruhvro.deserialize_array(values, schema.plain_json)
        batch.validate(full=True)
        return pa.StructArray.from_arrays(
            batch.columns, fields=[item.with_nullable(True) for item in batch.schema]
        )
    reader, parsed = _fastavro(schema.plain_json)
    rows = [reader(io.BytesIO(value), parsed, None) for value in values]
    return pa.array(rows, type=schema.mapped.physical)


@lru_cache(maxsize=100)
def _fastavro(plain_json: str) -> tuple[Any, Any]:
    import fastavro

    return fastavro.schemaless_reader, fastavro.parse_schema(json.loads(plain_json))


def conform(rows: pa.StructArray, schema: WriterSchema, shape: TableShape) -> pa.Table:
    """Turn rows of the writer's fields into rows of the table's columns.

    A column that the writer lacks gets its default, or null without one, and so does a field that a default lacks; extra
    fields cannot occur (see `decode`).
    """
    natural = schema.mapped.natural
    if schema.convert is not None:
        rows = schema.convert(rows)
    columns = [
        _child(rows, natural, column, column.name, shape.defaults, len(rows)) for column in shape.columns
    ]
    for column, values in zip(shape.columns, columns, strict=True):
        if not column.nullable and values.null_count:
            raise ValueError(f"the table requires column {column.name}, for which the event has no value")
    return pa.Table.from_arrays(columns, schema=shape.columns)


def _child(
    rows: pa.StructArray,
    natural: pa.DataType,
    column: pa.Field,
    path: str,
    defaults: Mapping[str, pa.Array],
    count: int,
) -> pa.Array:
    index = natural.get_field_index(column.name)
    if index >= 0:
        return _conform_array(rows.field(index), natural.field(index).type, column.type, path, defaults)
    default = defaults.get(path)
    if default is None or default.null_count:
        return pa.nulls(count, column.type)
    whole = _conform_array(default, default.type, column.type, path, defaults)
    return whole.take(pa.array(np.zeros(count, dtype=np.int64)))


def _conform_array(
    array: pa.Array, natural: pa.DataType, target: pa.DataType, path: str, defaults: Mapping[str, pa.Array]
) -> pa.Array:
    if pa.types.is_struct(target):
        children = [
            _child(
                array,
                natural,
                target.field(index),
                f"{path}.{target.field(index).name}",
                defaults,
                len(array),
            )
            for index in range(target.num_fields)
        ]
        fields = [target.field(index) for index in range(target.num_fields)]
        return pa.StructArray.from_arrays(
            children, fields=fields, mask=array.is_null() if array.null_count else None
        )
    if pa.types.is_list(target):
        items = _conform_array(array.values, natural.value_type, target.value_type, f"{path}[]", defaults)
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, items, type=target, mask=mask)
    if pa.types.is_map(target):
        items = _conform_array(array.items, natural.item_type, target.item_type, f"{path}{{}}", defaults)
        keys = array.keys.cast(target.key_type)
        mask = array.is_null() if array.null_count else None
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=mask)
    if array.type != natural:
        array = array.cast(natural)
    return array if array.type == target else array.cast(target)
