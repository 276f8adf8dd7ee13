"""Where a field's values go in a column that was made for other types of the field. Pure.

Owns the step from a type alone to a member of a union's struct, and from a union to a column of one of its types:
- a type alone goes to the member that is called as it is, in a struct with the union's members;
- of a union, the values that a column of one type can hold go into it, and a value of another branch is `OtherBranchError`;
- a union's values go into a record's column as parts of it: the branch of this record as its fields, others as members.
Types carry what Avro knows and Arrow does not as metadata of their fields: `MEMBER` marks a union's members, `TYPE` has a
field's type by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.load.column_types import is_storable, is_wider, table_type
from headrace.load.columns import Int64s
from headrace.load.names import distinct, parts

MEMBER: Final = {b"avro": b"member"}
TYPE: Final = b"avro.type"
TYPES_WITHOUT_NAME: Final = frozenset(
    ("boolean", "int", "long", "float", "double", "string", "bytes", "array", "map")
)

Convert = Callable[[pa.Array], pa.Array]


class OtherBranchError(Exception):
    """Values are of a union's branch that their column cannot hold."""

    def __init__(self, sentence: str, places: Int64s) -> None:
        super().__init__(sentence)
        self.places = places
        """Where they are in the array."""

    def outside(self, offsets: pa.Array) -> OtherBranchError:
        """Return the same of the lists that have these values as items."""
        lists = np.searchsorted(np.asarray(offsets), self.places, side="right") - 1
        return OtherBranchError(str(self), np.unique(lists))


@dataclass(frozen=True, slots=True)
class Step:
    """A type at its column's place; `convert` turns values of the former type into it, None where they are the same."""

    kind: pa.DataType
    convert: Convert | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """A record's type at its columns' places, and by the dotted path of each field its new path and step."""

    whole: Step
    fields: Mapping[str, tuple[str, Step]]

    def defaults(self, defaults: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the defaults that have a place, in its type."""
        found: dict[str, pa.Array] = {}
        for old, value in defaults.items():
            new, step = self.fields.get(old, (None, None))
            if new is not None and step is not None:
                found |= _default(new, step, value)
        return found


def place(kind: pa.DataType, columns: pa.DataType) -> Placement:
    """Place a record's fields in a table that has these columns."""
    placer = _Placer()
    return Placement(placer.struct(kind, columns, "", ""), placer.fields)


def is_union(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) and kind.field(0).metadata == MEMBER)


def type_names(kind: pa.DataType) -> str:
    """Return what a union's types are called, for a sentence."""
    return " or ".join(part.name for part in parts(kind))


