"""JoinGroup: who is let in, under which id, and whether the group must rebalance for it.

The rules of Apache Kafka 3.9's GroupCoordinator.scala (handleJoinGroup and below): KIP-62 time-outs, KIP-134
initial delay, KIP-345 static members, KIP-394 member id required, KIP-814 skipped assignment.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.broker.coordinators.records import Record
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.decision import Turn
from headrace.broker.groups.events import UNKNOWN_MEMBER_ID, JoinAnswer, JoinGroup
from headrace.broker.groups.group import Group, Member
from headrace.broker.groups.rebalance import (
    complete_join_if_ready,
    drop_member,
    expect_new_member,
    expect_pending_member,
    expect_replacement,
    forget_pending_member,
    joined_answer,
    park_join,
    prepare_rebalance,
    prepare_rebalance_if_possible,
    release_parked,
)
from headrace.broker.groups.records import encode_group_key, encode_group_value

# Clients that were told a member id and never came back; each expires after its session time-out.
PENDING_MEMBERS_COUNT_MAX = 10_000
# More does not fit a record of `__consumer_offsets` (its max.message.bytes), so the group could never become
# stable.
PROTOCOLS_SIZE_MAX = 1_048_576
# Member ids and client ids are stored as strings of at most 32,767 bytes; an id gets a UUID appended.
IDENTIFIER_SIZE_MAX = 32_000


def join(group: Group, event: JoinGroup, turn: Turn) -> None:
    """Decide a JoinGroup request for the draft of a group that exists or has just been made."""
    error = _request_error(event)
    if error is not ErrorCode.NONE:
        turn.answer(JoinAnswer(error=error, member_id=event.member_id))
    elif not _has_room(group, event.member_id, turn):
        _turn_away(group, event.member_id, turn)
    elif not group.supports(event.protocol_type, event.protocols):
        turn.answer(JoinAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=event.member_id))
    elif event.member_id == UNKNOWN_MEMBER_ID:
        _join_unknown(group, event, turn)
    elif event.member_id in group.pending_members:
        _join_pending(group, event, turn)
    else:
        _join_known(group, event, turn)
    complete_join_if_ready(group, turn)


def _request_error(event: JoinGroup) -> ErrorCode:
    identifiers = max(len(event.client_id), len(event.instance_id or "")) * 3
    if identifiers > IDENTIFIER_SIZE_MAX:
        return ErrorCode.INVALID_REQUEST
    if sum(len(metadata) for _, metadata in event.protocols) > PROTOCOLS_SIZE_MAX:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _has_room(group: Group, member_id: str, turn: Turn) -> bool:
    size_max = turn.config.group_max_size
    member = group.members.get(member_id)
    if member_id == UNKNOWN_MEMBER_ID and len(group.pending_members) >= PENDING_MEMBERS_COUNT_MAX:
        return False
    if group.is_empty:
        return True
    if group.is_preparing:
        return (member is not None and member.joining is not None) or group.joining_count < size_max
    return member is not None or len(group.members) < size_max


def _turn_away(group: Group, member_id: str, turn: Turn) -> None:
    member = group.members.get(member_id)
    if member is not None:
        drop_member(group, member, ErrorCode.GROUP_MAX_SIZE_REACHED, turn)
    elif member_id in group.pending_members:
        forget_pending_member(group, member_id, turn)
    turn.answer(JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED))


def validate_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Whether a request comes from a member, and from the current one under its instance id."""
    if instance_id is not None:
        current = group.static_members.get(instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _join_unknown(group: Group, event: JoinGroup, turn: Turn) -> None:
    member_id = f"{event.instance_id or event.client_id}-{event.fresh_id}"
    if event.instance_id is not None:
        old_member_id = group.static_members.get(event.instance_id)
        if old_member_id is None:
            _add_member(group, member_id, event, turn)
        else:
            _replace_static_member(group, group.members[old_member_id], member_id, event, turn)
    elif event.requires_member_id:
        group.pending_members[member_id] = None
        expect_pending_member(group, member_id, event.session_timeout_ms, turn)
        turn.answer(JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
    else:
        _add_member(group, member_id, event, turn)


def _join_pending(group: Group, event: JoinGroup, turn: Turn) -> None:
    if event.instance_id is not None:
        # Static members never wait under a pending id; Kafka answers this with its catch-all error, too.
        turn.answer(JoinAnswer(error=ErrorCode.UNKNOWN_SERVER_ERROR))
        return
    turn.decision.cancel_timer(("pending", group.group_id, event.member_id))
    _add_member(group, event.member_id, event, turn)


def _join_known(group: Group, event: JoinGroup, turn: Turn) -> None:
    error = validate_member(group, event.member_id, event.instance_id)
    if error is ErrorCode.NONE and group.is_empty:
        error = ErrorCode.UNKNOWN_MEMBER_ID
    if error is not ErrorCode.NONE:
        turn.answer(JoinAnswer(error=error, member_id=event.member_id))
        return
    member = group.members[event.member_id]
    follows = group.is_stable and member.member_id != group.leader
    if member.protocols == event.protocols and (group.is_completing or follows):
        turn.answer(joined_answer(group, member.member_id))
    else:
        _update_member(group, member, event, turn)
        prepare_rebalance_if_possible(group, turn)


def _update_member(group: Group, member: Member, event: JoinGroup, turn: Turn) -> None:
    updated = replace(
        member,
        protocols=event.protocols,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
    )
    park_join(group, updated, turn)


def _add_member(group: Group, member_id: str, event: JoinGroup, turn: Turn) -> None:
    member = Member(
        member_id=member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        joining=turn.token,
        is_new=True,
    )
    if group.is_preparing and group.generation == 0:
        group.new_member_added = True
    group.add(member, event.protocol_type)
    expect_new_member(group, member, turn)
    prepare_rebalance_if_possible(group, turn)


def _replace_static_member(group: Group, old: Member, member_id: str, event: JoinGroup, turn: Turn) -> None:
    """A static member came back without its id: it takes its place, and whoever holds the old id is fenced."""
    release_parked(old, ErrorCode.FENCED_INSTANCE_ID, turn)
    member = replace(
        old,
        member_id=member_id,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        joining=None,
        syncing=None,
    )
    leader = group.leader
    _put_in_place(group, old, member)
    expect_replacement(group, old, member.member_id, turn)
    if group.is_stable and group.elected_protocol() == group.protocol_name:
        _keep_assignment(group, member, leader, event, turn)
        return
    group.put(replace(member, joining=turn.token))
    if not group.is_preparing:
        prepare_rebalance(group, turn)


def _put_in_place(group: Group, old: Member, member: Member) -> None:
    group.members = {
        (member.member_id if member_id == old.member_id else member_id): (member if other is old else other)
        for member_id, other in group.members.items()
    }
    if group.leader == old.member_id:
        group.leader = member.member_id
    if old.member_id in group.pending_syncs:
        del group.pending_syncs[old.member_id]
        group.pending_syncs[member.member_id] = None
    assert member.instance_id is not None
    group.static_members[member.instance_id] = member.member_id


def _keep_assignment(
    group: Group, member: Member, old_leader: str | None, event: JoinGroup, turn: Turn
) -> None:
    """Same protocol, so the assignment stands: store the new id and let the member sync its old assignment."""
    assignments = {each.member_id: each.assignment for each in group.members.values()}
    value = encode_group_value(group.stored(assignments))
    turn.decision.records.append(Record(encode_group_key(group.group_id), value))
    if event.skips_assignment:
        is_leader = group.leader == member.member_id
        turn.answer(joined_answer(group, member.member_id, skip_assignment=is_leader))
    else:
        # Before KIP-814 a returning leader must not believe it has to assign: it hears of the old leader.
        turn.answer(joined_answer(group, member.member_id, leader=old_leader, with_members=False))
