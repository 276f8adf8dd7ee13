"""One shard of the group coordinator: the groups of one `__consumer_offsets` partition, as decide and apply.

`decide(event)` answers an event: records to append, replies, timers, and drafts of groups with what no record keeps (who
waits, who is expected, the generation being formed). It changes nothing. `adopt(decision)` puts the drafts in place;
`apply(record)` is the one way in which stored offsets, generations and assignments change, live and on replay alike.
Whoever runs a shard must append a decision's records, then adopt it, then apply them, then decide the next event, and
must hold replies until everything appended before them is committed; when the append fails it adopts what
`append_failed` decides instead. Knows nothing of logs, sockets or clocks (time comes as `now_ms`).
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.broker.config.sections import Groups
from headrace.broker.coordinators.records import Record
from headrace.broker.errors import ErrorCode
from headrace.broker.groups import membership, offsets, rebalance
from headrace.broker.groups.decision import GroupDecision, Turn
from headrace.broker.groups.events import (
    NO_GENERATION,
    UNKNOWN_MEMBER_ID,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    Event,
    FetchOffsets,
    GroupEvent,
    GroupOverview,
    Heartbeat,
    JoinAnswer,
    JoinExpired,
    JoinGroup,
    LeaveGroup,
    OffsetRetentionDue,
    PendingMemberExpired,
    SessionExpired,
    ShardLoaded,
    SyncAnswer,
    SyncExpired,
    SyncGroup,
    TopicsDeleted,
    TransactionEnded,
)
from headrace.broker.groups.group import Group, size_of
from headrace.broker.groups.joining import join
from headrace.broker.groups.memory import MEMBER_SIZE, MembersMemory
from headrace.broker.groups.records import (
    GroupKey,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from headrace.broker.groups.refusals import group_not_stored, offsets_not_stored, refusal
from headrace.broker.wire.partitions import TopicPartition
from headrace.broker.wire.special_values import NO_PRODUCER_ID

# Each group costs about 1 KB; Kafka sets no bound. Beyond it, groups that exist go on and new ones are
# refused.
GROUPS_COUNT_MAX = 20_000


class Shard:
    """The groups of one partition; `memory` is shared by all shards of a broker."""

    def __init__(self, config: Groups, memory: MembersMemory | None = None) -> None:
        self.config = config
        self.groups: dict[str, Group] = {}
        self._memory = memory or MembersMemory()
        self._sizes: dict[str, int] = {}
        # Where producers have offsets pending, by their id.
        self._groups_of: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return len(self.groups)

    def decide(self, event: Event, now_ms: int, token: int = 0) -> GroupDecision:
        """Decide one event; a request is answered, now or later, by a reply to `token`."""
        turn = Turn(now_ms=now_ms, token=token, config=self.config)
        if isinstance(event, ShardLoaded):
            self._loaded(turn)
            return turn.decision
        if isinstance(event, TransactionEnded):
            turn.decision.ended = event
            return turn.decision
        self._decide(self.groups.get(event.group_id), event, turn)
        if _looks_through_offsets(event) and not turn.decision.records:
            self._forget_if_useless(event.group_id, turn.decision)
        return turn.decision

    def _decide(self, group: Group | None, event: GroupEvent, turn: Turn) -> None:
        match event:
            case JoinGroup():
                self._join(group, event, turn)
            case SyncGroup():
                self._sync(group, event, turn)
            case Heartbeat():
                turn.answer(membership.heartbeat(group, event, turn))
            case LeaveGroup():
                membership.leave(group, event, turn)
            case CommitOffsets():
                self._commit(group, event, turn)
            case FetchOffsets():
                turn.answer(offsets.fetch(group, event))
            case DescribeGroup():
                turn.answer(membership.describe(group))
            case DeleteGroup():
                offsets.delete_group(group, event, turn)
            case DeleteOffsets():
                offsets.delete_offsets(group, event, turn)
            case _:
                if group is not None:
                    _decide_for(group, event, turn)

    def adopt(self, decision: GroupDecision) -> None:
        """Take over what no record keeps; the decision's records, which are in the log by now, are applied next."""
        for group_id, group in decision.groups.items():
            if group is None:
                self.groups.pop(group_id, None)
            else:
                self.groups[group_id] = group
            if decision.may_resize:
                self._weigh(group_id)
        if decision.ended is not None:
            self.end_transaction(decision.ended.producer_id, is_commit=decision.ended.is_commit)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """A marker of the producer is in the log: what it committed holds now, or is void."""
        for group_id in self._groups_of.pop(producer_id, ()):
            group = self.groups.get(group_id)
            if group is not None:
                group.end_transaction(producer_id, is_commit=is_commit)

    def release(self) -> None:
        """Give back what the members took: the shard is not used any more."""
        self._memory.size -= sum(self._sizes.values())
        self._sizes.clear()

    def append_failed(
        self, event: Event, decision: GroupDecision, error: ErrorCode, now_ms: int, token: int = 0
    ) -> GroupDecision:
        """Decide again after the log refused `decision`'s records: what the clients hear, and what memory
        does without.
        """
        turn = Turn(now_ms=now_ms, token=token, config=self.config)
        match event:
            case CommitOffsets():
                turn.answer(_not_committed(decision.replies[0].answer, error))
                turn.decision.timers = decision.timers
                turn.decision.groups = decision.groups
            case SyncGroup():
                self._assignments_not_stored(event, decision, error, turn)
            case DeleteGroup() | DeleteOffsets():
                turn.answer(refusal(event, group_not_stored(error)))
            case JoinGroup() if self._is_stable(event.group_id):
                turn.answer(self._not_replaced(event.group_id, error))
            case OffsetRetentionDue() | TopicsDeleted():
                pass
            case _:
                return _empty_all_the_same(decision)
        return turn.decision

    def _assignments_not_stored(
        self, event: SyncGroup, decision: GroupDecision, error: ErrorCode, turn: Turn
    ) -> None:
        group = decision.groups[event.group_id]
        assert group is not None, "its leader synced"
        turn.decision.groups[event.group_id] = group
        rebalance.release_syncs(group, group_not_stored(error), turn)
        rebalance.prepare_rebalance(group, turn)

    def _is_stable(self, group_id: str) -> bool:
        """Whether a record that a join wants can only be a static member's new id."""
        group = self.groups.get(group_id)
        return group is not None and group.is_stable

    def _not_replaced(self, group_id: str, error: ErrorCode) -> JoinAnswer:
        """A static member whose new id is not stored stays who it was."""
        group = self.groups[group_id]
        return JoinAnswer(
            error=group_not_stored(error),
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader or "",
        )

    def apply(self, record: Record) -> None:
        """Change memory by one record that is in the log. Raises RecordFormatError for what Kafka does not
        write.
        """
        key = decode_key(record.key)
        if isinstance(key, OffsetKey):
            self._apply_offset(key, record)
        elif isinstance(key, GroupKey):
            self._apply_group(key.group_id, record.value)

    def overviews(self) -> list[GroupOverview]:
        """All groups for ListGroups."""
        return [
            GroupOverview(
                group_id=group.group_id, protocol_type=group.protocol_type or "", state=group.state.value
            )
            for group in self.groups.values()
        ]

    def parked(self) -> list[int]:
        """The tokens of all requests that wait in this shard."""
        members = [member for group in self.groups.values() for member in group.members.values()]
        tokens = [token for member in members for token in (member.joining, member.syncing)]
        return [token for token in tokens if token is not None]

    def _apply_offset(self, key: OffsetKey, record: Record) -> None:
        partition = TopicPartition(key.topic, key.partition)
        if record.value is not None:
            offset = decode_offset_value(record.value)
            group = self.groups.get(key.group_id)
            if group is None:
                group = self.groups[key.group_id] = Group(group_id=key.group_id)
            if record.producer_id == NO_PRODUCER_ID:
                group.commit(partition, offset)
            else:
                group.commit_in_transaction(record.producer_id, partition, offset)
                self._groups_of.setdefault(record.producer_id, set()).add(key.group_id)
        elif key.group_id in self.groups:
            self.groups[key.group_id].forget_offset(partition)
            self._drop_if_useless(key.group_id)

    def _apply_group(self, group_id: str, value: bytes | None) -> None:
        if value is not None:
            group = self.groups.setdefault(group_id, Group(group_id=group_id))
            group.restore(decode_group_value(value))
        elif group_id in self.groups:
            self.groups[group_id].forget_membership()
            if not self.groups[group_id].has_offsets:
                del self.groups[group_id]
        self._weigh(group_id)

    def _weigh(self, group_id: str) -> None:
        """Note what the group's members take now."""
        group = self.groups.get(group_id)
        size = 0 if group is None else group.members_size
        self._memory.size += size - self._sizes.pop(group_id, 0)
        if size:
            self._sizes[group_id] = size

    def _forget_if_useless(self, group_id: str, decision: GroupDecision) -> None:
        """As `_drop_if_useless`, for the group that the decision leaves."""
        group = decision.groups.get(group_id) or self.groups.get(group_id)
        if group is not None and group.generation == 0 and offsets.is_useless(group):
            decision.groups[group_id] = None
            decision.may_resize = True

    def _drop_if_useless(self, group_id: str) -> None:
        """A group that no record keeps ends without one."""
        group = self.groups.get(group_id)
        if group is not None and group.generation == 0 and offsets.is_useless(group):
            del self.groups[group_id]
            self._weigh(group_id)

    def _loaded(self, turn: Turn) -> None:
        for group in self.groups.values():
            is_too_large = len(group.members) > self.config.group_max_size
            if is_too_large or group.read_subscriptions() != group.subscribed_topics:
                group = turn.draft(group)
                group.note_subscriptions()
            if is_too_large:
                # Let the members commit and come back; those who do not fit are turned away when they join.
                rebalance.prepare_rebalance(group, turn)
            for member in group.members.values():
                rebalance.expect_heartbeat(group, member, turn)

    def _join(self, group: Group | None, event: JoinGroup, turn: Turn) -> None:
        error = self._join_error(group, event)
        if error is not ErrorCode.NONE:
            turn.answer(JoinAnswer(error=error, member_id=event.member_id))
            return
        join(turn.draft(group or Group(group_id=event.group_id)), event, turn)

    def _join_error(self, group: Group | None, event: JoinGroup) -> ErrorCode:
        config = self.config
        if (
            not config.group_min_session_timeout_ms
            <= event.session_timeout_ms
            <= config.group_max_session_timeout_ms
        ):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if group is None and event.member_id != UNKNOWN_MEMBER_ID:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group is None and len(self.groups) >= GROUPS_COUNT_MAX:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        member = None if group is None else group.members.get(event.member_id)
        added = (
            size_of(event.protocols) + MEMBER_SIZE
            if member is None
            else (size_of(event.protocols) - size_of(member.protocols))
        )
        return ErrorCode.NONE if self._memory.has_room(added) else ErrorCode.GROUP_MAX_SIZE_REACHED

    def _sync(self, group: Group | None, event: SyncGroup, turn: Turn) -> None:
        if self._memory.has_room(sum(map(len, event.assignments.values()))):
            membership.sync(group, event, turn)
        else:
            turn.answer(SyncAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED))

    def _commit(self, group: Group | None, event: CommitOffsets, turn: Turn) -> None:
        if group is None and len(self.groups) >= GROUPS_COUNT_MAX:
            turn.answer(dict.fromkeys(event.offsets, ErrorCode.POLICY_VIOLATION))
            return
        if group is None and (event.generation <= NO_GENERATION or event.producer is not None):
            group = turn.draft(Group(group_id=event.group_id))
        offsets.commit(group, event, turn)


