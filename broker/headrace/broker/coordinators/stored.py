"""Fields of stored records, in Kafka's own encoding: what all kinds of coordinator write and read.

Knows nothing of what any record holds.
"""

from __future__ import annotations

import struct

from headrace.broker.coordinators.records import RecordFormatError

INT8, INT16, INT32, INT64 = struct.Struct(">b"), struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")


def string(text: str) -> bytes:
    """A string of a version that is not flexible; raises RecordFormatError for more than 32,767 bytes."""
    data = text.encode()
    if len(data) > 32_767:
        raise RecordFormatError(f"a string of {len(data)} bytes does not fit a record")
    return struct.pack(">h", len(data)) + data


def nullable_string(text: str | None) -> bytes:
    """The same, or null."""
    return b"\xff\xff" if text is None else string(text)


def sized(data: bytes) -> bytes:
    """Bytes and how many they are."""
    return struct.pack(">i", len(data)) + data


class FieldReader:
    """Reads fields one after the other; `flexible` switches to compact lengths and skips tagged fields."""

    def __init__(self, data: bytes) -> None:
        self.data = bytes(data)
        self.position = 0
        self.flexible = False

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self.data):
            raise RecordFormatError("a stored record ends in the middle of a field")
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, layout: struct.Struct) -> int:
        try:
            value: int = layout.unpack_from(self.data, self.position)[0]
        except struct.error as error:
            raise RecordFormatError("a stored record ends in the middle of a field") from error
        self.position += layout.size
        return value

    def varint(self) -> int:
        value, shift = 0, 0
        while shift < 35:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise RecordFormatError("a stored record holds a length of more than five bytes")

    def nullable_string(self) -> str | None:
        size = self.varint() - 1 if self.flexible else self.number(INT16)
        return None if size < 0 else self.take(size).decode()

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise RecordFormatError("a stored record holds null where a string must be")
        return text

    def bytes_field(self) -> bytes:
        return self.take(self.varint() - 1 if self.flexible else self.number(INT32))

    def count(self) -> int:
        return self.varint() - 1 if self.flexible else self.number(INT32)

    def skip_tagged_fields(self) -> None:
        if self.flexible:
            for _ in range(self.varint()):
                self.varint()
                self.take(self.varint())
