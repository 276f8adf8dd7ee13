"""What an Avro schema is as a table: Arrow types, defaults, and which decoder may read it.

Owns the mapping of Avro to Arrow (and so to Iceberg). Every event column is optional in the table, since a later
schema may drop it. A field of several types is a struct with a member for each, of which one is set. An event of a union of
records is one of the record that it has, as if this were its schema. A schema that a table cannot hold (recursion, empty
records) raises `UnsupportedSchemaError` with a sentence. Must not know records, registries or files.

Decoders get a *plain* schema: logical types but `decimal` are removed, so that they see longs, ints and strings,
and the Arrow casts give the meaning back (pyruhvro panics on the logical types it does not know). A member of a union is
there a record with one field, whose bytes are the same, so that a value says which it is.
Source: https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from headrace.load.column_types import table_type
from headrace.load.names import new_names, renamed_defaults, renamed_type
from headrace.load.placement import MEMBER, TYPE, Convert, is_union, place

NESTING_MAX: Final = 32
NOTHING_AHEAD: Final = pa.schema([])
TYPES_MAX: Final = 5_000
"""Bounds a schema whose records use one another in ways that double at each level."""
PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


class UnsupportedSchemaError(Exception):
    """No table column can hold this schema; the message says which field and why."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """One Avro type: for the decoder (`plain`), in memory (`physical`), with its meaning (`natural`)."""

    plain: Any
    physical: pa.DataType
    natural: pa.DataType
    size_min: int
    """The fewest bytes a value takes; 0 in an array would let a few bytes claim endless items."""


@dataclass(frozen=True)
class WriterSchema:
    """A registered schema, ready to decode with.

    `defaults` maps a field's dotted path to its default, as an array of one value of the table's type.
    """

    schema_id: int
    mapped: Mapped
    defaults: Mapping[str, pa.Array] = field(default_factory=dict)
    written: WriterSchema | None = None
    """The schema as it is registered, where this one has a table's names and places."""
    convert: Convert | None = None
    """What brings decoded rows to their columns' places, where these differ."""

    @property
    def records(self) -> tuple[WriterSchema, ...]:
        return (self,)

    @cached_property
    def natural(self) -> pa.Schema:
        return pa.schema(list(_fields(self.mapped.natural)))

    @cached_property
    def table_fields(self) -> pa.Schema:
        """The columns that a table needs for this schema's events."""
        return pa.schema(list(_fields(table_type(self.mapped.natural))))

    @cached_property
    def plain_json(self) -> str:
        return json.dumps(self.mapped.plain)

    @cached_property
    def is_fast(self) -> bool:
        """True when pyruhvro reads it: it panics on bytes, fixed and decimal, and unions need to be told from records."""
        return not _is_slow(self.mapped.physical)

    @cached_property
    def unions(self) -> pa.Schema:
        """The columns of the fields that have several types."""
        several = [part.name for part in _fields(self.mapped.natural) if is_union(part.type)]
        return pa.schema([self.table_fields.field(name) for name in several])

    def named(self, columns: pa.Schema, ahead: pa.Schema = NOTHING_AHEAD) -> WriterSchema:
        """Return the schema with its fields called and placed as the columns of a table that has these of events.

        See `names` and `placement`.

        Args:
            ahead: columns that the table is going to get, which say where a field goes that has none yet.
        """
        written, present = self.written or self, pa.struct(list(columns))
        coming = [item for item in ahead if item.name not in columns.names]
        placed = written._placed(pa.struct([*columns, *coming]))
        names = new_names(placed.mapped.natural, present)
        if not names:
            return placed
        mapped = replace(placed.mapped, natural=renamed_type(placed.mapped.natural, names))
        defaults = renamed_defaults(placed.defaults, names)
        return replace(placed, mapped=mapped, defaults=defaults, written=written)

    def _placed(self, present: pa.DataType) -> WriterSchema:
        placement = place(self.mapped.natural, present)
        whole = placement.whole
        if whole.convert is None:
            return self
        mapped, defaults = replace(self.mapped, natural=whole.kind), placement.defaults(self.defaults)
        return replace(self, mapped=mapped, defaults=defaults, written=self, convert=whole.convert)


@dataclass(frozen=True)
class WriterUnion:
    """A registered union of records, each ready to decode with, or why it is not."""

    schema_id: int
    branches: tuple[WriterSchema | UnsupportedSchemaError, ...]

    @property
    def records(self) -> tuple[WriterSchema, ...]:
        return tuple(branch for branch in self.branches if isinstance(branch, WriterSchema))

    @property
    def unions(self) -> pa.Schema:
        found = {item.name: item for record in reversed(self.records) for item in record.unions}
        return pa.schema(list(found.values()))

    def named(self, columns: pa.Schema, ahead: pa.Schema = NOTHING_AHEAD) -> WriterUnion:
        """Return the union with its records' fields called and placed as a table's columns."""
        branches = (
            branch.named(columns, ahead) if isinstance(branch, WriterSchema) else branch
            for branch in self.branches
        )
        return WriterUnion(self.schema_id, tuple(branches))


