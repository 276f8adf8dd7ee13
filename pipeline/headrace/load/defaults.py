"""The defaults of fields that an event's writer did not know, as a property of the table.

Owns how they are kept: by a column's dotted path, an Arrow array of one value each, as an Arrow stream in base64. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

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
