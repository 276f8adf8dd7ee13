"""Fetch (key 1) between brokers, versions 12 to 17, written and read by hand: the codec costs five times as much.

A follower asks with its epochs and its log's begin, and is told of a leader's watermark, its log's begin, and where the two
logs part (KIP-595). Topics go by id, in version 12 by name. Records are views of the answer's buffer. Pure; bad bytes raise
MalformedError. Fields: KIP-227, KIP-320, KIP-516, KIP-903.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from headrace.broker.errors import UnsupportedVersionError
from headrace.broker.wire.fields import MalformedError
from headrace.broker.wire.special_values import NO_EPOCH, READ_UNCOMMITTED
from headrace.broker.wire.varint import OverlongError, encode_uvarint, read_uvarint

FIRST_VERSION, TOPIC_ID_VERSION, REPLICA_STATE_VERSION, LAST_VERSION = 12, 13, 15, 17

WireKey = tuple[bytes, int]
"""A partition as requests name it: the 16 bytes of its topic's id, or in version 12 its topic's name, and its number."""

_new_tuple = tuple.__new__  # half the time of a call of the class
_HEAD = Struct(">iiibii")
_REPLICA = Struct(">i")
# Tag 1 of the whole request: 13 bytes, the last of which says that it has no tags itself.
_REPLICA_STATE = Struct(">BBBiqB")
_PARTITION = Struct(">iiqiqiB")
_INDEX = Struct(">i")
_TOP = Struct(">ihi")
_FOUND_HEAD = Struct(">ihqqq")
_PREFERRED = Struct(">i")
_ABORTED_SIZE = 17
_DIVERGING = Struct(">iqB")
_DIVERGING_TAG = 0
_NO_TAGS, _NO_RACK = b"\0", b"\1"
_ID_SIZE = 16


class FetchQuestion(NamedTuple):
    """What a follower asks of one partition: the leader epoch it follows, where its log ends, in which epoch, and begins."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int


class ReplicaFetchRequest(NamedTuple):
    """`asked` is new or changed since the request before in the session, `forgotten` no longer asked for."""

    replica_id: int
    broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    session_id: int
    session_epoch: int
    asked: Iterable[tuple[WireKey, FetchQuestion]]
    forgotten: Iterable[WireKey]
    isolation_level: int = READ_UNCOMMITTED


class DivergingEpoch(NamedTuple):
    """The largest epoch of the leader's that is not above the follower's last one, and where it ends."""

    epoch: int
    end_offset: int


