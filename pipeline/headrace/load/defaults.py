"""The defaults of fields that an event's writer did not know, as a property of the table.

Owns how they are kept: by a column's dotted path, an Arrow array of one value each, as an Arrow stream in base64; and which of
them belong to the columns that the table has now, since a person may rename or drop one, and its name may be used again. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from headrace.load.column_types import is_storable
from headrace.load.names import parts

DEFAULTS_PROPERTY: Final = "headrace.defaults"

Defaults = Mapping[str, pa.Array]


def read_defaults(properties: Mapping[str, str]) -> dict[str, pa.Array]:
    """Return the defaults that a table's properties hold."""
    packed = properties.get(DEFAULTS_PROPERTY)
    if packed is None:
        return {}
    with pa.ipc.open_stream(base64.b64decode(packed)) as reader:
        rows = reader.read_all()
    return {name: rows.column(name).combine_chunks() for name in rows.column_names}


def as_properties(defaults: Defaults) -> dict[str, str]:
    """Return the properties that hold defaults, none for none."""
    if not defaults:
        return {}
    rows = pa.table(dict(defaults))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return {DEFAULTS_PROPERTY: base64.b64encode(sink.getvalue()).decode()}


def fitting(defaults: Defaults, columns: pa.Schema) -> dict[str, pa.Array]:
    """Return the defaults that have a column which can hold them."""
    kinds = dict(_kinds(pa.struct(list(columns)), ""))
    return {
        path: default
        for path, default in defaults.items()
        if path in kinds and _can_hold(kinds[path], default.type)
    }


def _kinds(kind: pa.DataType, path: str) -> Iterator[tuple[str, pa.DataType]]:
    """Yield path and type of all columns and of the parts inside them."""
    if pa.types.is_struct(kind):
        for part in parts(kind):
            inside = f"{path}.{part.name}" if path else part.name
            yield inside, part.type
            yield from _kinds(part.type, inside)
    elif pa.types.is_list(kind):
        yield from _kinds(kind.value_type, f"{path}[]")
    elif pa.types.is_map(kind):
        yield from _kinds(kind.item_type, f"{path}{{}}")


def _can_hold(column: pa.DataType, default: pa.DataType) -> bool:
    """Whether a default has the column's type or a narrower one; parts that the column lacks are left out of a row."""
    if pa.types.is_struct(column) and pa.types.is_struct(default):
        known = {part.name: part.type for part in parts(column)}
        return all(_can_hold(known[part.name], part.type) for part in parts(default) if part.name in known)
    if pa.types.is_list(column) and pa.types.is_list(default):
        return _can_hold(column.value_type, default.value_type)
    if pa.types.is_map(column) and pa.types.is_map(default):
        return _can_hold(column.item_type, default.item_type)
    return is_storable(default, column)
