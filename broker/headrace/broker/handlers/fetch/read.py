"""Reading a Fetch request: the versions that consumers and followers use by hand, all others through the codec."""

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
# The only tagged field of a follower's request, behind their count: 1, of that size, with no tagged fields of its own.
_REPLICA_STATE = Struct(">BBBiqB")
_REPLICA_STATE_TAG, _REPLICA_STATE_SIZE = 1, 13


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
            _new_tuple(FetchPartition, (index, epoch, fetch_offset, size_max, NO_EPOCH, start_offset))
            for index, epoch, fetch_offset, start_offset, size_max in _CLASSIC_PARTITION.iter_unpack(
                frame[offset:end]
            )
        ]
        if len(partitions) < partition_count:
            return None
        offset = end
        topics.append(FetchTopic(str(key, "utf-8"), None, key, partitions))
    (forgotten_count,) = _INT32.unpack_from(frame, offset)
    if forgotten_count:
        return None
    rack = ""
    if version >= RACK_VERSION:
        (size,) = _INT16.unpack_from(frame, offset + 4)
        if not 0 <= size <= len(frame) - offset - 6:
            return None
        rack = str(frame[offset + 6 : offset + 6 + size], "utf-8")
    return _request(version, head, topics, rack)


def _read_flexible(version: int, frame: memoryview, offset: int) -> FetchRequest | None:
    """Versions 12 and later; None (the codec reads it) as soon as a tagged field is met, but a follower's replica state."""
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
        for asked in _FLEXIBLE_PARTITION.iter_unpack(frame[offset:end]):
            index, epoch, fetch_offset, last_epoch, start_offset, size_max, tags = asked
            partition = (index, epoch, fetch_offset, size_max, last_epoch, start_offset)
            partitions.append(_new_tuple(FetchPartition, partition))
            has_tags |= tags
        if has_tags:
            return None
        offset = end + 1
        topics.append(_topic_of(version, key, partitions))
    tail = _read_tail(version, frame, offset)
    if tail is None:
        return None
    rack, replica_id, replica_epoch = tail
    if replica_id >= 0:
        head = (replica_id, *head[1:])
    return _request(version, head, topics, rack, replica_epoch)


def _read_tail(version: int, frame: memoryview, offset: int) -> tuple[str, int, int] | None:
    """(rack, replica id, its epoch) where no forgotten topics, and no tagged fields but those, end the request."""
    if frame[offset] != 1:
        return None
    rack_size, offset = read_uvarint(frame, offset + 1)
    end = offset + rack_size - 1
    if rack_size < 1:
        return None
    rack = str(frame[offset:end], "utf-8") if rack_size > 1 else ""
    if end == len(frame) - 1 and frame[end] == 0:
        return rack, CONSUMER_REPLICA_ID, NO_EPOCH
    if version < REPLICA_STATE_VERSION or end + _REPLICA_STATE.size != len(frame):
        return None
    count, tag, size, replica_id, replica_epoch, tags = _REPLICA_STATE.unpack_from(frame, end)
    if (count, tag, size, tags) != (1, _REPLICA_STATE_TAG, _REPLICA_STATE_SIZE, 0):
        return None
    return rack, replica_id, replica_epoch


def _request(
    version: int, head: tuple[int, ...], topics: list[FetchTopic], rack: str, replica_epoch: int = NO_EPOCH
) -> FetchRequest:
    is_from_leader = _is_from_leader(version, head[0])
    return _new_tuple(
        FetchRequest, (*head, topics, (), replica_epoch, rack, MAGIC, is_from_leader, None, False)
    )


def _is_from_leader(version: int, replica_id: int) -> bool:
    return version < RACK_VERSION or replica_id >= 0


def _topic_of(version: int, key: bytes, partitions: list[FetchPartition]) -> FetchTopic:
    if version >= TOPIC_ID_VERSION:
        return FetchTopic(None, UUID(bytes=key), key, partitions)
    return FetchTopic(str(key, "utf-8"), None, key, partitions)


def _from_message(version: int, message: dict[str, Any]) -> FetchRequest:
    replica_id = max(message["replica_id"], message["replica_state"]["replica_id"])
    return FetchRequest(
        replica_id=replica_id,
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
        replica_epoch=message["replica_state"]["replica_epoch"],
        rack=message["rack_id"],
        magic=_magic_for(version),
        is_from_leader=_is_from_leader(version, replica_id),
        wants_headers=replica_id < 0 and message["wants_batch_headers"],
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
            p["log_start_offset"],
        )
        for p in topic["partitions"]
    ]
    return _topic_of(version, _key_of(version, topic), partitions)