def _looks_through_offsets(event: GroupEvent) -> bool:
    """When Kafka notices that a group is of no use any more; until then it is there, and empty."""
    match event:
        case OffsetRetentionDue() | TopicsDeleted() | DeleteGroup():
            return True
        case DeleteOffsets():
            return bool(event.partitions)
        case _:
            return False


def _decide_for(group: Group, event: GroupEvent, turn: Turn) -> None:
    """Events that time or the cluster brings to a group."""
    match event:
        case SessionExpired():
            rebalance.session_expired(turn.draft(group), event.member_id, turn)
        case PendingMemberExpired():
            if event.member_id in group.pending_members:
                rebalance.remove_pending_member(turn.draft(group), event.member_id, turn)
        case JoinExpired():
            rebalance.join_expired(turn.draft(group), turn)
        case SyncExpired():
            rebalance.sync_expired(turn.draft(group), event.generation, turn)
        case OffsetRetentionDue():
            offsets.expire(group, turn)
        case TopicsDeleted():
            offsets.forget_topics(group, event.topics, turn)
        case _:
            raise AssertionError(f"no rule for {event!r}")


def _not_committed(
    answer: Mapping[TopicPartition, ErrorCode], error: ErrorCode
) -> dict[TopicPartition, ErrorCode]:
    """A commit's answer when the log refused what was sound in it."""
    stored = offsets_not_stored(error)
    return {p: e if e is not ErrorCode.NONE else stored for p, e in answer.items()}


def _empty_all_the_same(decision: GroupDecision) -> GroupDecision:
    """A group became empty: that much is true without its record; a reload finds silent members instead."""
    for record in decision.records:
        key = decode_key(record.key)
        assert isinstance(key, GroupKey), "a group that becomes empty stores nothing else"
        assert record.value is not None, "it is stored"
        group = decision.groups[key.group_id]
        assert group is not None, "it is there, and empty"
        group.restore(decode_group_value(record.value))
    decision.records = []
    return decision
