"""Avro's binary encoding of events whose fields are of plain types, for the usual case; the rest is fastavro's.

Owns a writer for each plain type, or union of null and one, that takes exactly one Python type: whatever else a value may
be (a datetime, a number of another library, a text's subclass, a field left to its default) is refused here with an
exception, and then written or refused by fastavro, which takes three times as long. Pure.
https://avro.apache.org/docs/1.11.1/specification/#binary-encoding
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from operator import call, itemgetter
from typing import Any, Final

UNUSUAL: Final = (KeyError, TypeError, OverflowError, UnicodeEncodeError, struct.error)
"""What the writers raise for a value that is not theirs."""

LONGS_KEPT: Final = range(-64, 8192)
"""Numbers whose encoding is kept: states, small counts, lengths of texts."""

_INTEGER_KINDS: Final = frozenset(
    (
        "timestamp-millis",
        "timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "date",
        "time-millis",
        "time-micros",
    )
)

Writer = Callable[[Any], bytes]


class _Longs(dict[int, bytes]):
    """The encoding of each long: zigzag, then seven bits a byte, the lowest first."""

    def __missing__(self, value: int) -> bytes:
        if not -(2**63) <= value < 2**63:
            raise OverflowError(value)
        rest = (value << 1) ^ (value >> 63)
        if 1 << 14 <= rest < 1 << 21:
            # Most sequences.
            return bytes((rest & 127 | 128, rest >> 7 & 127 | 128, rest >> 14))
        found = bytearray()
        while rest > 127:
            found.append(rest & 127 | 128)
            rest >>= 7
        found.append(rest)
        encoded = bytes(found)
        if value in LONGS_KEPT:
            self[value] = encoded
        return encoded


LONGS: Final[Mapping[int, bytes]] = _Longs()


def text(value: Any) -> bytes:
    """Return the encoding of a string."""
    if type(value) is not str:
        raise TypeError
    encoded = value.encode()
    return LONGS[len(encoded)] + encoded


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise TypeError
    return LONGS[len(value)] + value


def _long(value: Any) -> bytes:
    if type(value) is not int:
        raise TypeError
    return LONGS[value]


def _int(value: Any) -> bytes:
    if type(value) is not int:
        raise TypeError
    if not -(2**31) <= value < 2**31:
        raise OverflowError
    return LONGS[value]


def _boolean(value: Any) -> bytes:
    if type(value) is not bool:
        raise TypeError
    return b"\1" if value else b"\0"


def _double(value: Any) -> bytes:
    if type(value) is not float:
        raise TypeError
    return _DOUBLE(value)


def _float(value: Any) -> bytes:
    if type(value) is not float:
        raise TypeError
    return _FLOAT(value)


_DOUBLE: Final = struct.Struct("<d").pack
_FLOAT: Final = struct.Struct("<f").pack
_WRITERS: Final[Mapping[str, Writer]] = {
    "string": text,
    "bytes": _bytes,
    "long": _long,
    "int": _int,
    "boolean": _boolean,
    "double": _double,
    "float": _float,
}


def _writer(kind: Any) -> Writer | None:
    """Return what writes values of an Avro type; None where it is not plain."""
    if isinstance(kind, str):
        return _WRITERS.get(kind)
    if isinstance(kind, dict):
        is_plain = "logicalType" not in kind or kind["logicalType"] in _INTEGER_KINDS
        return _WRITERS.get(kind["type"]) if is_plain and isinstance(kind["type"], str) else None
    if len(kind) != 2 or "null" not in kind:
        return None
    null = kind.index("null")
    write = _writer(kind[1 - null])
    if write is text:
        return _optional_text(LONGS[null], LONGS[1 - null])
    return None if write is None else _optional(LONGS[null], LONGS[1 - null], write)


def _optional_text(null: bytes, branch: bytes) -> Writer:
    """Return what a call less makes of the most frequent union."""

    def write(value: Any) -> bytes:
        if value is None:
            return null
        if type(value) is not str:
            raise TypeError
        encoded = value.encode()
        return branch + LONGS[len(encoded)] + encoded

    return write


def _optional(null: bytes, branch: bytes, write: Writer) -> Writer:
    return lambda value: null if value is None else branch + write(value)


def fields_writer(fields: Sequence[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], bytes] | None:
    """Return what encodes a dict of all these fields of a parsed schema; None where one is not of a plain type.

    What it returns raises one of `UNUSUAL` for fields that are not what it takes.
    """
    writers = [known for field in fields if (known := _writer(field["type"])) is not None]
    if len(writers) < len(fields) or len(fields) < 2:
        return None
    count = len(fields)
    values_of = itemgetter(*(field["name"] for field in fields))

    def write(values: Mapping[str, Any]) -> bytes:
        # A dict's subclass may make up what it does not have.
        if type(values) is not dict or len(values) != count:
            raise TypeError
        return b"".join(map(call, writers, values_of(values)))

    return write
