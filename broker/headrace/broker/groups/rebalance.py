"""How a group gets from one generation to the next, and how members fall out of it.

The rules of Apache Kafka 3.9's GroupCoordinator.scala (prepareRebalance, onCompleteJoin, onExpire...). They
change a draft of the group, and in it only what is not persisted (who waits, who is expected, the generation that is
being formed); what is persisted, assignments and the end of the last member, leaves as a record and changes memory when
it is applied.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.broker.coordinators.records import Record
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.decision import Turn
from headrace.broker.groups.events import (
    JoinAnswer,
    JoinExpired,
    PendingMemberExpired,
    SessionExpired,
    SyncAnswer,
    SyncExpired,
)
from headrace.broker.groups.group import Group, GroupState, Member
from headrace.broker.groups.records import GroupValue, encode_group_key, encode_group_value

# Kafka's NewMemberJoinTimeoutMs: a new member whose client went away is not waited for longer.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


def expect_heartbeat(group: Group, member: Member, turn: Turn) -> None:
    """The member has just shown that it lives: give it a full session."""
    _expect_member(group, member.member_id, member.session_timeout_ms, turn)


def expect_replacement(group: Group, old: Member, member_id: str, turn: Turn) -> None:
    """A static member came back under a new id: the time-out that it asks for holds from its next heartbeat on."""
    turn.decision.cancel_timer(("session", group.group_id, old.member_id))
    _expect_member(group, member_id, old.session_timeout_ms, turn)


def expect_new_member(group: Group, member: Member, turn: Turn) -> None:
    """A new member does not send heartbeats while its join is parked; it may wait that long."""
    _expect_member(group, member.member_id, NEW_MEMBER_JOIN_TIMEOUT_MS, turn)


def _expect_member(group: Group, member_id: str, timeout_ms: int, turn: Turn) -> None:
    event = SessionExpired(group_id=group.group_id, member_id=member_id)
    turn.decision.set_timer(("session", group.group_id, member_id), turn.now_ms + timeout_ms, event)


def expect_pending_member(group: Group, member_id: str, session_timeout_ms: int, turn: Turn) -> None:
    """A client was told its member id; the rebalance waits for it that long."""
    event = PendingMemberExpired(group_id=group.group_id, member_id=member_id)
    turn.decision.set_timer(("pending", group.group_id, member_id), turn.now_ms + session_timeout_ms, event)


def forget_pending_member(group: Group, member_id: str, turn: Turn) -> None:
    group.remove(member_id)
    turn.decision.cancel_timer(("pending", group.group_id, member_id))


def park_join(group: Group, member: Member, turn: Turn) -> None:
    """Let the join wait for the rebalance; an older one of the same member (its client tried again) need not
    wait.
    """
    if member.joining is not None:
        retry = JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        turn.decision.reply(member.joining, retry)
    group.put(replace(member, joining=turn.token))


def park_sync(group: Group, member: Member, turn: Turn) -> None:
    """Let the sync wait for the leader's assignment; an older one of the same member need not wait."""
    if member.syncing is not None:
        turn.decision.reply(member.syncing, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
    group.put(replace(member, syncing=turn.token))


def drop_member(group: Group, member: Member, error: ErrorCode, turn: Turn) -> None:
    """Forget a member and answer what it has parked; says nothing about the others."""
    group.remove(member.member_id)
    turn.decision.cancel_timer(("session", group.group_id, member.member_id))
    release_parked(member, error, turn)


def release_parked(member: Member, error: ErrorCode, turn: Turn) -> None:
    """Answer the parked requests of a member that goes with an error."""
    if member.joining is not None:
        member_id = member.member_id if error is ErrorCode.FENCED_INSTANCE_ID else ""
        turn.decision.reply(member.joining, JoinAnswer(error=error, member_id=member_id))
    if member.syncing is not None:
        turn.decision.reply(member.syncing, SyncAnswer(error=error))


def remove_member(group: Group, member: Member, turn: Turn) -> None:
    """A member left or failed: the others rebalance."""
    drop_member(group, member, ErrorCode.UNKNOWN_MEMBER_ID, turn)
    if group.is_stable or group.is_completing:
        prepare_rebalance(group, turn)
    elif group.is_preparing:
        complete_join_if_ready(group, turn)


def remove_pending_member(group: Group, member_id: str, turn: Turn) -> None:
    """A client that was told its id is no longer waited for."""
    forget_pending_member(group, member_id, turn)
    complete_join_if_ready(group, turn)


def prepare_rebalance_if_possible(group: Group, turn: Turn) -> None:
    if not group.is_preparing:
        prepare_rebalance(group, turn)


def prepare_rebalance(group: Group, turn: Turn) -> None:
    """Begin to collect joins for the next generation."""
    if group.is_completing:
        release_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, turn)
    _expect_no_syncs(group, turn)
    delay_ms = group.rebalance_timeout_ms
    if group.is_empty:
        delay_ms = turn.config.group_initial_rebalance_delay_ms
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    group.move_to(GroupState.PREPARING_REBALANCE, turn.now_ms)
    _expect_join_end(group, delay_ms, turn)
    complete_join_if_ready(group, turn)


