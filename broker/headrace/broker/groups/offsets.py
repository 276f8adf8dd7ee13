"""Committed offsets: who may commit, what is stored, what expires, what is deleted.

The rules of Apache Kafka 3.9's GroupCoordinator.scala (doCommitOffsets, handleDeleteOffsets) and
GroupMetadata.scala (removeExpiredOffsets, KIP-211). Offsets change only when a record is applied; nothing
here touches members. What is committed in a transaction is pending until its marker (KIP-447).
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.coordinators.records import Record, RecordFormatError
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.decision import Turn
from headrace.broker.groups.events import (
    NO_GENERATION,
    UNKNOWN_MEMBER_ID,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsAnswer,
    FetchAnswer,
    FetchedOffset,
    FetchOffsets,
)
from headrace.broker.groups.group import CONSUMER_PROTOCOL_TYPE, Group
from headrace.broker.groups.joining import validate_member
from headrace.broker.groups.rebalance import expect_heartbeat, forget_pending_member
from headrace.broker.groups.records import (
    OffsetValue,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)
from headrace.broker.wire.partitions import TopicPartition
from headrace.broker.wire.special_values import NO_PRODUCER_ID

MINUTE_MS = 60_000
UNSTABLE = FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)


def commit_error(group: Group | None, event: CommitOffsets) -> ErrorCode:
    """Whether this commit may be stored at all."""
    if event.producer is not None:
        return _error_in_transaction(group, event)
    simple = event.generation <= NO_GENERATION
    if group is None:
        return ErrorCode.NONE if simple else ErrorCode.ILLEGAL_GENERATION
    if simple and group.is_empty:
        return ErrorCode.NONE
    if simple and event.member_id == UNKNOWN_MEMBER_ID and event.instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = validate_member(group, event.member_id, event.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.REBALANCE_IN_PROGRESS if group.is_completing else ErrorCode.NONE


def _error_in_transaction(group: Group | None, event: CommitOffsets) -> ErrorCode:
    """Producers before KIP-447 tell nothing of the member for which they commit."""
    assert group is not None, "the first commit makes it"
    simple = event.generation <= NO_GENERATION
    if simple and (group.is_empty or (event.member_id == UNKNOWN_MEMBER_ID and event.instance_id is None)):
        return ErrorCode.NONE
    error = validate_member(group, event.member_id, event.instance_id)
    if error is ErrorCode.NONE and event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def commit(group: Group | None, event: CommitOffsets, turn: Turn) -> None:
    """Decide an OffsetCommit request; each partition is stored or refused for its own metadata."""
    error = commit_error(group, event)
    if error is not ErrorCode.NONE:
        turn.answer(dict.fromkeys(event.offsets, error))
        return
    turn.decision.producer = event.producer
    if group is not None and not group.is_empty and event.producer is None:
        expect_heartbeat(group, group.members[event.member_id], turn)
    answer: dict[TopicPartition, ErrorCode] = {}
    for partition, value in event.offsets.items():
        record = _commit_record(event, partition, value, turn.config.offset_metadata_max_bytes)
        answer[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE if record is None else ErrorCode.NONE
        if record is not None:
            turn.decision.records.append(record)
    turn.answer(answer)


def _commit_record(
    event: CommitOffsets, partition: TopicPartition, value: OffsetValue, metadata_size_max: int
) -> Record | None:
    if length_in_java(value.metadata) > metadata_size_max:
        return None
    producer_id = NO_PRODUCER_ID if event.producer is None else event.producer.producer_id
    try:
        key = encode_offset_key(event.group_id, *partition)
        return Record(key, encode_offset_value(value), producer_id)
    except RecordFormatError:
        return None


def length_in_java(text: str) -> int:
    """What Java's `String.length` says, by which Apache Kafka bounds metadata: characters beyond U+FFFF count twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def fetch(group: Group | None, event: FetchOffsets) -> FetchAnswer:
    """The committed offsets asked for; -1 where there is none."""
    if group is None:
        return FetchAnswer(offsets=dict.fromkeys(event.partitions or (), FetchedOffset()))
    stored, pending = group.offsets, group.pending_offsets
    wanted: Iterable[TopicPartition] = stored if event.partitions is None else event.partitions
    return FetchAnswer(
        offsets={
            partition: UNSTABLE
            if event.requires_stable and pending.has(partition)
            else _fetched(stored.get(partition))
            for partition in wanted
        }
    )


