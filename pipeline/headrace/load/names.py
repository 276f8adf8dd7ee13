"""What a table's columns are called: its own, and the events' beside them.

Owns the rule, which whoever writes or grows a table goes by. Pure. The rule for an event's field:
- it is a column of its own name, a field of a nested record a part of its own name;
- a column whose name is one of `RESERVED`, without regard to case and to underscores at its end, has one more underscore at
  its end (`_file` is `_file_`, `_file_` is `_file__`), so that no two fields get one name;
- of the fields of one record that differ in case alone, the first that the table got keeps its name; another one says
  behind its name which of its letters are capitals (`spell`), whatever else there is or will be.
Sources: Iceberg's `MetadataColumns`; Spark and DuckDB compare names without regard to case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa

DATACENTER: Final = "_datacenter"
TOPIC: Final = "_topic"
TOPIC_PARTITION: Final = "_topic_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
KEY: Final = "_key"
HEADERS: Final = "_headers"
ERROR: Final = "_error"
"""A column of DataFrames alone."""
LIFE: Final = "_life"
"""How often a partition's log had been given up for another one when a row was read; empty in the first life. Tables get
the column with the first such change."""
OWN_COLUMNS: Final = (DATACENTER, TOPIC, TOPIC_PARTITION, OFFSET, TIMESTAMP, KEY, HEADERS, LIFE)
FORMER_PARTITION: Final = "_partition"
"""What `_topic_partition` was called: a name that Iceberg reserves, so that Spark refused every table with it."""
METADATA_COLUMNS: Final = (
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
    "_change_type",
    "_change_ordinal",
    "_commit_snapshot_id",
)
RESERVED: Final = frozenset((*OWN_COLUMNS, ERROR, *METADATA_COLUMNS))
SPELLED: Final = re.compile(r".+_capitals_[0-9a-f]+", re.IGNORECASE)

Names = Mapping[str, str]
"""New names by the dotted paths of the old ones: `a.b`, in lists `a[].b`, in maps `a{}.b`; other names stay."""


def partition_column(names: Iterable[str]) -> str:
    """Return what the partition's column is called among a table's or a file's: older ones have the former name."""
    known = frozenset(names)
    return FORMER_PARTITION if FORMER_PARTITION in known and TOPIC_PARTITION not in known else TOPIC_PARTITION


def column_of(name: str, *, is_part: bool) -> str:
    """Return the column of a field that differs from no other in case alone; parts of columns may have reserved names."""
    stem = name.rstrip("_")
    is_taken = SPELLED.fullmatch(stem) is not None or (not is_part and stem.lower() in RESERVED)
    return f"{name}_" if is_taken else name


def spell(name: str) -> str:
    """Return a name that no other spelling of it has: with a bit for each letter, the first the lowest, set for capitals."""
    capitals = sum(1 << place for place, letter in enumerate(name) if letter != letter.lower())
    return f"{name}_capitals_{capitals:x}"


def distinct(fields: Iterable[str], present: Iterable[str], *, is_part: bool = False) -> list[str]:
    """Return the columns of one record's fields in a table that has the columns `present` there."""
    known = set(present)
    taken = {name.lower() for name in known}
    columns = []
    for field in fields:
        name = column_of(field, is_part=is_part)
        if spell(name) in known or (name not in known and name.lower() in taken):
            name = spell(name)
        taken.add(name.lower())
        columns.append(name)
    return columns


def new_names(fields: pa.DataType, present: pa.DataType | None, path: str = "") -> dict[str, str]:
    """Return the fields of a record that have another name as columns of a table, nested ones included.

    Args:
        fields: the record, as a struct.
        present: what the table has at this place, a struct, or None for nothing yet.
    """
    known = {part.name: part.type for part in parts(present)} if present is not None else {}
    wanted = list(parts(fields))
    found: dict[str, str] = {}
    for part, name in zip(
        wanted, distinct((part.name for part in wanted), known, is_part=bool(path)), strict=True
    ):
        inside = f"{path}.{part.name}" if path else part.name
        if name != part.name:
            found[inside] = name
        found |= _new_names_inside(part.type, known.get(name), inside)
    return found


def _new_names_inside(kind: pa.DataType, present: pa.DataType | None, path: str) -> dict[str, str]:
    if pa.types.is_struct(kind):
        return new_names(kind, present if present is not None and pa.types.is_struct(present) else None, path)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inside = present.value_type if present is not None and pa.types.is_list(present) else None
        return _new_names_inside(kind.value_type, inside, f"{path}[]")
    if pa.types.is_map(kind):
        inside = present.item_type if present is not None and pa.types.is_map(present) else None
        return _new_names_inside(kind.item_type, inside, f"{path}{{}}")
    return {}


def renamed_type(kind: pa.DataType, names: Names, path: str = "") -> pa.DataType:
    """Return a type with its parts' new names."""
    if pa.types.is_struct(kind):
        fields = []
        for part in parts(kind):
            inside = f"{path}.{part.name}" if path else part.name
            name = names.get(inside, part.name)
            fields.append(part.with_name(name).with_type(renamed_type(part.type, names, inside)))
        return pa.struct(fields)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(renamed_type(kind.value_type, names, f"{path}[]")))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_type, kind.item_field.with_type(renamed_type(kind.item_type, names, f"{path}{{}}"))
        )
    return kind


def renamed_path(path: str, names: Names) -> str:
    """Return a dotted path in new names."""
    known, found = "", []
    for part in path.split("."):
        name = part.rstrip("[]{}")
        inside = part[len(name) :]
        known = f"{known}.{name}" if known else name
        found.append(names.get(known, name) + inside)
        known += inside
    return ".".join(found)


def renamed_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values whose parts are called as in a type that differs from theirs in names alone."""
    if array.type == kind:
        return array
    mask = array.is_null()
    if pa.types.is_struct(kind):
        children = [renamed_array(array.field(index), part.type) for index, part in enumerate(parts(kind))]
        return pa.StructArray.from_arrays(children, fields=list(parts(kind)), mask=mask)
    if pa.types.is_list(kind):
        values = renamed_array(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=mask)
    items = renamed_array(array.items, kind.item_type)
    return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=mask)


def renamed_defaults(defaults: Mapping[str, pa.Array], names: Names) -> dict[str, pa.Array]:
    """Return defaults by their paths in new names, with their parts' new names."""
    return {
        renamed_path(path, names): renamed_array(value, renamed_type(value.type, names, path))
        for path, value in defaults.items()
    }


def parts(struct: pa.DataType) -> Iterator[pa.Field]:
    return (struct.field(index) for index in range(struct.num_fields))