def release_syncs(group: Group, error: ErrorCode, turn: Turn) -> None:
    """The generation comes to nothing: no assignments, and whoever waits for one hears `error`."""
    for member in list(group.members.values()):
        group.put(replace(member, assignment=b"", syncing=None))
        if member.syncing is not None:
            turn.decision.reply(member.syncing, SyncAnswer(error=error))
            expect_heartbeat(group, member, turn)


def synced(group: Group, member_id: str, turn: Turn) -> None:
    """One member fewer to wait for in this generation."""
    if member_id in group.pending_syncs:
        del group.pending_syncs[member_id]
        if not group.pending_syncs:
            turn.decision.cancel_timer(("sync", group.group_id, ""))


def _expect_no_syncs(group: Group, turn: Turn) -> None:
    if group.pending_syncs:
        group.pending_syncs = {}
        turn.decision.cancel_timer(("sync", group.group_id, ""))


def _expect_join_end(group: Group, delay_ms: int, turn: Turn) -> None:
    event = JoinExpired(group_id=group.group_id)
    turn.decision.set_timer(("join", group.group_id, ""), turn.now_ms + delay_ms, event)


def complete_join_if_ready(group: Group, turn: Turn) -> None:
    """Everybody is here: no need to wait for the rebalance time-out (but for an initial delay)."""
    if group.is_preparing and group.initial_delay_ms is None and group.all_joined:
        complete_join(group, turn)


def join_expired(group: Group, turn: Turn) -> None:
    """The time for joins is over; a group that just began waits on while members keep coming (KIP-134)."""
    if not group.is_preparing:
        return
    delay_ms, group.initial_delay_ms = group.initial_delay_ms, None
    if delay_ms is not None and group.new_member_added and group.initial_remaining_ms != 0:
        group.new_member_added = False
        group.initial_delay_ms = min(turn.config.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - delay_ms, 0)
        _expect_join_end(group, group.initial_delay_ms, turn)
        return
    complete_join(group, turn)


def complete_join(group: Group, turn: Turn) -> None:
    """Form the next generation of those who joined; without members, store the group as empty."""
    turn.decision.cancel_timer(("join", group.group_id, ""))
    for member in list(group.members.values()):
        if member.joining is None and member.instance_id is None:
            drop_member(group, member, ErrorCode.UNKNOWN_MEMBER_ID, turn)
    if not group.members:
        turn.decision.records.append(empty_group_record(group, turn.now_ms))
    elif not _elect_joined_leader(group):
        _expect_join_end(group, group.rebalance_timeout_ms, turn)
    else:
        _begin_generation(group, turn)


def _elect_joined_leader(group: Group) -> bool:
    """Keep the leader when it joined, else the first who did; False when nobody has joined."""
    leader = group.members.get(group.leader or "")
    if leader is None or leader.joining is None:
        joined = (member.member_id for member in group.members.values() if member.joining is not None)
        elected = next(joined, None)
        if elected is None:
            return False
        group.leader = elected
    return True


def _begin_generation(group: Group, turn: Turn) -> None:
    group.generation += 1
    group.protocol_name = group.elected_protocol()
    group.note_subscriptions()
    group.move_to(GroupState.COMPLETING_REBALANCE, turn.now_ms)
    for member in list(group.members.values()):
        if member.joining is not None:
            turn.decision.reply(member.joining, joined_answer(group, member.member_id))
        group.put(replace(member, joining=None, is_new=False))
        expect_heartbeat(group, member, turn)
    group.pending_syncs = dict.fromkeys(group.members)
    event = SyncExpired(group_id=group.group_id, generation=group.generation)
    deadline_ms = turn.now_ms + group.rebalance_timeout_ms
    turn.decision.set_timer(("sync", group.group_id, ""), deadline_ms, event)


def joined_answer(
    group: Group,
    member_id: str,
    *,
    leader: str | None = None,
    with_members: bool = True,
    skip_assignment: bool = False,
) -> JoinAnswer:
    """What a member of the current generation hears; the leader also hears of the others."""
    is_leader = member_id == group.leader
    return JoinAnswer(
        member_id=member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=(leader if leader is not None else group.leader) or "",
        skip_assignment=skip_assignment,
        members=group.member_list() if is_leader and with_members else (),
    )


def empty_group_record(group: Group, now_ms: int) -> Record:
    """The record of a generation without members."""
    value = GroupValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation + 1,
        protocol=None,
        leader=None,
        state_timestamp_ms=now_ms,
        members=(),
    )
    return Record(encode_group_key(group.group_id), encode_group_value(value))


def session_expired(group: Group, member_id: str, turn: Turn) -> None:
    """Remove a silent member, unless it waits for us; a new one is not waited for at all."""
    member = group.members.get(member_id)
    if member is None:
        return
    waits = member.joining is not None or member.syncing is not None
    if member.is_new or not waits:
        remove_member(group, member, turn)


def sync_expired(group: Group, generation: int, turn: Turn) -> None:
    """Remove the members that did not ask for their assignment in time."""
    if generation != group.generation or not (group.is_completing or group.is_stable):
        return
    missing = list(group.pending_syncs)
    if not missing:
        return
    for member_id in missing:
        drop_member(group, group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID, turn)
    prepare_rebalance(group, turn)
