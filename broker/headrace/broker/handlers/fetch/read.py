"""Reading a Fetch request: the versions that consumers use by hand, all others through the codec."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Any
from uuid import UUID

from headrace.broker.handlers.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.broker.wire.api.k01_fetch import API
from headrace.broker.wire.batches import MAGIC
from headrace.broker.wire.special_values import CONSUMER_REPLICA_ID, NO_EPOCH
from headrace.broker.wire.varint import read_uvarint

BY_HAND_SIZE_MAX = 4 << 20
RACK_VERSION, FLEXIBLE_VERSION, TOPIC_ID_VERSION, REPLICA_STATE_VERSION = 11, 12, 13, 15


_new_tuple = tuple.__new__  # half the time of a call of the class
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_HEAD = Struct(">iiibii")
_HEAD_WITH_REPLICA = Struct(">iiiibii")
_CLASSIC_PARTITION = Struct(">iiqqi")
_FLEXIBLE_PARTITION = Struct(">iiqiqiB")


def read_fetch(version: int, frame: memoryview, offset: int) -> FetchRequest:
    """Raises MalformedError. A request of uncommon size goes through the codec, which bounds its partitions."""
    try:
        if len(frame) > BY_HAND_SIZE_MAX:
            request = None
        elif version >= FLEXIBLE_VERSION:
            request = _read_flexible(version, frame, offset)
        elif version >= 9:
            request = _read_classic(version, frame, offset)
        else:
            request = None
    except (StructError, IndexError, ValueError):
        request = None
    if request is not None:
        return request
    return _from_message(version, API.decode_request(version, frame, offset))


def _magic_for(version: int) -> int:
    """The newest message format that a client of this version knows."""
    return MAGIC if version > 3 else 1 if version > 1 else 0


def _read_classic(version: int, frame: memoryview, offset: int) -> FetchRequest | None:
    """Versions 9 to 11; None (the codec reads or refuses it) for a session's request that forgets topics."""
    head = _HEAD_WITH_REPLICA.unpack_from(frame, offset)
    offset += _HEAD_WITH_REPLICA.size
    (topic_count,) = _INT32.unpack_from(frame, offset)
    if topic_count < 0:
        return None
    offset += 4
    topics = []
    for _ in range(topic_count):
        (name_size,) = _INT16.unpack_from(frame, offset)
        if name_size < 0:
            return None
        end = offset + 2 + name_size
        key = bytes(frame[offset + 2 : end])
        (partition_count,) = _INT32.unpack_from(frame, end)
        if partition_count < 0:
            return None
        offset = end + 4
        end = offset + partition_count * _CLASSIC_PARTITION.size
        partitions = [
            _new_tuple(FetchPartition, (index, epoch, fetch_offset, size_max, NO_EPOCH))
            for index, epoch, fetch_offset, _, size_max in _CLASSIC_PARTITION.iter_unpack(frame[offset:end])
        ]
        if len(partitions) < partition_count:
            return None
        offset = end
        topics.append(FetchTopic(str(key, "utf-8"), None, key, partitions))
    (forgotten_count,) = _INT32.unpack_from(frame, offset)
    is_whole = version < RACK_VERSION or _has_string(frame, offset + 4)
    return _request(head, topics) if is_whole and not forgotten_count else None


def _has_string(frame: memoryview, offset: int) -> bool:
    (size,) = _INT16.unpack_from(frame, offset)
    return bool(0 <= size <= len(frame) - offset - 2)


def _read_flexible(version: int, frame: memoryview, offset: int) -> FetchRequest | None:
    """Versions 12 and later; None (the codec reads it) as soon as a tagged field is met."""
    if version >= REPLICA_STATE_VERSION:
        head: tuple[int, ...] = (CONSUMER_REPLICA_ID, *_HEAD.unpack_from(frame, offset))
        offset += _HEAD.size
    else:
        head = _HEAD_WITH_REPLICA.unpack_from(frame, offset)
        offset += _HEAD_WITH_REPLICA.size
    topic_count, offset = read_uvarint(frame, offset)
    if topic_count < 1:
        return None
    topics = []
    for _ in range(topic_count - 1):
        key_size = 16
        if version < TOPIC_ID_VERSION:
            key_size, offset = read_uvarint(frame, offset)
            key_size -= 1
            if key_size < 0:
                return None
        key = bytes(frame[offset : offset + key_size])
        partition_count, offset = read_uvarint(frame, offset + key_size)
        if partition_count < 1:
            return None
        end = offset + (partition_count - 1) * _FLEXIBLE_PARTITION.size
        partitions = []
        has_tags = frame[end]
        for index, epoch, fetch_offset, last_epoch, _, size_max, tags in _FLEXIBLE_PARTITION.iter_unpack(
            frame[offset:end]
        ):
            partitions.append(_new_tuple(FetchPartition, (index, epoch, fetch_offset, size_max, last_epoch)))
            has_tags |= tags
        if has_tags:
            return None
        offset = end + 1
        topics.append(_topic_of(version, key, partitions))
    return _request(head, topics) if _ends_plainly(frame, offset) else None


def _ends_plainly(frame: memoryview, offset: int) -> bool:
    """Whether no forgotten topics and no tagged fields (a follower's replica state is one) end the request."""
    if frame[offset] != 1:
        return False
    rack_size, offset = read_uvarint(frame, offset + 1)
    end = offset + rack_size - 1
    return rack_size > 0 and end == len(frame) - 1 and frame[end] == 0


def _request(head: tuple[int, ...], topics: list[FetchTopic]) -> FetchRequest:
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = head
    return FetchRequest(
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics
    )


def _topic_of(version: int, key: bytes, partitions: list[FetchPartition]) -> FetchTopic:
    if version >= TOPIC_ID_VERSION:
        return FetchTopic(None, UUID(bytes=key), key, partitions)
    return FetchTopic(str(key, "utf-8"), None, key, partitions)


def _from_message(version: int, message: dict[str, Any]) -> FetchRequest:
    return FetchRequest(
        replica_id=max(message["replica_id"], message["replica_state"]["replica_id"]),
        max_wait_ms=message["max_wait_ms"],
        min_bytes=message["min_bytes"],
        max_bytes=message["max_bytes"],
        isolation_level=message["isolation_level"],
        session_id=message["session_id"],
        session_epoch=message["session_epoch"],
        topics=[_topic_of_message(version, topic) for topic in message["topics"]],
        forgotten=tuple(
            (_key_of(version, topic), index)
            for topic in message["forgotten_topics_data"]
            for index in topic["partitions"]
        ),
        magic=_magic_for(version),
    )


def _key_of(version: int, topic: dict[str, Any]) -> bytes:
    """What names the topic in this version, as the answer repeats it."""
    key: bytes = topic["topic_id"].bytes if version >= TOPIC_ID_VERSION else topic["topic"].encode()
    return key


def _topic_of_message(version: int, topic: dict[str, Any]) -> FetchTopic:
    partitions = [
        FetchPartition(
            p["partition"],
            p["current_leader_epoch"],
            p["fetch_offset"],
            p["partition_max_bytes"],
            p["last_fetched_epoch"],
        )
        for p in topic["partitions"]
    ]
    return _topic_of(version, _key_of(version, topic), partitions)
