"""A frame as acks, a time limit and items, by hand where a request has the shape that almost every one has.

Must not know: what becomes of the items, what the bytes of a batch say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from headrace.broker.wire.api.k00_produce import API
from headrace.broker.wire.frames import RequestHeader
from headrace.broker.wire.varint import OverlongError, read_uvarint

# The versions whose requests have one shape: from the first without message formats 0 and 1, and from the flexible one.
CLASSIC_VERSION, FLEXIBLE_VERSION = 3, 9
# Heads that are kept read, of at most so many bytes each.
HEADS_MAX, HEAD_SIZE_MAX = 4096, 512
# How many topics, and items, a request has that is read by hand; the codec decides what more there may be.
ITEMS_MAX = 10_000

_START = Struct(">iih")  # key and version, correlation id, client id's size
_HEAD_AT, _CLIENT_ID_AT = 8, 10
_CLASSIC_HEAD = Struct(">hhiih")  # transactional id, acks, time limit, count of topics, name's size
_FLEXIBLE_HEAD = Struct(">bBhibb")  # the header's tagged fields, and the same
_CLASSIC_NAME_SIZE, _FLEXIBLE_NAME_SIZE = Struct(">h"), Struct(">b")
_CLASSIC_PARTITION = Struct(">ii")  # count of partitions, index
_FLEXIBLE_PARTITION = Struct(">bi")
_SIZE = Struct(">i")
_ACKS_AND_TIME = Struct(">hi")
_NAME = Struct(">h")
_END_OF_FLEXIBLE = b"\0\0\0"  # no tagged fields: of the partition, the topic and the request

# Half the time of a call of the class: each request makes some.
_new_tuple = tuple.__new__

Item = tuple[str, int, memoryview | None]
"""Topic, partition and what is to be appended there; None is no batch at all."""


class Request(NamedTuple):
    """What a request asks for."""

    acks: int
    timeout_ms: int
    items: list[Item]
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """What a request of one item says before its records; one object for all that say the same, as long as it is kept."""

    version: int
    acks: int
    timeout_ms: int
    topic: str
    partition_index: int


def read(header: RequestHeader, frame: memoryview) -> Request:
    """Any request; raises MalformedError."""
    by_hand = _read_by_hand(header, frame)
    if by_hand is not None:
        return by_hand
    message = API.decode_request(header.version, frame, header.body_offset)
    items = [
        (topic["name"], partition["index"], partition["records"])
        for topic in message["topic_data"]
        for partition in topic["partition_data"]
    ]
    return Request(message["acks"], message["timeout_ms"], items, message.get("transactional_id"))


# -- requests of one item


def read_single(version: int, frame: memoryview) -> tuple[int, Head, memoryview] | None:
    """(correlation id, head, records) of a request with one item; None of any other, and of what is odd."""
    try:
        split = split_single(version, frame)
        if split is None:
            return None
        _, correlation_id, data, records = split
        head = head_of(version, data)
        return None if head is None else (correlation_id, head, records)
    except (StructError, IndexError, ValueError):
        return None


def split_single(version: int, frame: memoryview) -> tuple[int, int, bytes, memoryview] | None:
    """(key and version, correlation id, the bytes of the head, records) where this may be a request with one item.

    Only `head_of` tells whether it is. Raises StructError, IndexError or ValueError for what is cut short.
    """
    key_and_version, correlation_id, client_id_size = _START.unpack_from(frame)
    offset = _CLIENT_ID_AT + client_id_size if client_id_size > 0 else _CLIENT_ID_AT
    if version >= FLEXIBLE_VERSION:
        (name_size,) = _FLEXIBLE_NAME_SIZE.unpack_from(frame, offset + 9)
        size_at = offset + 14 + name_size
        size, offset = read_uvarint(frame, size_at)
        end = offset + size - 1
        if size < 1 or end + 3 != len(frame) or frame[end:] != _END_OF_FLEXIBLE:
            return None
        return key_and_version, correlation_id, bytes(frame[_HEAD_AT:size_at]), frame[offset:end]
    (name_size,) = _CLASSIC_NAME_SIZE.unpack_from(frame, offset + 12)
    size_at = offset + 22 + name_size
    (size,) = _SIZE.unpack_from(frame, size_at)
    if size < 0 or size_at + 4 + size != len(frame):
        return None
    return key_and_version, correlation_id, bytes(frame[_HEAD_AT:size_at]), frame[size_at + 4 :]


def client_id_of(data: bytes) -> bytes:
    """What a head begins with: the client's id behind its size."""
    return data[: _NAME.size + max(_NAME.unpack_from(data)[0], 0)]


def head_of(version: int, data: bytes) -> Head | None:
    """The head in these bytes, from the client id's size to the partition's number; None when they are none."""
    return _read_head(version, data) if len(data) > HEAD_SIZE_MAX else _known_head(version, data)


