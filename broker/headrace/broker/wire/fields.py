"""The notation in which `wire/api` writes down Kafka's messages: fields, their types and their versions.

A message is a plain dict keyed by field name. Which field a version has, whether it may be null there,
whether it is tagged and what stands for it where it is absent follow the rules of Kafka's own message
definitions (clients/src/main/resources/common/message/README.md). `codec` turns the notation into readers
and writers; nothing here reads or writes a byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID as Uuid

Message = dict[str, Any]

ZERO_UUID = Uuid(int=0)


class MalformedError(ValueError):
    """Bytes that are no message of the expected kind: cut short, or a length or count that cannot be true."""


class EncodeError(ValueError):
    """A message that cannot be written in the wanted version: a wrong value, or a field the version lacks."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """`format` is the struct character of a type of fixed size; `default` stands for an absent value."""

    name: str
    default: Any
    format: str = ""


BOOL = Primitive("bool", False, "?")
INT8 = Primitive("int8", 0, "b")
INT16 = Primitive("int16", 0, "h")
UINT16 = Primitive("uint16", 0, "H")
INT32 = Primitive("int32", 0, "i")
UINT32 = Primitive("uint32", 0, "I")
INT64 = Primitive("int64", 0, "q")
FLOAT64 = Primitive("float64", 0.0, "d")
UUID = Primitive("uuid", ZERO_UUID)
STRING = Primitive("string", "")
BYTES = Primitive("bytes", b"")
RECORDS = Primitive("records", None)


@dataclass(frozen=True, slots=True, init=False)
class Struct:
    fields: tuple[Field, ...]

    def __init__(self, *fields: Field) -> None:
        object.__setattr__(self, "fields", fields)


@dataclass(frozen=True, slots=True)
class Array:
    of: Primitive | Struct


FieldType = Primitive | Struct | Array

_TYPE_DEFAULT: Any = object()


OWN_TAGS_MIN = 10_000
"""Tagged fields from here on are headrace's own: Apache Kafka gives out small numbers, one after the other."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field; version ranges read "3+", "0-4" or "2", and "" is no version at all.

    `nullable` gives the versions in which None may stand for the value. A field with a `tag` is written in
    the tagged section of its versions, and only when it differs from its default. An `ignorable` field is
    left out without a word where a version lacks it; any other raises EncodeError unless it has its default
    there.
    """

    name: str
    type: FieldType
    versions: str = "0+"
    nullable: str = ""
    default: Any = _TYPE_DEFAULT
    ignorable: bool = False
    tag: int | None = None

    def present_in(self, version: int) -> bool:
        return in_range(self.versions, version)

    def nullable_in(self, version: int) -> bool:
        return in_range(self.nullable, version)

    def new_default(self) -> Any:
        """The value of an absent field; lists and dicts are made anew, so that a caller may fill them."""
        if self.default is not _TYPE_DEFAULT:
            return self.default
        if isinstance(self.type, Array):
            return []
        if isinstance(self.type, Struct):
            return new_message(self.type)
        return self.type.default


def new_message(struct: Struct) -> Message:
    """A message whose fields all have their defaults."""
    return {field.name: field.new_default() for field in struct.fields}


def in_range(versions: str, version: int) -> bool:
    if not versions:
        return False
    first, separator, last = versions.partition("-")
    if separator:
        return int(first) <= version <= int(last)
    if first.endswith("+"):
        return version >= int(first[:-1])
    return version == int(first)
