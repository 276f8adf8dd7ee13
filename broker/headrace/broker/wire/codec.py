"""Compiles the notation of `fields` into readers and writers, one pair a struct and version.

A reader takes (view, offset) and returns (value, offset behind it); a writer appends to a bytearray. Runs
of fields of fixed size share one struct call. Strings and counts are checked against the bytes that are
left before anything is allocated, so a small frame can never cost much memory. Readers may also raise
IndexError, struct.error or OverlongError at the end of the view; `schema.Api` turns these into
MalformedError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from struct import Struct as Packer
from struct import error as StructError
from struct import pack, unpack_from
from typing import Any
from uuid import UUID as Uuid

from headrace.broker.wire.fields import (
    BYTES,
    RECORDS,
    STRING,
    UUID,
    ZERO_UUID,
    Array,
    EncodeError,
    Field,
    FieldType,
    MalformedError,
    Message,
    Primitive,
    Struct,
    new_message,
)
from headrace.broker.wire.varint import Bytes, encode_uvarint, read_uvarint

Reader = Callable[[memoryview, int], tuple[Any, int]]
Writer = Callable[[bytearray, Any], None]
_SizeReader = Callable[[memoryview, int], tuple[int, int]]
_ReadStep = Callable[[Message, memoryview, int], int]
_WriteStep = Callable[[bytearray, Message], None]

STRING_SIZE_MAX = 0x7FFF
# A byte that is no UTF-8 becomes U+FFFD, which has three.
STRING_SIZE_SAFE = STRING_SIZE_MAX // 3
_INT16 = Packer(">h")
_INT32 = Packer(">i")
_UUID_SIZE = 16
_NO_UUID = bytes(_UUID_SIZE)


class Budget:
    """How many elements all arrays of one message may have, tagged fields included: a byte of a frame may cost a hundred
    in memory, and half a microsecond.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = 0

    def begin(self, count_max: int) -> None:
        """A new message is read."""
        self._left = count_max

    def spend(self, count: int) -> None:
        """Raises MalformedError when the message has too many elements."""
        self._left -= count
        if self._left < 0:
            raise MalformedError(f"a request has too many elements: {-self._left} above the bound")


def compile_reader(struct: Struct, version: int, *, flexible: bool, budget: Budget | None = None) -> Reader:
    """A reader of the struct's fields in one version; every field the version lacks gets its default.

    Elements of arrays and tagged fields are taken from `budget`, which the caller begins for each message.
    """
    present = [field for field in struct.fields if field.present_in(version)]
    tagged = {
        field.tag: _value_reader(field, version, flexible, budget)
        for field in present
        if field.tag is not None
    }
    tag_names = {field.tag: field.name for field in present if field.tag is not None}
    steps = _read_steps([field for field in present if field.tag is None], version, flexible, budget)
    defaulted = [field for field in struct.fields if field not in present or field.tag is not None]
    constants = {field.name: field.new_default() for field in defaulted}
    mutable = [field for field in defaulted if isinstance(constants[field.name], list | dict)]

    def read_tagged(message: Message, view: memoryview, offset: int) -> int:
        count, offset = read_uvarint(view, offset)
        if count and budget is not None:
            budget.spend(count)
        for _ in range(count):
            tag, offset = read_uvarint(view, offset)
            size, offset = read_uvarint(view, offset)
            end = offset + size
            if end > len(view):
                raise MalformedError(f"a tagged field of {size} bytes runs past the end of the frame")
            if tag in tagged:
                message[tag_names[tag]], stop = tagged[tag](view, offset)
                if stop != end:
                    raise MalformedError(f"tagged field {tag_names[tag]} is not the {size} bytes it claims")
            offset = end
        return offset

    if flexible:
        steps.append(read_tagged)

    def read(view: memoryview, offset: int) -> tuple[Message, int]:
        message = constants.copy()
        for field in mutable:
            message[field.name] = field.new_default()
        for step in steps:
            offset = step(message, view, offset)
        return message, offset

    return read