@dataclass(slots=True)
class _Placer:
    """Walks one type beside its columns; `old` and `new` are dotted paths before and after."""

    fields: dict[str, tuple[str, Step]] = field(default_factory=dict)

    def struct(self, kind: pa.DataType, column: pa.DataType | None, old: str, new: str) -> Step:
        known = _types(column)
        wanted = list(parts(kind))
        names = distinct((part.name for part in wanted), known, is_part=bool(old))
        steps = [
            self._part(part, known.get(name), _inside(old, part.name), _inside(new, part.name))
            for part, name in zip(wanted, names, strict=True)
        ]
        placed = pa.struct([part.with_type(step.kind) for part, step in zip(wanted, steps, strict=True)])
        return Step(placed, _each_part(steps))

    def _part(self, part: pa.Field, column: pa.DataType | None, old: str, new: str) -> Step:
        step = self._any(part, column, old, new)
        self.fields[old] = new, step
        return step

    def _any(self, item: pa.Field, column: pa.DataType | None, old: str, new: str) -> Step:
        kind = item.type
        if column is not None and is_union(kind):
            return self._union(kind, column, old, new)
        name = _member_for(item, _types(column))
        if name is None:
            return self._same(kind, column, old, new)
        inner = self._same(kind, _types(column).get(name), old, _inside(new, name))
        return Step(pa.struct([pa.field(name, inner.kind, metadata=MEMBER)]), _as_member(name, inner))

    def _same(self, kind: pa.DataType, column: pa.DataType | None, old: str, new: str) -> Step:
        """Leave a value where it is, and place what is inside it."""
        if pa.types.is_struct(kind):
            return self.struct(kind, column, old, new)
        if pa.types.is_list(kind):
            inside = column.value_type if column is not None and pa.types.is_list(column) else None
            item = self._any(kind.value_field, inside, f"{old}[]", f"{new}[]")
            return Step(pa.list_(kind.value_field.with_type(item.kind)), _each_item(item))
        if pa.types.is_map(kind):
            inside = column.item_type if column is not None and pa.types.is_map(column) else None
            value = self._any(kind.item_field, inside, f"{old}{{}}", f"{new}{{}}")
            return Step(pa.map_(kind.key_type, kind.item_field.with_type(value.kind)), _each_value(value))
        return Step(kind)

    def _union(self, kind: pa.DataType, column: pa.DataType, old: str, new: str) -> Step:
        if not pa.types.is_struct(column):
            return self._held(kind, column, old, new)
        own = _own_record(kind, _types(column))
        return (
            self.struct(kind, column, old, new) if own is None else self._spread(kind, own, column, old, new)
        )

    def _held(self, kind: pa.DataType, column: pa.DataType, old: str, new: str) -> Step:
        """Take the branches of a union that a column of one type can hold."""
        steps = [self._same(part.type, column, _inside(old, part.name), new) for part in parts(kind)]
        target = _widest(column, (table_type(step.kind) for step in steps))
        held = {index: step for index, step in enumerate(steps) if _fits(table_type(step.kind), target)}
        if not held:
            return self._same(kind, None, old, new)
        whole = next(iter(held.values())).kind if len(held) == 1 else target
        return Step(whole, _one_of(kind, held, whole, column, new))

    def _spread(self, kind: pa.DataType, own: int, column: pa.DataType, old: str, new: str) -> Step:
        """Put the fields of a union's record beside the union's other members."""
        known = _types(column)
        members = list(parts(kind))
        steps = [
            self._same(part.type, column, _inside(old, part.name), new)
            if index == own
            else self._part(part, known.get(part.name), _inside(old, part.name), _inside(new, part.name))
            for index, part in enumerate(members)
        ]
        others = [
            part.with_type(step.kind)
            for index, (part, step) in enumerate(zip(members, steps, strict=True))
            if index != own
        ]
        return Step(pa.struct([*parts(steps[own].kind), *others]), _beside_members(own, steps))


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _types(column: pa.DataType | None) -> dict[str, pa.DataType]:
    """Return the types of a struct's parts by their names, none for what is no struct."""
    is_struct = column is not None and pa.types.is_struct(column)
    return {part.name: part.type for part in parts(column)} if is_struct else {}


def _is_alike(kind: pa.DataType, other: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) == pa.types.is_struct(other))


def _is_of_union(known: Mapping[str, pa.DataType]) -> bool:
    """Whether a struct's parts are a union's members: one of them is called as its type is."""
    return any(name in TYPES_WITHOUT_NAME and not pa.types.is_struct(kind) for name, kind in known.items())


def _member_for(item: pa.Field, known: Mapping[str, pa.DataType]) -> str | None:
    """Return the member of a union's struct that a type alone belongs to; None where the column is no such struct."""
    name = ((item.metadata or {}).get(TYPE) or b"").decode()
    if not name or not known:
        return None
    short = name.rpartition(".")[2]
    called = [each for each in (name.replace(".", "_"), short) if each in known]
    present = [each for each in called if _is_alike(item.type, known[each])]
    is_own = any(part in known for part in _types(item.type))
    if present and (_is_of_union(known) or not is_own):
        return present[0]
    return short if _is_of_union(known) and not is_own else None


def _own_record(kind: pa.DataType, known: Mapping[str, pa.DataType]) -> int | None:
    """Return which member of a union is the record that a column was made for, where it has no place as a member."""
    members = {part.name for part in parts(kind)}
    told = known.keys() - members - TYPES_WITHOUT_NAME
    for index, part in enumerate(parts(kind)):
        fields = _types(part.type).keys()
        if part.name not in known and fields & told and not fields & (members - {part.name}):
            return index
    return None