EventSchema = WriterSchema | WriterUnion


def writer_schema(schema_id: int, avro: Any) -> WriterSchema:
    """Map a parsed Avro record (JSON) with all named types defined in it.

    Raises:
        UnsupportedSchemaError
    """
    return _record_schema(schema_id, avro, {})


def event_schema(schema_id: int, avro: Any) -> EventSchema:
    """Map a record, or a union of records.

    Raises:
        UnsupportedSchemaError
    """
    if not isinstance(avro, list):
        return writer_schema(schema_id, avro)
    named: dict[str, Any] = {}
    union = WriterUnion(schema_id, tuple(_branch(schema_id, branch, named) for branch in avro))
    if not union.records:
        raise UnsupportedSchemaError(
            "no branch of the schema is a record with a table: "
            + "; ".join(str(branch) for branch in union.branches)
        )
    return union


def _branch(schema_id: int, avro: Any, named: dict[str, Any]) -> WriterSchema | UnsupportedSchemaError:
    try:
        return _record_schema(schema_id, avro, named)
    except UnsupportedSchemaError as error:
        return error


def _record_schema(schema_id: int, avro: Any, named: dict[str, Any]) -> WriterSchema:
    """Map a record; `named` has the types that were defined before it, and gets its own."""
    mapper = _Mapper(named)
    mapped = None if avro == "null" else mapper.map(avro, "", "")
    if mapped is None or not pa.types.is_struct(mapped.natural) or is_union(mapped.natural):
        raise UnsupportedSchemaError(f"an event's schema is an Avro record, {_told(avro)} is not")
    return WriterSchema(schema_id, mapped, mapper.defaults)


def _told(avro: Any) -> str:
    return avro if isinstance(avro, str) else str(avro.get("name", avro["type"]))


