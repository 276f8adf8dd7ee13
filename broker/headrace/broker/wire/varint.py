"""Variable-length integers: unsigned base 128, and its zigzag form for signed values (Protocol Buffers'
encoding).

Readers take a buffer and an offset and return the value with the offset behind it. They raise IndexError
past the buffer's end and OverlongError for a value that needs more bits than its type has; their callers
turn both into their own errors.
"""

from __future__ import annotations

Bytes = bytes | bytearray | memoryview

_UINT32_MAX = 0xFFFFFFFF
_UINT64_MAX = 0xFFFFFFFFFFFFFFFF


class OverlongError(ValueError):
    """More bytes, or more bits, than a value of the type can have."""


def read_uvarint(buffer: Bytes, offset: int) -> tuple[int, int]:
    """An unsigned 32-bit value, at most 5 bytes."""
    byte = buffer[offset]
    if byte < 0x80:
        return byte, offset + 1
    second = buffer[offset + 1]
    if second < 0x80:
        return byte & 0x7F | second << 7, offset + 2
    return _read_long(buffer, offset, 5, _UINT32_MAX)


def read_varint(buffer: Bytes, offset: int) -> tuple[int, int]:
    """A signed 32-bit value in zigzag, at most 5 bytes."""
    raw = buffer[offset]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), offset + 1
    second = buffer[offset + 1]
    if second < 0x80:
        raw = raw & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), offset + 2
    raw, offset = _read_long(buffer, offset, 5, _UINT32_MAX)
    return (raw >> 1) ^ -(raw & 1), offset


def read_varlong(buffer: Bytes, offset: int) -> tuple[int, int]:
    """A signed 64-bit value in zigzag, at most 10 bytes."""
    raw = buffer[offset]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), offset + 1
    second = buffer[offset + 1]
    if second < 0x80:
        raw = raw & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), offset + 2
    raw, offset = _read_long(buffer, offset, 10, _UINT64_MAX)
    return (raw >> 1) ^ -(raw & 1), offset


def _read_long(buffer: Bytes, offset: int, size_max: int, value_max: int) -> tuple[int, int]:
    value = 0
    for index in range(size_max):
        byte = buffer[offset + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value > value_max:
                break
            return value, offset + index + 1
    raise OverlongError(
        f"a variable-length integer is longer than {size_max} bytes or too large for its type"
    )


def encode_uvarint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if value < 0:
        raise OverlongError(f"{value} is negative")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_varint(value: int) -> bytes:
    """Zigzag of a signed value of up to 64 bits (the encodings of int32 and int64 agree)."""
    if -0x40 <= value < 0x40:
        return _ONE_BYTE_SIGNED[value]
    return encode_uvarint((value << 1) ^ (value >> 63))


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]
# By the value itself: a negative one counts from the end.
_ONE_BYTE_SIGNED = _ONE_BYTE[::2] + _ONE_BYTE[:0:-2]
