"""What members do once they have joined: sync, heartbeat, leave; and how a group is shown.

The rules of Apache Kafka 3.9's GroupCoordinator.scala (doSyncGroup, handleHeartbeat, handleLeaveGroup).
"""

from __future__ import annotations

from headrace.broker.coordinators.records import Record
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.decision import Turn
from headrace.broker.groups.events import (
    UNKNOWN_MEMBER_ID,
    DescribeAnswer,
    Heartbeat,
    LeaveAnswer,
    LeaveGroup,
    LeavingMember,
    SyncAnswer,
    SyncGroup,
)
from headrace.broker.groups.group import Group, GroupState
from headrace.broker.groups.joining import validate_member
from headrace.broker.groups.rebalance import (
    expect_heartbeat,
    park_sync,
    remove_member,
    remove_pending_member,
    synced,
)
from headrace.broker.groups.records import encode_group_key, encode_group_value


def sync(group: Group | None, event: SyncGroup, turn: Turn) -> None:
    """Decide a SyncGroup: followers wait for the leader; the leader's assignments are stored, then all hear
    theirs.
    """
    error = _sync_error(group, event)
    if error is not ErrorCode.NONE or group is None:
        turn.answer(SyncAnswer(error=error))
        return
    group = turn.draft(group, may_resize=False)
    member = group.members[event.member_id]
    synced(group, member.member_id, turn)
    if group.is_stable:
        turn.answer(_assignment(group, member.assignment))
        expect_heartbeat(group, member, turn)
        return
    park_sync(group, member, turn)
    if member.member_id == group.leader:
        _store_assignments(group, event, turn)


def _sync_error(group: Group | None, event: SyncGroup) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = validate_member(group, event.member_id, event.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if event.protocol_type is not None and event.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if event.protocol_name is not None and event.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.is_preparing else ErrorCode.NONE


def _store_assignments(group: Group, event: SyncGroup, turn: Turn) -> None:
    """The record makes the group stable when it is applied; members the leader forgot get an empty
    assignment.
    """
    assignments = {member_id: event.assignments.get(member_id, b"") for member_id in group.members}
    value = encode_group_value(group.stored(assignments))
    turn.decision.records.append(Record(encode_group_key(group.group_id), value))
    for member in group.members.values():
        if member.syncing is not None:
            turn.decision.reply(member.syncing, _assignment(group, assignments[member.member_id]))
            expect_heartbeat(group, member, turn)


def _assignment(group: Group, assignment: bytes) -> SyncAnswer:
    return SyncAnswer(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def heartbeat(group: Group | None, event: Heartbeat, turn: Turn) -> ErrorCode:
    """Decide a Heartbeat; a member of the current generation gets a full session whatever the group's state."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = validate_member(group, event.member_id, event.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    expect_heartbeat(group, group.members[event.member_id], turn)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.is_preparing else ErrorCode.NONE


def leave(group: Group | None, event: LeaveGroup, turn: Turn) -> None:
    """Decide a LeaveGroup, member by member."""
    group = None if group is None else turn.draft(group)
    answers = []
    for leaving in event.members:
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _leave_one(group, leaving, turn)
        answers.append((leaving, error))
    turn.answer(LeaveAnswer(members=tuple(answers)))


def _leave_one(group: Group, leaving: LeavingMember, turn: Turn) -> ErrorCode:
    member_id = leaving.member_id
    if member_id == UNKNOWN_MEMBER_ID:
        member_id = group.static_members.get(leaving.instance_id or "", UNKNOWN_MEMBER_ID)
    elif member_id in group.pending_members:
        remove_pending_member(group, member_id, turn)
        return ErrorCode.NONE
    error = validate_member(group, member_id, leaving.instance_id)
    if error is ErrorCode.NONE:
        remove_member(group, group.members[member_id], turn)
    return error


def describe(group: Group | None) -> DescribeAnswer:
    """A group that nobody knows is Dead; protocol, metadata and assignments show only while it is stable."""
    if group is None:
        return DescribeAnswer(state=GroupState.DEAD.value)
    protocol = group.protocol_name if group.is_stable else None
    return DescribeAnswer(
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=protocol or "",
        members=tuple(member.described(protocol) for member in group.members.values()),
    )
