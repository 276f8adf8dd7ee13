"""The records of `__consumer_offsets`, byte for byte as Apache Kafka 3.9 writes them, and as it reads older
ones.

Keys: OffsetCommitKey (versions 0 and 1), GroupMetadataKey (version 2). Values: OffsetCommitValue (reads 0-4,
writes 3, or 1 when an expiry is stored), GroupMetadataValue (reads 0-4, writes 3; version 4 is the first
flexible one, KIP-915). A value of None is a tombstone. Record versions above these (KIP-848 groups) are kept
as unknown and skipped. Knows nothing of batches or logs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from headrace.broker.coordinators.records import RecordFormatError
from headrace.broker.coordinators.stored import (
    INT16,
    INT32,
    INT64,
    FieldReader,
    nullable_string,
    sized,
    string,
)

_KEY_START = struct.Struct(">hh")  # version, size of the group id
_VALUE_START = struct.Struct(">hqih")  # version, offset, leader epoch, size of the metadata


class OffsetKey(NamedTuple):
    """Key of a committed offset."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Key of a group's metadata."""

    group_id: str


class OffsetValue(NamedTuple):
    """A committed offset; -1 stands for no leader epoch and no expiry."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """A member of a generation with its subscription (under the chosen protocol) and its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    """A generation of a group; without members the group is Empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberValue, ...]


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """OffsetCommitKey version 1."""
    return b"\x00\x01" + string(group_id) + string(topic) + struct.pack(">i", partition)


def encode_group_key(group_id: str) -> bytes:
    """GroupMetadataKey version 2."""
    return b"\x00\x02" + string(group_id)


def encode_offset_value(value: OffsetValue) -> bytes:
    """OffsetCommitValue version 3, or version 1 (which has no leader epoch) when an expiry is stored."""
    metadata = string(value.metadata)
    if value.expire_timestamp_ms != -1:
        times = struct.pack(">qq", value.commit_timestamp_ms, value.expire_timestamp_ms)
        return struct.pack(">hq", 1, value.offset) + metadata + times
    return (
        struct.pack(">hqi", 3, value.offset, value.leader_epoch)
        + metadata
        + struct.pack(">q", value.commit_timestamp_ms)
    )


def encode_group_value(value: GroupValue) -> bytes:
    """GroupMetadataValue version 3."""
    parts = [
        b"\x00\x03",
        string(value.protocol_type),
        struct.pack(">i", value.generation),
        nullable_string(value.protocol),
        nullable_string(value.leader),
        struct.pack(">qi", value.state_timestamp_ms, len(value.members)),
    ]
    for member in value.members:
        parts += [
            string(member.member_id),
            nullable_string(member.instance_id),
            string(member.client_id),
            string(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            sized(member.subscription),
            sized(member.assignment),
        ]
    return b"".join(parts)


def decode_key(data: bytes) -> OffsetKey | GroupKey | None:
    """What a key stands for; None for versions after 3.9's classic groups."""
    found = _plain_offset_key(data)
    if found is not None:
        return found
    reader = FieldReader(data)
    version = reader.number(INT16)
    if version in (0, 1):
        return OffsetKey(reader.string(), reader.string(), reader.number(INT32))
    if version == 2:
        return GroupKey(reader.string())
    return None


def _plain_offset_key(data: bytes) -> OffsetKey | None:
    """A sound key of version 1, which almost all are, in a third of the time; None for any other."""
    try:
        version, group_size = _KEY_START.unpack_from(data)
        group_end = _KEY_START.size + group_size
        (topic_size,) = INT16.unpack_from(data, group_end)
        topic_end = group_end + 2 + topic_size
        (partition,) = INT32.unpack_from(data, topic_end)
    except struct.error:
        return None
    if version != 1 or group_size < 0 or topic_size < 0:
        return None
    group_id, topic = data[_KEY_START.size : group_end], data[group_end + 2 : topic_end]
    return OffsetKey(group_id.decode(), topic.decode(), partition)


def decode_offset_value(data: bytes) -> OffsetValue:
    """Any OffsetCommitValue, versions 0 to 4."""
    found = _plain_offset_value(data)
    if found is not None:
        return found
    reader = FieldReader(data)
    version = reader.number(INT16)
    if not 0 <= version <= 4:
        raise RecordFormatError(f"a committed offset has the unknown version {version}")
    reader.flexible = version >= 4
    offset = reader.number(INT64)
    leader_epoch = reader.number(INT32) if version >= 3 else -1
    metadata = reader.string()
    commit_timestamp_ms = reader.number(INT64)
    expire_timestamp_ms = reader.number(INT64) if version == 1 else -1
    return OffsetValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp_ms=commit_timestamp_ms,
        expire_timestamp_ms=expire_timestamp_ms,
    )


def _plain_offset_value(data: bytes) -> OffsetValue | None:
    """A sound value of version 3, which almost all are, in a third of the time; None for any other."""
    try:
        version, offset, leader_epoch, size = _VALUE_START.unpack_from(data)
        end = _VALUE_START.size + size
        (commit_timestamp_ms,) = INT64.unpack_from(data, end)
    except struct.error:
        return None
    if version != 3 or size < 0:
        return None
    metadata = data[_VALUE_START.size : end].decode() if size else ""
    return OffsetValue(offset, leader_epoch, metadata, commit_timestamp_ms)


def _decode_member(reader: FieldReader, version: int) -> MemberValue:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.number(INT32) if version >= 1 else -1
    session_timeout_ms = reader.number(INT32)
    subscription, assignment = reader.bytes_field(), reader.bytes_field()
    reader.skip_tagged_fields()
    return MemberValue(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms if version >= 1 else session_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


def decode_group_value(data: bytes) -> GroupValue:
    """Any GroupMetadataValue, versions 0 to 4."""
    reader = FieldReader(data)
    version = reader.number(INT16)
    if not 0 <= version <= 4:
        raise RecordFormatError(f"a group's metadata has the unknown version {version}")
    reader.flexible = version >= 4
    protocol_type = reader.string()
    generation = reader.number(INT32)
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    state_timestamp_ms = reader.number(INT64) if version >= 2 else -1
    members = tuple(_decode_member(reader, version) for _ in range(reader.count()))
    return GroupValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        state_timestamp_ms=state_timestamp_ms,
        members=members,
    )