def _read_steps(
    fields: Sequence[Field], version: int, flexible: bool, budget: Budget | None
) -> list[_ReadStep]:
    steps: list[_ReadStep] = []
    for fixed, run in groupby(fields, _is_fixed):
        if fixed:
            steps.append(_fixed_read_step(list(run)))
        else:
            steps += [
                _read_step(field.name, _value_reader(field, version, flexible, budget)) for field in run
            ]
    return steps


def _is_fixed(field: Field) -> bool:
    return isinstance(field.type, Primitive) and field.type.format != ""


def _packer(fields: Sequence[Field]) -> Packer:
    return Packer(">" + "".join(field.type.format for field in fields if isinstance(field.type, Primitive)))


def _fixed_read_step(fields: Sequence[Field]) -> _ReadStep:
    packer = _packer(fields)
    names = [field.name for field in fields]
    unpack, size = packer.unpack_from, packer.size

    def step(message: Message, view: memoryview, offset: int) -> int:
        message.update(zip(names, unpack(view, offset), strict=True))
        return offset + size

    return step


def _read_step(name: str, read: Reader) -> _ReadStep:
    def step(message: Message, view: memoryview, offset: int) -> int:
        message[name], offset = read(view, offset)
        return offset

    return step


def _value_reader(field: Field, version: int, flexible: bool, budget: Budget | None) -> Reader:
    """A reader of one value; a null is refused unless the field is nullable in this version."""
    read = _type_reader(field.type, version, flexible, budget, nullable=field.nullable_in(version))
    if field.nullable_in(version) or _is_fixed(field) or field.type is RECORDS:
        return read

    def read_present(view: memoryview, offset: int) -> tuple[Any, int]:
        value, offset = read(view, offset)
        if value is None:
            raise MalformedError(f"{field.name} is null, which version {version} does not allow")
        return value, offset

    return read_present


def _type_reader(
    kind: FieldType, version: int, flexible: bool, budget: Budget | None, *, nullable: bool = False
) -> Reader:
    if isinstance(kind, Array):
        return _array_reader(kind, version, flexible, budget)
    if isinstance(kind, Struct):
        read = compile_reader(kind, version, flexible=flexible, budget=budget)
        return _nullable_struct_reader(read) if nullable else read
    if kind.format:
        return _fixed_reader(kind)
    if kind is UUID:
        return _read_uuid
    if kind is STRING:
        return _string_reader(_read_compact_size if flexible else _read_int16)
    return _bytes_reader(_read_compact_size if flexible else _read_int32)


def _fixed_reader(kind: Primitive) -> Reader:
    packer = Packer(">" + kind.format)

    def read(view: memoryview, offset: int) -> tuple[Any, int]:
        return packer.unpack_from(view, offset)[0], offset + packer.size

    return read


def _nullable_struct_reader(read: Reader) -> Reader:
    def read_nullable(view: memoryview, offset: int) -> tuple[Message | None, int]:
        return read(view, offset + 1) if view[offset] < 0x80 else (None, offset + 1)

    return read_nullable


def _read_uuid(view: memoryview, offset: int) -> tuple[Uuid, int]:
    end = offset + _UUID_SIZE
    if end > len(view):
        raise MalformedError("a uuid runs past the end of the frame")
    data = bytes(view[offset:end])
    # Who names topics gives no ids, and says so for each of them.
    return (ZERO_UUID if data == _NO_UUID else Uuid(bytes=data)), end


def _read_int16(view: memoryview, offset: int) -> tuple[int, int]:
    return _INT16.unpack_from(view, offset)[0], offset + 2


def _read_int32(view: memoryview, offset: int) -> tuple[int, int]:
    return _INT32.unpack_from(view, offset)[0], offset + 4


def _read_compact_size(view: memoryview, offset: int) -> tuple[int, int]:
    size, offset = read_uvarint(view, offset)
    return size - 1, offset