class FetchedPartition(NamedTuple):
    """What a leader says of one partition; offsets are -1 where it does not say."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: DivergingEpoch | None
    records: memoryview | None
    last_stable_offset: int = -1


class ReplicaFetchAnswer(NamedTuple):
    """`error_code` is of the session, or of all."""

    error_code: int
    session_id: int
    partitions: list[tuple[WireKey, FetchedPartition]]


class ReplicaFetch:
    """In the place of an `Api` for a client; it has no state."""

    key = 1
    name = "Fetch"

    def encode_request(self, version: int, message: ReplicaFetchRequest) -> bytes:
        """Raises UnsupportedVersionError."""
        if not FIRST_VERSION <= version <= LAST_VERSION:
            raise UnsupportedVersionError(
                f"followers fetch in versions {FIRST_VERSION} to {LAST_VERSION}, not {version}"
            )
        has_state = version >= REPLICA_STATE_VERSION
        out = bytearray() if has_state else bytearray(_REPLICA.pack(message.replica_id))
        out += _HEAD.pack(
            message.max_wait_ms,
            message.min_bytes,
            message.max_bytes,
            message.isolation_level,
            message.session_id,
            message.session_epoch,
        )
        _write_asked(out, version, message)
        _write_forgotten(out, version, message.forgotten)
        out += _NO_RACK
        out += (
            _REPLICA_STATE.pack(1, 1, 13, message.replica_id, message.broker_epoch, 0)
            if has_state
            else _NO_TAGS
        )
        return bytes(out)

    def decode_response(self, version: int, buffer: memoryview, offset: int = 0) -> ReplicaFetchAnswer:
        """Raises MalformedError."""
        try:
            return _read_answer(version, buffer, offset)
        except (IndexError, StructError, OverlongError) as error:
            raise MalformedError(
                f"Fetch response version {version} is cut short or broken: {error}"
            ) from None


REPLICA_FETCH = ReplicaFetch()


# -- write


def _write_asked(out: bytearray, version: int, message: ReplicaFetchRequest) -> None:
    topics: dict[bytes, bytearray] = {}
    size_max = message.partition_max_bytes
    for (topic, index), (leader_epoch, offset, last_epoch, log_start_offset) in message.asked:
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = bytearray()
        partitions += _PARTITION.pack(index, leader_epoch, offset, last_epoch, log_start_offset, size_max, 0)
    out += encode_uvarint(len(topics) + 1)
    for topic, partitions in topics.items():
        _write_topic(out, version, topic, len(partitions) // _PARTITION.size, partitions)


def _write_forgotten(out: bytearray, version: int, forgotten: Iterable[WireKey]) -> None:
    topics: dict[bytes, bytearray] = {}
    for topic, index in forgotten:
        topics.setdefault(topic, bytearray()).extend(_INDEX.pack(index))
    out += encode_uvarint(len(topics) + 1)
    for topic, partitions in topics.items():
        _write_topic(out, version, topic, len(partitions) // _INDEX.size, partitions)


def _write_topic(out: bytearray, version: int, topic: bytes, count: int, partitions: bytearray) -> None:
    if version < TOPIC_ID_VERSION:
        out += encode_uvarint(len(topic) + 1)
    out += topic
    out += encode_uvarint(count + 1)
    out += partitions
    out += _NO_TAGS


# -- read


def _read_answer(version: int, view: memoryview, offset: int) -> ReplicaFetchAnswer:
    _, error_code, session_id = _TOP.unpack_from(view, offset)
    count, offset = read_uvarint(view, offset + _TOP.size)
    partitions: list[tuple[WireKey, FetchedPartition]] = []
    for _ in range(count - 1):
        topic, offset = _read_topic(version, view, offset)
        partition_count, offset = read_uvarint(view, offset)
        for _ in range(partition_count - 1):
            index, found, offset = _read_partition(view, offset)
            partitions.append(((topic, index), found))
        offset = _pass_tags(view, offset)
    # They tell where leaders are: the controller tells followers.
    _pass_tags(view, offset)
    return ReplicaFetchAnswer(error_code, session_id, partitions)


def _read_topic(version: int, view: memoryview, offset: int) -> tuple[bytes, int]:
    size = _ID_SIZE
    if version < TOPIC_ID_VERSION:
        size, offset = read_uvarint(view, offset)
        size -= 1
    end = offset + size
    if not 0 < size <= len(view) - offset:
        raise MalformedError(f"a topic's name of {size} bytes runs past the end of the frame")
    return bytes(view[offset:end]), end


def _read_partition(view: memoryview, offset: int) -> tuple[int, FetchedPartition, int]:
    index, error_code, high_watermark, stable_offset, log_start_offset = _FOUND_HEAD.unpack_from(view, offset)
    aborted_count, offset = read_uvarint(view, offset + _FOUND_HEAD.size)
    for _ in range(aborted_count - 1):
        offset = _pass_tags(view, offset + _ABORTED_SIZE - 1)
    size, offset = read_uvarint(view, offset + _PREFERRED.size)
    records = None
    if size:
        end = offset + size - 1
        if end > len(view):
            raise MalformedError(f"records of {size - 1} bytes run past the end of the frame")
        records = view[offset:end]
        offset = end
    diverging = None
    if view[offset]:
        diverging, offset = _read_tags(view, offset)
    else:
        offset += 1
    found = (error_code, high_watermark, log_start_offset, diverging, records, stable_offset)
    return index, _new_tuple(FetchedPartition, found), offset


def _read_tags(view: memoryview, offset: int) -> tuple[DivergingEpoch | None, int]:
    diverging = None
    count, offset = read_uvarint(view, offset)
    for _ in range(count):
        tag, offset = read_uvarint(view, offset)
        size, offset = read_uvarint(view, offset)
        if tag == _DIVERGING_TAG:
            epoch, end_offset, _ = _DIVERGING.unpack_from(view, offset)
            if (epoch, end_offset) != (NO_EPOCH, -1):
                diverging = DivergingEpoch(epoch, end_offset)
        offset = _behind(view, offset, size)
    return diverging, offset


def _pass_tags(view: memoryview, offset: int) -> int:
    count, offset = read_uvarint(view, offset)
    for _ in range(count):
        _, offset = read_uvarint(view, offset)
        size, offset = read_uvarint(view, offset)
        offset = _behind(view, offset, size)
    return offset


def _behind(view: memoryview, offset: int, size: int) -> int:
    if size > len(view) - offset:
        raise MalformedError(f"a tagged field of {size} bytes runs past the end of the frame")
    return offset + size
