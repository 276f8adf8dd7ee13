"""Message sets: the message formats 0 and 1, which clients older than Apache Kafka 0.11 write and read.

Owns their layout: a row of messages, each with an offset, a CRC-32, a key and a value (format 1: a timestamp too); a
compressed message holds another set. Inner offsets are absolute in format 0 and counted from the first in format 1,
where the outer offset is that of the last. LZ4 of format 0 has a header checksum that covers too much (KAFKA-3160).
Layout: https://kafka.apache.org/39/documentation/#messageset. Bad bytes raise CorruptMessageError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from zlib import crc32

from headrace.broker.errors import (
    CorruptMessageError,
    InvalidRecordError,
    UnsupportedCompressionTypeError,
)
from headrace.broker.wire.batches import RECORDS_SIZE_MAX, Record
from headrace.broker.wire.compression import Codec, compress, decompress
from headrace.broker.wire.special_values import NO_TIMESTAMP
from headrace.broker.wire.varint import Bytes

_ENTRY = Struct(">qi")
_HEAD = Struct(">Ibb")
_TIMESTAMP = Struct(">q")
_SIZE = Struct(">i")
_CODEC_MASK = 0x07
_TIMESTAMP_TYPE_BIT = 0x08
_LZ4_MAGIC_SIZE = 4
_LZ4_CONTENT_SIZE_BIT = 0x08
_UINT32 = 0xFFFFFFFF


class Message(NamedTuple):
    """One message as it stands, compressed or not."""

    offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & _CODEC_MASK


def read_messages(data: Bytes, *, size_max: int = RECORDS_SIZE_MAX) -> tuple[list[Record], int]:
    """(the records a producer sent in a set of format 0 or 1, its last codec); a last message that is cut is left out.

    Offsets are counted from 0, whatever the set says. Raises CorruptMessageError, MessageTooLargeError (a set that
    unpacks to more than `size_max` bytes), InvalidRecordError, UnsupportedCompressionTypeError.
    """
    records: list[Record] = []
    codec, magic = 0, None
    for number, message in enumerate(iter_messages(data)):
        if magic not in (None, message.magic):
            raise InvalidRecordError("a message set holds messages of two formats")
        magic = message.magic
        if number and (codec or message.codec):
            raise InvalidRecordError("a compressed message is not alone in its set")
        inner: Sequence[Message] = (message,)
        if message.codec:
            codec = message.codec
            inner, size_max = inner_messages(message, size_max)
            if message.magic and message.attributes & _TIMESTAMP_TYPE_BIT:
                # The time of the outer message is that of all.
                inner = [each._replace(timestamp_ms=message.timestamp_ms) for each in inner]
        records += [Record(0, each.timestamp_ms, each.key, each.value, []) for each in inner]
    return [record._replace(offset=number) for number, record in enumerate(records)], codec


def iter_messages(data: Bytes) -> Iterator[Message]:
    """Each whole message as it stands; a last one that is cut ends the iteration silently."""
    view, position = memoryview(data), 0
    while len(view) - position >= _ENTRY.size:
        offset, size = _ENTRY.unpack_from(view, position)
        start = position + _ENTRY.size
        if start + size > len(view):
            return
        yield _message(offset, view[start : start + size])
        position = start + size


def holds_message(data: Bytes) -> bool:
    """Whether a first message, or batch, is whole by its own account."""
    view = memoryview(data)
    return len(view) > _ENTRY.size + _HEAD.size - 2 and len(view) >= _ENTRY.size + _ENTRY.unpack_from(view)[1]


def _message(offset: int, body: memoryview) -> Message:
    try:
        crc, magic, attributes = _HEAD.unpack_from(body)
        if crc != crc32(body[4:]):
            raise CorruptMessageError("the checksum of a message is wrong: send it again")
        if magic not in (0, 1):
            raise CorruptMessageError(f"a message of format {magic} is in a set of an older format")
        timestamp_ms, position = NO_TIMESTAMP, _HEAD.size
        if magic == 1:
            (timestamp_ms,) = _TIMESTAMP.unpack_from(body, position)
            position += _TIMESTAMP.size
        key, position = _read_bytes(body, position)
        value, position = _read_bytes(body, position)
    except StructError:
        raise CorruptMessageError(f"{len(body)} bytes are too few for a message") from None
    if position != len(body):
        raise CorruptMessageError(f"{len(body) - position} bytes are left at the end of a message")
    return Message(offset, magic, attributes, timestamp_ms, key, value)


def _read_bytes(body: memoryview, position: int) -> tuple[bytes | None, int]:
    (size,) = _SIZE.unpack_from(body, position)
    position += _SIZE.size
    if size < 0:
        return None, position
    if position + size > len(body):
        raise CorruptMessageError(f"a key or value of {size} bytes does not fit its message")
    return bytes(body[position : position + size]), position + size


def inner_messages(outer: Message, size_max: int) -> tuple[list[Message], int]:
    """The messages in a compressed one, and how many more bytes may be unpacked."""
    if outer.codec == Codec.ZSTD:
        raise UnsupportedCompressionTypeError("zstd needs message format 2: use a newer client")
    packed = outer.value
    if packed is None:
        raise InvalidRecordError("a compressed message has no value")
    if outer.codec == Codec.LZ4:
        packed = with_lz4_checksum(packed, is_format_0=False)
    data = decompress(outer.codec, packed, size_max)
    inner = list(iter_messages(data))
    if not inner:
        raise InvalidRecordError("a compressed message holds none")
    if any(message.codec for message in inner):
        raise InvalidRecordError("a compressed message holds a compressed one")
    return inner, size_max - len(data)


def encode_messages(records: Sequence[Record], *, magic: int, codec: int, timestamp_type: int) -> bytes:
    """A set of format 0 or 1 with these records at their offsets, one compressed message with a codec; headers go.

    Raises UnsupportedCompressionTypeError for zstd.
    """
    if codec == Codec.ZSTD:
        raise UnsupportedCompressionTypeError("zstd needs message format 2: use a newer client")
    type_bit = timestamp_type << 3 if magic == 1 else 0
    first = records[0].offset if codec and magic == 1 else 0
    plain = b"".join(
        _encode(
            Message(
                record.offset - first,
                magic,
                type_bit,
                record.timestamp_ms,
                record.key,
                record.value,
            )
        )
        for record in records
    )
    if not codec:
        return plain
    packed = compress(codec, plain)
    if codec == Codec.LZ4 and magic == 0:
        packed = with_lz4_checksum(packed, is_format_0=True)
    largest_ms = max(record.timestamp_ms for record in records)
    return _encode(Message(records[-1].offset, magic, type_bit | codec, largest_ms, None, packed))


def _encode(message: Message) -> bytes:
    parts = [bytes((message.magic, message.attributes))]
    if message.magic == 1:
        parts.append(_TIMESTAMP.pack(message.timestamp_ms))
    for field in (message.key, message.value):
        parts.append(_SIZE.pack(-1 if field is None else len(field)))
        parts.append(field or b"")
    body = b"".join(parts)
    return _ENTRY.pack(message.offset, len(body) + 4) + crc32(body).to_bytes(4, "big") + body


def with_lz4_checksum(frame: bytes, *, is_format_0: bool) -> bytes:
    """An LZ4 frame with the header checksum of format 0, which covers the magic number too, or the right one."""
    if len(frame) < _LZ4_MAGIC_SIZE + 3:
        raise CorruptMessageError("an LZ4 frame ends in its header")
    end = _LZ4_MAGIC_SIZE + 2 + (8 if frame[_LZ4_MAGIC_SIZE] & _LZ4_CONTENT_SIZE_BIT else 0)
    if len(frame) <= end:
        raise CorruptMessageError("an LZ4 frame ends in its header")
    checksum = xxh32(frame[0 if is_format_0 else _LZ4_MAGIC_SIZE : end]) >> 8 & 0xFF
    return frame[:end] + bytes((checksum,)) + frame[end + 1 :]


def xxh32(data: bytes) -> int:
    """The hash xxHash32 with seed 0 of fewer than 16 bytes."""
    prime_2, prime_3, prime_4, prime_5 = 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    state = prime_5 + len(data) & _UINT32
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little")
        state = _rotated(state + word * prime_3, 17) * prime_4 & _UINT32
    for byte in data[whole:]:
        state = _rotated(state + byte * prime_5, 11) * 0x9E3779B1 & _UINT32
    state = (state ^ state >> 15) * prime_2 & _UINT32
    state = (state ^ state >> 13) * prime_3 & _UINT32
    return state ^ state >> 16


def _rotated(value: int, count: int) -> int:
    value &= _UINT32
    return (value << count | value >> 32 - count) & _UINT32