def _fetched(value: OffsetValue | None) -> FetchedOffset:
    if value is None:
        return FetchedOffset()
    return FetchedOffset(offset=value.offset, leader_epoch=value.leader_epoch, metadata=value.metadata)


def delete_group(group: Group | None, event: DeleteGroup, turn: Turn) -> None:
    """Decide a group's deletion: only an empty one goes, with all its offsets."""
    if group is None:
        turn.answer(ErrorCode.GROUP_ID_NOT_FOUND)
    elif not group.is_empty:
        turn.answer(ErrorCode.NON_EMPTY_GROUP)
    else:
        group = turn.draft(group)
        for member_id in list(group.pending_members):
            forget_pending_member(group, member_id, turn)
        _remove(group, list(group.offsets), turn)
        turn.answer(ErrorCode.NONE)


def delete_offsets(group: Group | None, event: DeleteOffsets, turn: Turn) -> None:
    """Decide an OffsetDelete: topics that a live consumer group reads are refused (KIP-496)."""
    if group is None:
        turn.answer(DeleteOffsetsAnswer(error=ErrorCode.GROUP_ID_NOT_FOUND))
        return
    if not group.is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        turn.answer(DeleteOffsetsAnswer(error=ErrorCode.NON_EMPTY_GROUP))
        return
    subscribed = set() if group.is_empty else group.subscribed_topics
    answer: dict[TopicPartition, ErrorCode] = {}
    for partition in event.partitions:
        in_use = subscribed is None or partition.topic in subscribed
        answer[partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if in_use else ErrorCode.NONE
    removable = [partition for partition, error in answer.items() if error is ErrorCode.NONE]
    if removable:
        _remove(group, removable, turn)
    turn.answer(DeleteOffsetsAnswer(partitions=answer))


def expire(group: Group, turn: Turn) -> None:
    """Tombstones for what `offsets.retention.minutes` has passed over, and for the group when nothing is left
    of it.
    """
    retention_ms = turn.config.offsets_retention_minutes * MINUTE_MS
    expired = [
        partition
        for partition, value in group.offsets.items()
        if _has_expired(group, partition, value, turn.now_ms, retention_ms)
    ]
    _remove(group, expired, turn)


def _has_expired(
    group: Group, partition: TopicPartition, value: OffsetValue, now_ms: int, retention_ms: int
) -> bool:
    base_ms = value.commit_timestamp_ms
    if group.protocol_type is not None and group.is_empty:
        if group.state_timestamp_ms != -1:
            base_ms = group.state_timestamp_ms
    elif group.protocol_type is not None:
        topics = group.subscribed_topics if group.is_stable else None
        if topics is None or partition.topic in topics:
            return False
    if value.expire_timestamp_ms != -1:
        return now_ms >= value.expire_timestamp_ms
    return now_ms - base_ms >= retention_ms


def forget_topics(group: Group, topics: frozenset[str], turn: Turn) -> None:
    """Tombstones for the offsets of topics that were deleted."""
    _remove(group, [partition for partition in group.offsets if partition.topic in topics], turn)


def _remove(group: Group, partitions: list[TopicPartition], turn: Turn) -> None:
    """Tombstones; an empty group without offsets goes too (generation 0: it has no record of its own)."""
    stored = [partition for partition in partitions if partition in group.offsets]
    for partition in stored:
        turn.decision.records.append(Record(encode_offset_key(group.group_id, *partition), None))
    rest = len(group.offsets) - len(stored)
    if group.is_empty and not rest and not group.pending_offsets.outlive(stored) and group.generation > 0:
        turn.decision.records.append(Record(encode_group_key(group.group_id), None))


def is_useless(group: Group) -> bool:
    """Nobody is in the group and no offset is left; who was only told an id learns that the group is unknown."""
    return group.is_empty and not group.has_offsets
