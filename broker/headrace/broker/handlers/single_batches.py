"""Produce requests of the shape that almost every one has, one batch for one partition, read and answered with `struct`.

What is odd in any way is left to the codec: `read` answers None. Must not know: what becomes of the batch.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from headrace.broker.log.results import AppendResult
from headrace.broker.wire.varint import read_uvarint

# The versions whose requests have one shape: from the first without message formats 0 and 1, and from the flexible one.
CLASSIC_VERSION, FLEXIBLE_VERSION = 3, 9

_CLASSIC_HEAD = Struct(">hhiih")
_CLASSIC_PARTITION = Struct(">ii")
_FLEXIBLE_HEAD = Struct(">Bhibb")
_FLEXIBLE_PARTITION = Struct(">bi")
_SIZE = Struct(">i")
_START = Struct(">ii")  # key and version, correlation id
_CLIENT_ID_AT = 8
_END_OF_FLEXIBLE = b"\0\0\0"  # no tagged fields: of the partition, the topic and the request
_CLASSIC_ANSWER = {3: "hqqi", 4: "hqqi", 5: "hqqqi", 6: "hqqqi", 7: "hqqqi", 8: "hqqqihi"}

# Half the time of a call of the class: each request makes several.
_new_tuple = tuple.__new__


class SingleBatch(NamedTuple):
    """A request with one batch for one partition; the size of `records` stands at `size_at` of the frame."""

    acks: int
    timeout_ms: int
    name: bytes
    partition_index: int
    size_at: int
    records: memoryview


def read(version: int, frame: memoryview, offset: int) -> SingleBatch | None:
    """The request whose body begins at `offset`, if it has the common shape."""
    try:
        if version >= FLEXIBLE_VERSION:
            return _read_flexible(frame, offset)
        return _read_classic(version, frame, offset) if version >= CLASSIC_VERSION else None
    except (StructError, IndexError, ValueError):
        return None


def _read_classic(version: int, frame: memoryview, offset: int) -> SingleBatch | None:
    id_size, acks, timeout_ms, topic_count, name_size = _CLASSIC_HEAD.unpack_from(frame, offset)
    if id_size != -1 or topic_count != 1 or name_size < 0:
        return None
    offset += 14
    name = bytes(frame[offset : offset + name_size])
    partition_count, index = _CLASSIC_PARTITION.unpack_from(frame, offset + name_size)
    size_at = offset + name_size + 8
    records = _records(version, frame, size_at)
    if partition_count != 1 or records is None:
        return None
    return _new_tuple(SingleBatch, (acks, timeout_ms, name, index, size_at, records))


def _read_flexible(frame: memoryview, offset: int) -> SingleBatch | None:
    id_size, acks, timeout_ms, topic_count, name_size = _FLEXIBLE_HEAD.unpack_from(frame, offset)
    if id_size != 0 or topic_count != 2 or name_size < 1:
        return None
    offset += 9
    end = offset + name_size - 1
    name = bytes(frame[offset:end])
    partition_count, index = _FLEXIBLE_PARTITION.unpack_from(frame, end)
    records = _records(FLEXIBLE_VERSION, frame, end + 5)
    if partition_count != 2 or records is None:
        return None
    return _new_tuple(SingleBatch, (acks, timeout_ms, name, index, end + 5, records))


def _records(version: int, frame: memoryview, size_at: int) -> memoryview | None:
    """The records behind their size; None unless the request ends with them."""
    if version >= FLEXIBLE_VERSION:
        size, offset = read_uvarint(frame, size_at)
        end = offset + size - 1
        is_last = size >= 1 and end + 3 == len(frame) and frame[end:] == _END_OF_FLEXIBLE
        return frame[offset:end] if is_last else None
    (size,) = _SIZE.unpack_from(frame, size_at)
    offset = size_at + 4
    return frame[offset:] if size >= 0 and offset + size == len(frame) else None


class Following:
    """Reads the requests behind one that differ from it in nothing but correlation id and records."""

    __slots__ = ("_key_and_version", "_rest", "_size_at", "_version")

    def __init__(self, version: int, frame: memoryview, first: SingleBatch) -> None:
        self._version = version
        self._size_at = first.size_at
        self._key_and_version, _ = _START.unpack_from(frame)
        self._rest = bytes(frame[_CLIENT_ID_AT : first.size_at])

    def read(self, frame: memoryview) -> tuple[int, memoryview] | None:
        """(correlation id, records) of such a request, None of any other."""
        size_at = self._size_at
        try:
            key_and_version, correlation_id = _START.unpack_from(frame)
            if key_and_version != self._key_and_version or frame[_CLIENT_ID_AT:size_at] != self._rest:
                return None
            records = _records(self._version, frame, size_at)
        except (StructError, IndexError, ValueError):
            return None
        return None if records is None else (correlation_id, records)


@lru_cache(maxsize=1024)
def _reply_layout(version: int, name_size: int) -> Struct:
    if version >= FLEXIBLE_VERSION:
        return Struct(f">iibbb{name_size}sbihqqqbbbbib")
    return Struct(f">iiih{name_size}sii{_CLASSIC_ANSWER[version]}")


def reply(version: int, correlation_id: int, single: SingleBatch, result: AppendResult) -> bytes:
    """The whole answer to a batch that was appended, its size included."""
    name, index = single.name, single.partition_index
    layout = _reply_layout(version, len(name))
    size = layout.size - 4
    base_offset, _, time_ms, start_offset, _ = result
    if version >= FLEXIBLE_VERSION:
        # fmt: off
        return layout.pack(
            size, correlation_id, 0, 2, len(name) + 1, name, 2, index, 0,
            base_offset, time_ms, start_offset, 1, 0, 0, 0, 0, 0,
        )
        # fmt: on
    answer: tuple[int, ...] = (0, base_offset, time_ms)
    if version >= 5:
        answer += (start_offset,)
    if version == 8:
        answer += (0, -1)
    return layout.pack(size, correlation_id, 1, len(name), name, 1, index, *answer, 0)