def _string_reader(read_size: _SizeReader) -> Reader:
    """Bytes that are no UTF-8 become U+FFFD, as in Kafka."""

    def read(view: memoryview, offset: int) -> tuple[str | None, int]:
        size, offset = read_size(view, offset)
        if size < 0:
            return None, offset
        end = offset + size
        if end > len(view) or size > STRING_SIZE_MAX:
            raise MalformedError(f"a string of {size} bytes is too long or runs past the end of the frame")
        text = str(view[offset:end], "utf-8", "replace")
        if size > STRING_SIZE_SAFE and len(text.encode()) > STRING_SIZE_MAX:
            raise MalformedError(f"a string of {size} bytes that are no UTF-8 is too long to be said again")
        return text, end

    return read


def _bytes_reader(read_size: _SizeReader) -> Reader:
    def read(view: memoryview, offset: int) -> tuple[memoryview | None, int]:
        size, offset = read_size(view, offset)
        if size < 0:
            return None, offset
        end = offset + size
        if end > len(view):
            raise MalformedError(f"{size} bytes run past the end of the frame")
        return view[offset:end], end

    return read


def _array_reader(kind: Array, version: int, flexible: bool, budget: Budget | None) -> Reader:
    read_size = _read_compact_size if flexible else _read_int32
    fixed_format = kind.of.format if isinstance(kind.of, Primitive) else ""
    read_element = _type_reader(kind.of, version, flexible, budget)
    nulls_refused = not fixed_format

    def read(view: memoryview, offset: int) -> tuple[list[Any] | None, int]:
        count, offset = read_size(view, offset)
        if count < 0:
            return None, offset
        if count > len(view) - offset:
            raise MalformedError(
                f"an array of {count} elements does not fit the {len(view) - offset} bytes left"
            )
        if budget is not None:
            budget.spend(count)
        if fixed_format:
            elements = unpack_from(f">{count}{fixed_format}", view, offset)
            return list(elements), offset + count * Packer(">" + fixed_format).size
        values = []
        for _ in range(count):
            value, offset = read_element(view, offset)
            values.append(value)
        if nulls_refused and None in values:
            raise MalformedError("an array has a null element")
        return values, offset

    return read


def compile_writer(struct: Struct, version: int, *, flexible: bool) -> Writer:
    """A writer of the struct's fields in one version; a field missing in the dict is written as its default.

    The writer raises EncodeError for a name the struct does not know (a slip that would otherwise be lost
    silently) and for a value other than the default in a field that the version lacks and must not ignore.
    """
    present = [field for field in struct.fields if field.present_in(version)]
    lost = [field for field in struct.fields if field not in present and not field.ignorable]
    names = frozenset(field.name for field in struct.fields)
    steps = _write_steps([field for field in present if field.tag is None], version, flexible)
    if flexible:
        tagged = sorted(
            (field for field in present if field.tag is not None), key=lambda field: field.tag or 0
        )
        steps.append(_tagged_write_step(tagged, version))

    def write(out: bytearray, message: Message) -> None:
        if not message.keys() <= names:
            raise EncodeError(f"no such field: {', '.join(sorted(message.keys() - names))}")
        for field in lost:
            if field.name in message and not _is_default(field, message[field.name]):
                raise EncodeError(f"version {version} has no field {field.name}, and it must not be left out")
        for step in steps:
            step(out, message)

    return write


def _is_default(field: Field, value: Any) -> bool:
    default = field.new_default()
    if isinstance(default, dict) and isinstance(value, dict) and isinstance(field.type, Struct):
        return new_message(field.type) | value == default
    if isinstance(default, list) and value is not None:
        return len(value) == 0
    return bool(value == default)


def _write_steps(fields: Sequence[Field], version: int, flexible: bool) -> list[_WriteStep]:
    steps: list[_WriteStep] = []
    for fixed, run in groupby(fields, _is_fixed):
        if fixed:
            steps.append(_fixed_write_step(list(run)))
        else:
            steps += [_write_step(field, _value_writer(field, version, flexible)) for field in run]
    return steps


def _fixed_write_step(fields: Sequence[Field]) -> _WriteStep:
    defaults = [(field.name, field.new_default()) for field in fields]
    pack_values = _packer(fields).pack

    def step(out: bytearray, message: Message) -> None:
        get = message.get
        try:
            out += pack_values(*[get(name, default) for name, default in defaults])
        except StructError as error:
            values = {name: get(name, default) for name, default in defaults}
            raise EncodeError(f"a number does not fit its field in {values}: {error}") from None

    return step