class _Mapper:
    """Walks one schema; named types are remembered as they are defined."""

    def __init__(self, named: dict[str, Any]) -> None:
        self.defaults: dict[str, pa.Array] = {}
        self._written: dict[str, Any] = {}
        """The defaults as the schema has them, in JSON."""
        self._named = named
        self._open: list[str] = []
        self._count = 0

    def map(self, avro: Any, namespace: str, path: str) -> Mapped:
        if len(self._open) > NESTING_MAX:
            raise UnsupportedSchemaError(f"{path}: records nest deeper than {NESTING_MAX}")
        self._count += 1
        if self._count > TYPES_MAX:
            raise UnsupportedSchemaError(f"the schema unfolds to more than {TYPES_MAX} types")
        if isinstance(avro, list):
            return self._union(avro, namespace, path)
        if isinstance(avro, str):
            avro = {"type": avro}
        kind = avro.get("type")
        if isinstance(kind, dict | list):
            return self.map(kind, namespace, path)
        handler = {
            "record": self._record,
            "enum": self._enum,
            "fixed": self._fixed,
            "array": self._array,
            "map": self._map,
        }.get(kind)
        if handler is not None:
            return handler(avro, namespace, path)
        if kind in PRIMITIVES:
            return _primitive(avro, kind)
        return self._reference(kind, namespace, path)

    def _reference(self, kind: Any, namespace: str, path: str) -> Mapped:
        for name in (f"{namespace}.{kind}", kind):
            if name in self._open:
                raise UnsupportedSchemaError(
                    f"{path}: record {name} contains itself, which no column can hold"
                )
            if name in self._named:
                defined, defined_in = self._named[name]
                return self.map(defined, defined_in, path)
        raise UnsupportedSchemaError(f"{path or 'the schema'} has type {kind!r}, which no column can hold")

    def _name(self) -> str:
        """Name a type of the plain schema: it is defined anew at each place, and names must differ."""
        return f"T{self._count}"

    def _define(self, avro: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """Remember a named type; return its full name and the namespace for names inside it."""
        name = str(avro["name"])
        full = name if "." in name else ".".join(filter(None, (avro.get("namespace", namespace), name)))
        self._named[full] = (avro, namespace)
        return full, full.rpartition(".")[0]

    def _record(self, avro: Mapping[str, Any], namespace: str, path: str) -> Mapped:
        full, inner = self._define(avro, namespace)
        if full in self._open:
            raise UnsupportedSchemaError(f"{path}: record {full} contains itself, which no column can hold")
        if not avro["fields"]:
            raise UnsupportedSchemaError(f"record {full} has no fields, which no column can hold")
        self._open.append(full)
        plain_name = self._name()
        parts: list[tuple[str, Mapped]] = []
        natural: list[pa.Field] = []
        for item in avro["fields"]:
            inside = f"{path}.{item['name']}" if path else str(item["name"])
            mapped = self.map(item["type"], inner, inside)
            if "default" in item:
                self._written[inside] = item["default"]
                self.defaults[inside] = _default(mapped, inside, self._written)
            parts.append((str(item["name"]), mapped))
            natural.append(_alone(str(item["name"]), mapped, item["type"], inner))
        self._open.pop()
        return Mapped(
            {
                "type": "record",
                "name": plain_name,
                "fields": [{"name": name, "type": part.plain} for name, part in parts],
            },
            pa.struct([pa.field(name, part.physical) for name, part in parts]),
            pa.struct(natural),
            sum(part.size_min for _, part in parts),
        )

    def _enum(self, avro: Mapping[str, Any], namespace: str, path: str) -> Mapped:
        self._define(avro, namespace)
        plain = {"type": "enum", "name": self._name(), "symbols": avro["symbols"]}
        return Mapped(plain, pa.string(), pa.string(), 1)

    def _fixed(self, avro: Mapping[str, Any], namespace: str, path: str) -> Mapped:
        self._define(avro, namespace)
        plain: dict[str, Any] = {"type": "fixed", "name": self._name(), "size": avro["size"]}
        decimal = _decimal(avro)
        if decimal is not None:
            plain |= {"logicalType": "decimal", "precision": decimal.precision, "scale": decimal.scale}
            return Mapped(plain, decimal, decimal, int(avro["size"]))
        return Mapped(plain, pa.binary(int(avro["size"])), pa.binary(int(avro["size"])), int(avro["size"]))

    def _array(self, avro: Mapping[str, Any], namespace: str, path: str) -> Mapped:
        item = self.map(avro["items"], namespace, f"{path}[]")
        if item.size_min == 0:
            raise UnsupportedSchemaError(
                f"{path}: an array of items without bytes could claim any number of them"
            )
        plain = {"type": "array", "items": item.plain}
        natural = pa.list_(_alone("item", item, avro["items"], namespace))
        return Mapped(plain, pa.list_(item.physical), natural, 1)

    def _map(self, avro: Mapping[str, Any], namespace: str, path: str) -> Mapped:
        value = self.map(avro["values"], namespace, f"{path}{{}}")
        plain = {"type": "map", "values": value.plain}
        natural = pa.map_(pa.string(), _alone("value", value, avro["values"], namespace))
        return Mapped(plain, pa.map_(pa.string(), value.physical), natural, 1)

    def _union(self, branches: list[Any], namespace: str, path: str) -> Mapped:
        types = [branch for branch in branches if not _is_null(branch)]
        if len(types) > 1:
            return self._members(branches, namespace, path)
        if not types:
            raise UnsupportedSchemaError(f"{path} is always null, which no column can hold")
        mapped = self.map(types[0], namespace, path)
        plain = [mapped.plain if branch == types[0] else "null" for branch in branches]
        if len(plain) == 1:
            plain.append("null")  # the same bytes, and pyruhvro makes no union of it
        return Mapped(plain, mapped.physical, mapped.natural, 1)

    def _members(self, branches: list[Any], namespace: str, path: str) -> Mapped:
        """Map a union of several types, each by its name."""
        plain_name = self._name()
        names = _member_names(branches, namespace)
        parts = {
            index: (name, self.map(branches[index], namespace, f"{path}.{name}"))
            for index, name in names.items()
        }
        plain = [
            {
                "type": "record",
                "name": f"{plain_name}_{index}",
                "fields": [{"name": parts[index][0], "type": parts[index][1].plain}],
            }
            if index in parts
            else "null"
            for index in range(len(branches))
        ]
        members = parts.values()
        return Mapped(
            plain,
            pa.struct([pa.field(name, part.physical, metadata=MEMBER) for name, part in members]),
            pa.struct([pa.field(name, part.natural, metadata=MEMBER) for name, part in members]),
            1,
        )


def _is_null(branch: Any) -> bool:
    return branch in ("null", {"type": "null"})


def _member_names(branches: list[Any], namespace: str) -> dict[int, str]:
    """Return by branch but null what it is called: its type, without the namespace where others are not called so as well."""
    full = {
        index: _type_name(branch, namespace) for index, branch in enumerate(branches) if not _is_null(branch)
    }
    short = {index: name.rpartition(".")[2] for index, name in full.items()}
    used = Counter(short.values())
    return {
        index: name if used[name] == 1 else full[index].replace(".", "_") for index, name in short.items()
    }


def _type_name(branch: Any, namespace: str) -> str:
    """Return a branch's full name; that of a type without a name is its kind."""
    if isinstance(branch, str):
        return branch
    name = branch.get("name", branch["type"])
    inside = branch.get("namespace", namespace) if "name" in branch and "." not in name else ""
    return ".".join(filter(None, (inside, name)))


def _alone(name: str, mapped: Mapped, avro: Any, namespace: str) -> pa.Field:
    """Return a field that knows what its type is called, unless it has several."""
    if is_union(mapped.natural):
        return pa.field(name, mapped.natural)
    return pa.field(name, mapped.natural, metadata={TYPE: _type_name(_one_type(avro), namespace).encode()})


def _one_type(avro: Any) -> Any:
    """Return the one type that a type which says it in several steps is."""
    while not isinstance(avro, str):
        inside = next(each for each in avro if not _is_null(each)) if isinstance(avro, list) else avro["type"]
        if isinstance(inside, str) and isinstance(avro, dict):
            return avro
        avro = inside
    return avro


def _primitive(avro: Mapping[str, Any], kind: str) -> Mapped:
    size_min = {"float": 4, "double": 8}.get(kind, 1)
    decimal = _decimal(avro) if kind == "bytes" else None
    if decimal is not None:
        plain = {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": decimal.precision,
            "scale": decimal.scale,
        }
        return Mapped(plain, decimal, decimal, size_min)
    physical = PRIMITIVES[kind]
    return Mapped(kind, physical, LOGICAL.get((kind, str(avro.get("logicalType"))), physical), size_min)


def _decimal(avro: Mapping[str, Any]) -> pa.Decimal128Type | None:
    """Return a decimal's type; an invalid one is ignored, as Avro's specification asks, and stays bytes."""
    if avro.get("logicalType") != "decimal":
        return None
    precision, scale = avro.get("precision", 0), avro.get("scale", 0)
    if not (0 < precision <= 38 and 0 <= scale <= precision):
        return None
    return pa.decimal128(precision, scale)


def _default(mapped: Mapped, path: str, written: Mapping[str, Any]) -> pa.Array:
    value, target = written[path], table_type(mapped.natural)
    try:
        array = pa.array([_python_value(value, mapped.physical, path, written)], type=mapped.physical)
        return array.cast(mapped.natural).cast(target)
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
        raise UnsupportedSchemaError(f"{path}: the default {value!r} is no {mapped.natural}") from error


def _python_value(value: Any, physical: pa.DataType, path: str, written: Mapping[str, Any]) -> Any:
    """Turn an Avro default in JSON into what Arrow takes (bytes are written as ISO-8859-1 text)."""
    if value is None:
        return None
    if is_union(physical):
        # A union's default is one of its first type.
        first = physical.field(0)
        return {first.name: _python_value(value, first.type, f"{path}.{first.name}", written)}
    if pa.types.is_decimal(physical):
        unscaled = int.from_bytes(value.encode("iso-8859-1"), "big", signed=True)
        return Decimal(unscaled).scaleb(-physical.scale)
    if pa.types.is_binary(physical) or pa.types.is_fixed_size_binary(physical):
        return value.encode("iso-8859-1")
    if pa.types.is_struct(physical):
        return {part.name: _part_value(value, part, path, written) for part in _fields(physical)}
    if pa.types.is_list(physical):
        return [_python_value(item, physical.value_type, f"{path}[]", written) for item in value]
    if pa.types.is_map(physical):
        inside = f"{path}{{}}"
        return [
            (key, _python_value(item, physical.item_type, inside, written)) for key, item in value.items()
        ]
    return value


def _part_value(value: Mapping[str, Any], part: pa.Field, path: str, written: Mapping[str, Any]) -> Any:
    """Return what a record's default has for a field, or else the field's own default."""
    inside = f"{path}.{part.name}"
    return _python_value(value.get(part.name, written.get(inside)), part.type, inside, written)


def _fields(struct: pa.DataType) -> Iterator[pa.Field]:
    return (struct.field(index) for index in range(struct.num_fields))


def _is_slow(physical: pa.DataType) -> bool:
    if pa.types.is_struct(physical):
        return is_union(physical) or any(_is_slow(part.type) for part in _fields(physical))
    if pa.types.is_list(physical):
        return _is_slow(physical.value_type)
    if pa.types.is_map(physical):
        return _is_slow(physical.item_type)
    return bool(
        pa.types.is_binary(physical)
        or pa.types.is_fixed_size_binary(physical)
        or pa.types.is_decimal(physical)
    )
