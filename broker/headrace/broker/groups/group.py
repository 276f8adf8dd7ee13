"""One consumer group in memory: its members, its generation, its committed offsets.

Owns the facts and the small pure questions about them (who has joined, which protocol wins); the rules that
change them are in `membership` and `offsets`. Invariants: a static member's instance id maps to exactly one
member; the leader is a member; an Empty group has no members. Follows Apache Kafka 3.9's GroupMetadata.scala
(classic protocol).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from headrace.broker.coordinators.records import java_hash
from headrace.broker.groups.events import DescribedMember
from headrace.broker.groups.memory import MEMBER_SIZE
from headrace.broker.groups.pending import PendingOffsets
from headrace.broker.groups.records import GroupValue, MemberValue, OffsetValue
from headrace.broker.wire.partitions import TopicPartition

CONSUMER_PROTOCOL_TYPE = "consumer"

Protocols = tuple[tuple[str, bytes], ...]


class GroupState(Enum):
    """Kafka's states, by the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member; `joining` and `syncing` are the tokens of its parked requests. What changes makes another one, which
    takes its place in the group (`Group.put`).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: int | None = None
    syncing: int | None = None
    is_new: bool = False
    # Bytes in memory without the assignment, about: every join of a large group asks all members.
    size_unassigned: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        size = MEMBER_SIZE + len(self.member_id) + size_of(self.protocols)
        object.__setattr__(self, "size_unassigned", size)

    def metadata(self, protocol: str | None) -> bytes:
        """What the member said about that protocol; empty when it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def stored(self, protocol: str | None, assignment: bytes) -> MemberValue:
        """The member as the group's record keeps it."""
        return MemberValue(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    def described(self, protocol: str | None) -> DescribedMember:
        """The member as DescribeGroups shows it; metadata and assignment only while the group is stable."""
        return DescribedMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            metadata=self.metadata(protocol),
            assignment=self.assignment if protocol is not None else b"",
        )


