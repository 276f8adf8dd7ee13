"""The envelope of an audited event: the header's fields and the registry's frame around the Avro bytes.

The value on the wire is byte 0, the schema id (int32, big endian), then Avro binary: Confluent's wire format.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_FRAME: Final = struct.Struct(">bi")
FRAME_SIZE: Final = _FRAME.size


class FrameError(ValueError):
    """A message value that does not begin with the registry's frame."""


class Header(NamedTuple):
    """First field of every audited event. `time` is in milliseconds since the epoch (UTC)."""

    time: int
    server: str
    service: str
    producer: str
    sequence: int


def frame_prefix(schema_id: int) -> bytes:
    """Return the five bytes that precede an event's Avro binary."""
    return _FRAME.pack(0, schema_id)


def unframe(value: bytes | None) -> tuple[int, bytes]:
    """Split a message value into schema id and Avro binary; raises FrameError when it bears no frame."""
    if value is None:
        raise FrameError("the message has no value")
    if len(value) < FRAME_SIZE:
        raise FrameError(
            f"the value has {len(value)} bytes, fewer than the {FRAME_SIZE} of the registry's frame"
        )
    magic, schema_id = _FRAME.unpack_from(value)
    if magic != 0:
        raise FrameError(f"the value begins with byte {value[0]}, the registry's frame with byte 0")
    return schema_id, value[FRAME_SIZE:]