def _read_head(version: int, data: bytes) -> Head | None:
    if version < CLASSIC_VERSION:
        return None
    client_id_size = max(_NAME.unpack_from(data)[0], 0)
    offset = 2 + client_id_size
    if version >= FLEXIBLE_VERSION:
        tags, id_size, acks, timeout_ms, topic_count, name_size = _FLEXIBLE_HEAD.unpack_from(data, offset)
        is_single = (tags, id_size, topic_count) == (0, 0, 2) and name_size > 0
        offset, name_size = offset + 10, name_size - 1
        partition, single_count = _FLEXIBLE_PARTITION, 2
    else:
        id_size, acks, timeout_ms, topic_count, name_size = _CLASSIC_HEAD.unpack_from(data, offset)
        is_single = (id_size, topic_count) == (-1, 1) and name_size >= 0
        offset += 14
        partition, single_count = _CLASSIC_PARTITION, 1
    end = offset + name_size
    if not is_single or end + partition.size != len(data):
        return None
    count, index = partition.unpack_from(data, end)
    if count != single_count:
        return None
    return Head(version, acks, timeout_ms, str(data[offset:end], "utf-8"), index)


_known_head = lru_cache(maxsize=HEADS_MAX)(_read_head)


# -- requests of several items


def _read_by_hand(header: RequestHeader, frame: memoryview) -> Request | None:
    """A request without anything odd; None of any other."""
    version, offset = header.version, header.body_offset
    try:
        if version >= FLEXIBLE_VERSION:
            transactional_id, offset = _flexible_id(frame, offset)
            acks, timeout_ms = _ACKS_AND_TIME.unpack_from(frame, offset)
            items = list(islice(_flexible_items(frame, offset + 6), ITEMS_MAX + 1))
        elif version >= CLASSIC_VERSION:
            transactional_id, offset = _classic_id(frame, offset)
            acks, timeout_ms = _ACKS_AND_TIME.unpack_from(frame, offset)
            items = list(islice(_classic_items(frame, offset + 6), ITEMS_MAX + 1))
        else:
            return None
    except (StructError, IndexError, ValueError, OverlongError):
        return None
    return Request(acks, timeout_ms, items, transactional_id) if len(items) <= ITEMS_MAX else None


def _classic_id(frame: memoryview, offset: int) -> tuple[str | None, int]:
    """The transactional id at `offset`, and where it ends."""
    (size,) = _NAME.unpack_from(frame, offset)
    end = offset + 2 + size
    return (None, offset + 2) if size < 0 else (str(frame[offset + 2 : end], "utf-8"), end)


def _flexible_id(frame: memoryview, offset: int) -> tuple[str | None, int]:
    size, offset = read_uvarint(frame, offset)
    end = offset + size - 1
    return (None, offset) if size == 0 else (str(frame[offset:end], "utf-8"), end)


def _classic_items(frame: memoryview, offset: int) -> Iterator[Item]:
    """The items of the array at `offset`; raises ValueError unless the request ends with them."""
    (topic_count,) = _SIZE.unpack_from(frame, offset)
    offset += 4
    for _ in range(_counted(topic_count)):
        (name_size,) = _NAME.unpack_from(frame, offset)
        name_end = offset + 2 + name_size
        topic = str(frame[offset + 2 : name_end], "utf-8")
        (partition_count,) = _SIZE.unpack_from(frame, name_end)
        if name_size < 0:
            raise ValueError("null")
        offset = name_end + 4
        for _ in range(_counted(partition_count)):
            index, size = _CLASSIC_PARTITION.unpack_from(frame, offset)
            end = offset + 8 + size
            if size < 0 or end > len(frame):
                raise ValueError("no records, or less than they should be")
            yield topic, index, frame[offset + 8 : end]
            offset = end
    if offset != len(frame):
        raise ValueError("something is left")


def _flexible_items(frame: memoryview, offset: int) -> Iterator[Item]:
    """The same with sizes as varints, and tagged fields, of which there are none, behind each part."""
    topic_count, offset = read_uvarint(frame, offset)
    for _ in range(_counted(topic_count - 1)):
        name_size, offset = read_uvarint(frame, offset)
        name_end = offset + name_size - 1
        topic = str(frame[offset:name_end], "utf-8")
        partition_count, offset = read_uvarint(frame, name_end)
        if name_size < 1:
            raise ValueError("null")
        for _ in range(_counted(partition_count - 1)):
            (index,) = _SIZE.unpack_from(frame, offset)
            size, offset = read_uvarint(frame, offset + 4)
            end = offset + size - 1
            if size < 1 or frame[end] != 0:
                raise ValueError("no records, or tagged fields")
            yield topic, index, frame[offset:end]
            offset = end + 1
        if frame[offset] != 0:
            raise ValueError("tagged fields")
        offset += 1
    if frame[offset] != 0 or offset + 1 != len(frame):
        raise ValueError("something is left")


def _counted(count: int) -> int:
    """A count that an array may have here; raises ValueError for any other (-1 stands for null)."""
    if not 0 <= count <= ITEMS_MAX:
        raise ValueError(f"{count} elements")
    return count