@dataclass(slots=True, kw_only=True)
class Group:
    """A group. Persisted: generation, protocol, leader, members with assignments, offsets. The rest ends with
    the process.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    state_timestamp_ms: int = -1
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    offsets: dict[TopicPartition, OffsetValue] = field(default_factory=dict)
    pending_offsets: PendingOffsets = field(default_factory=PendingOffsets)
    pending_members: dict[str, None] = field(default_factory=dict)
    pending_syncs: dict[str, None] = field(default_factory=dict)
    new_member_added: bool = False
    initial_delay_ms: int | None = None
    initial_remaining_ms: int = 0
    subscribed_topics: set[str] | None = None

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_preparing(self) -> bool:
        return self.state is GroupState.PREPARING_REBALANCE

    @property
    def is_completing(self) -> bool:
        return self.state is GroupState.COMPLETING_REBALANCE

    @property
    def is_stable(self) -> bool:
        return self.state is GroupState.STABLE

    @property
    def joining_count(self) -> int:
        return sum(member.joining is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        """Every member has a join parked, and nobody who was given an id is still expected."""
        return not self.pending_members and self.joining_count == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def members_size(self) -> int:
        """Bytes that members, and clients that were told to become one, take in memory, about."""
        pending = sum(MEMBER_SIZE + len(member_id) for member_id in self.pending_members)
        return pending + sum(m.size_unassigned + len(m.assignment) for m in self.members.values())

    @property
    def has_offsets(self) -> bool:
        """Whether anything is committed, or will be when a transaction is."""
        return bool(self.offsets or self.pending_offsets)

    def commit(self, partition: TopicPartition, value: OffsetValue) -> None:
        """A stored offset; what transactions stored before it does not count any more."""
        self.offsets[partition] = value
        self.pending_offsets.supersede(partition)

    def commit_in_transaction(self, producer_id: int, partition: TopicPartition, value: OffsetValue) -> None:
        """An offset that holds once the producer's transaction is committed."""
        self.pending_offsets.add(producer_id, partition, value)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The producer's offsets hold, or are void."""
        self.offsets.update(self.pending_offsets.take(producer_id, is_commit=is_commit))

    def forget_offset(self, partition: TopicPartition) -> None:
        """A tombstone of a stored offset: what transactions stored before it is void, too."""
        self.offsets.pop(partition, None)
        self.pending_offsets.forget(partition)

    def draft(self) -> Group:
        """A copy to change: nothing shows here. The offsets are the same ones, as only a record changes them."""
        return replace(
            self,
            members=dict(self.members),
            static_members=dict(self.static_members),
            pending_members=dict(self.pending_members),
            pending_syncs=dict(self.pending_syncs),
        )

    def put(self, member: Member) -> None:
        """A member in the place of the one that it is made from."""
        assert member.member_id in self.members, "new members are added"
        self.members[member.member_id] = member

    def move_to(self, state: GroupState, now_ms: int) -> None:
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: Member, protocol_type: str) -> None:
        """Take a member in; the first one brings the protocol type and leads."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Forget a member, or a pending one; another member leads when the leader goes."""
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)
        return member

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in the group with those that are."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        common = self.common_protocols()
        return self.protocol_type == protocol_type and any(
            common is None or name in common for name, _ in protocols
        )

    def common_protocols(self) -> set[str] | None:
        """The protocols that all members support; None (any) without members."""
        common: set[str] | None = None
        for member in self.members.values():
            names = {name for name, _ in member.protocols}
            common = names if common is None else common & names
        return common

    def elected_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support; most votes win, a tie goes as in
        Kafka.
        """
        common = self.common_protocols() or set()
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(name for name, _ in member.protocols if name in common)
            votes[vote] = votes.get(vote, 0) + 1
        return max(sorted(votes, key=_place_in_scala_map), key=lambda name: votes[name])

    def member_list(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """What the leader gets to see: (member id, instance id, metadata under the chosen protocol)."""
        return tuple(
            (member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def note_subscriptions(self) -> None:
        """Keep the topics that the members of this generation consume: what they ask for meanwhile counts in the
        next. None when it is no consumer group or they cannot be read.
        """
        self.subscribed_topics = self.read_subscriptions()

    def read_subscriptions(self) -> set[str] | None:
        """The topics that the members ask for under the chosen protocol."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return set()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = topics_of_subscription(member.metadata(self.protocol_name))
            if subscribed is None:
                return None
            topics |= subscribed
        return topics

    def stored(self, assignments: Mapping[str, bytes]) -> GroupValue:
        """The group as its record keeps it, with these assignments."""
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                member.stored(self.protocol_name, assignments.get(member.member_id, b""))
                for member in self.members.values()
            ),
        )

    def restore(self, value: GroupValue) -> None:
        """Become what a record says; a member that is in memory just so keeps what only memory knows of it.

        It is when the record has just been decided. On replay it may be of an older generation, with another
        protocol or subscription.
        """
        known = dict(self.members)
        begins = value.generation != self.generation
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.leader = value.leader
        self.state = GroupState.STABLE if value.members else GroupState.EMPTY
        self.state_timestamp_ms = value.state_timestamp_ms
        self.members = {}
        for stored in value.members:
            member = known.get(stored.member_id)
            if member is None or member.stored(value.protocol, stored.assignment) != stored:
                member = _member_of(stored, value.protocol)
            self.members[stored.member_id] = replace(member, assignment=stored.assignment, syncing=None)
        self.static_members = {
            member.instance_id: member.member_id
            for member in self.members.values()
            if member.instance_id is not None
        }
        self.pending_syncs = {
            member_id: None for member_id in self.pending_syncs if member_id in self.members
        }
        if begins:
            self.note_subscriptions()

    def forget_membership(self) -> None:
        """A tombstone of the group's metadata: what remains is a store of offsets."""
        self.state, self.generation = GroupState.EMPTY, 0
        self.protocol_type = self.protocol_name = self.leader = None
        self.members, self.static_members = {}, {}
        self.subscribed_topics = None


def size_of(protocols: Protocols) -> int:
    """Bytes that a member's protocols bring."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def _member_of(stored: MemberValue, protocol: str | None) -> Member:
    return Member(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout_ms,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        protocols=((protocol or "", stored.subscription),),
    )


def _place_in_scala_map(name: str) -> list[int]:
    """Where an immutable HashMap of Scala 2.13 has a name: Kafka takes the first of those with most votes."""
    hashed = java_hash(name)
    hashed = (hashed + ~(hashed << 9)) & 0xFFFFFFFF
    hashed ^= hashed >> 14
    hashed = (hashed + (hashed << 4)) & 0xFFFFFFFF
    hashed ^= hashed >> 10
    return [hashed >> shift & 31 for shift in range(0, 32, 5)]


def topics_of_subscription(metadata: bytes) -> set[str] | None:
    """The topics in a ConsumerProtocolSubscription (any version: the prefix is the same); None when it is not
    one.
    """
    topics: set[str] = set()
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        position = 6
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, position)
            position += 2
            if size < 0 or position + size > len(metadata):
                return None
            topics.add(bytes(metadata[position : position + size]).decode())
            position += size
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