def _widest(column: pa.DataType, kinds: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type that a column has once it holds what it can be promoted to."""
    for kind in kinds:
        if is_wider(kind, column):
            column = kind
    return column


def _fits(kind: pa.DataType, column: pa.DataType) -> bool:
    if pa.types.is_struct(kind) and pa.types.is_struct(column):
        known = _types(column)
        return all(_fits(part.type, known[part.name]) for part in parts(kind) if part.name in known)
    if pa.types.is_list(kind) and pa.types.is_list(column):
        return _fits(kind.value_type, column.value_type)
    if pa.types.is_map(kind) and pa.types.is_map(column):
        return _fits(kind.item_type, column.item_type)
    return is_storable(kind, column) or is_wider(kind, column)


def _converted(step: Step, array: pa.Array) -> pa.Array:
    return array if step.convert is None else step.convert(array)


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _each_part(steps: Sequence[Step]) -> Convert | None:
    if all(step.convert is None for step in steps):
        return None

    def convert(array: pa.Array) -> pa.Array:
        children = [_converted(step, child) for step, child in zip(steps, array.flatten(), strict=True)]
        return _struct(list(parts(array.type)), children, _nulls(array))

    return convert


def _struct(fields: Sequence[pa.Field], children: Sequence[pa.Array], nulls: pa.Array | None) -> pa.Array:
    typed = [item.with_type(child.type) for item, child in zip(fields, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=typed, mask=nulls)


def _each_item(item: Step) -> Convert | None:
    if item.convert is None:
        return None

    def convert(array: pa.Array) -> pa.Array:
        items = _inside_lists(item, array.offsets, array.values)
        return pa.ListArray.from_arrays(array.offsets, items, mask=_nulls(array))

    return convert


def _each_value(value: Step) -> Convert | None:
    if value.convert is None:
        return None

    def convert(array: pa.Array) -> pa.Array:
        values = _inside_lists(value, array.offsets, array.items)
        return pa.MapArray.from_arrays(array.offsets, array.keys, values, mask=_nulls(array))

    return convert


def _inside_lists(step: Step, offsets: pa.Array, items: pa.Array) -> pa.Array:
    try:
        return _converted(step, items)
    except OtherBranchError as error:
        raise error.outside(offsets) from error


def _as_member(name: str, inner: Step) -> Convert:
    def convert(array: pa.Array) -> pa.Array:
        child = _converted(inner, array)
        return _struct([pa.field(name, child.type, metadata=MEMBER)], [child], _nulls(array))

    return convert


def _one_of(
    kind: pa.DataType, held: Mapping[int, Step], whole: pa.DataType, column: pa.DataType, path: str
) -> Convert:
    others = [(index, part.name) for index, part in enumerate(parts(kind)) if index not in held]

    def convert(array: pa.Array) -> pa.Array:
        members = array.flatten()
        for index, name in others:
            if members[index].null_count < len(array):
                places = np.flatnonzero(members[index].is_valid())
                raise OtherBranchError(unfitting(path, f"a value of {name}", column), places)
        found = [_converted(step, members[index]) for index, step in held.items()]
        if len(found) == 1:
            return found[0]
        typed = [each.cast(step.kind).cast(whole) for each, step in zip(found, held.values(), strict=True)]
        return pc.coalesce(*typed)

    return convert


def _beside_members(own: int, steps: Sequence[Step]) -> Convert:
    def convert(array: pa.Array) -> pa.Array:
        children = [_converted(step, child) for step, child in zip(steps, array.flatten(), strict=True)]
        members = list(parts(array.type))
        record = children.pop(own)
        del members[own]
        return _struct([*parts(record.type), *members], [*record.flatten(), *children], _nulls(array))

    return convert


def _default(path: str, step: Step, value: pa.Array) -> dict[str, pa.Array]:
    """Return a default at its new path, none where it is of a branch that the column cannot hold."""
    try:
        return {path: _converted(step, value).cast(table_type(step.kind))}
    except OtherBranchError:
        return {}


def unfitting(path: str, what: str, column: pa.DataType) -> str:
    """Say what a column cannot hold, and what to do."""
    return f"field {path} is {what}, but the table's column is {column}: rename the column, and the field gets its own"