def _write_step(field: Field, write: Writer) -> _WriteStep:
    name = field.name

    def step(out: bytearray, message: Message) -> None:
        write(out, message[name] if name in message else field.new_default())

    return step


def _tagged_write_step(fields: Sequence[Field], version: int) -> _WriteStep:
    writers = [(field, _value_writer(field, version, flexible=True)) for field in fields]

    def step(out: bytearray, message: Message) -> None:
        written = [
            (field.tag or 0, write, message[field.name])
            for field, write in writers
            if field.name in message and not _is_default(field, message[field.name])
        ]
        out += encode_uvarint(len(written))
        for tag, write, value in written:
            body = bytearray()
            write(body, value)
            out += encode_uvarint(tag) + encode_uvarint(len(body)) + body

    return step


def _value_writer(field: Field, version: int, flexible: bool) -> Writer:
    nullable = field.nullable_in(version) or field.type is RECORDS
    write = _type_writer(field.type, version, flexible)
    null = _null_of(field.type, flexible)
    prefix = b"\x01" if isinstance(field.type, Struct) and nullable else b""

    def write_value(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise EncodeError(f"{field.name} is None, which version {version} does not allow")
            out += null
            return
        out += prefix
        try:
            write(out, value)
        except (StructError, TypeError, AttributeError, UnicodeEncodeError) as error:
            raise EncodeError(f"{field.name} cannot be written: {error}") from None

    return write_value


def _null_of(kind: FieldType, flexible: bool) -> bytes:
    if isinstance(kind, Struct):
        return b"\xff"
    if flexible:
        return b"\x00"
    return _INT16.pack(-1) if kind is STRING else _INT32.pack(-1)


def _type_writer(kind: FieldType, version: int, flexible: bool) -> Writer:
    if isinstance(kind, Array):
        return _array_writer(kind, version, flexible)
    if isinstance(kind, Struct):
        return compile_writer(kind, version, flexible=flexible)
    if kind.format:
        return _fixed_writer(kind)
    if kind is UUID:
        return _write_uuid
    if kind is STRING:
        return _write_compact_string if flexible else _write_string
    assert kind in (BYTES, RECORDS)
    return _write_compact_bytes if flexible else _write_bytes


def _fixed_writer(kind: Primitive) -> Writer:
    pack_value = Packer(">" + kind.format).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack_value(value)

    return write


def _write_uuid(out: bytearray, value: Uuid) -> None:
    out += value.bytes


def _write_string(out: bytearray, value: str) -> None:
    encoded = _encoded(value)
    out += _INT16.pack(len(encoded))
    out += encoded


def _write_compact_string(out: bytearray, value: str) -> None:
    encoded = _encoded(value)
    out += encode_uvarint(len(encoded) + 1)
    out += encoded


def _encoded(value: str) -> bytes:
    encoded = value.encode()
    if len(encoded) > STRING_SIZE_MAX:
        raise EncodeError(f"a string of {len(encoded)} bytes is longer than the {STRING_SIZE_MAX} allowed")
    return encoded


def _write_bytes(out: bytearray, value: Bytes) -> None:
    out += _INT32.pack(len(value))
    out += value


def _write_compact_bytes(out: bytearray, value: Bytes) -> None:
    out += encode_uvarint(len(value) + 1)
    out += value


def _array_writer(kind: Array, version: int, flexible: bool) -> Writer:
    fixed_format = kind.of.format if isinstance(kind.of, Primitive) else ""
    write_element = _type_writer(kind.of, version, flexible)

    def write(out: bytearray, values: Sequence[Any]) -> None:
        out += encode_uvarint(len(values) + 1) if flexible else _INT32.pack(len(values))
        if fixed_format:
            out += pack(f">{len(values)}{fixed_format}", *values)
            return
        for value in values:
            write_element(out, value)

    return write
