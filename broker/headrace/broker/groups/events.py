"""What a shard of the group coordinator is told (events), and what its requests are answered.

Events are nouns. A `Request` comes from a client and names the type of its one answer; the others come from
timers and from the runtime. All are frozen: a script of events replays a shard. Knows nothing of sockets,
logs or clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.records import OffsetValue
from headrace.broker.wire.partitions import TopicPartition

Answer = TypeVar("Answer", covariant=True)

UNKNOWN_MEMBER_ID = ""
NO_GENERATION = -1


class Request(Generic[Answer]):
    """An event from a client; `Answer` is the type of its one reply."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """JoinGroup's reply. `members` is (member id, instance id, metadata) and filled for the leader only."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = UNKNOWN_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """SyncGroup's reply."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveAnswer:
    """LeaveGroup's reply: one error for each member that was to leave, in the request's order."""

    error: ErrorCode = ErrorCode.NONE
    members: tuple[tuple[LeavingMember, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffset:
    """A committed offset as OffsetFetch shows it; offset -1 when there is none."""

    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    """OffsetFetch's reply for one group."""

    error: ErrorCode = ErrorCode.NONE
    offsets: Mapping[TopicPartition, FetchedOffset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """One member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAnswer:
    """DescribeGroups' reply for one group; a group that does not exist is Dead, without an error."""

    error: ErrorCode = ErrorCode.NONE
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsAnswer:
    """OffsetDelete's reply."""

    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverview:
    """One line of ListGroups."""

    group_id: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """Who is to leave: by member id, or a static member by instance id alone."""

    member_id: str
    instance_id: str | None = None
    reason: str = "not provided"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup(Request[JoinAnswer]):
    """A member wants into the next generation.

    `fresh_id` is the unique part of a member id, should the group have to make one (the core has no random
    numbers). `requires_member_id`: JoinGroup v4 (KIP-394); `skips_assignment`: JoinGroup v9 (KIP-814).
    """

    group_id: str
    member_id: str
    fresh_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    instance_id: str | None = None
    requires_member_id: bool = False
    skips_assignment: bool = False
    reason: str = "not provided"


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup(Request[SyncAnswer]):
    """A member asks for its assignment; the leader brings everybody's."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Request[ErrorCode]):
    """A member is alive."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup(Request[LeaveAnswer]):
    """Members leave, by themselves or removed by an administrator (KIP-345)."""

    group_id: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets(Request[Mapping[TopicPartition, ErrorCode]]):
    """A member, or a consumer without a group (generation -1), stores offsets; with `producer` in its transaction."""

    group_id: str
    generation: int
    member_id: str
    offsets: Mapping[TopicPartition, OffsetValue]
    instance_id: str | None = None
    producer: ProducerEpoch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets(Request[FetchAnswer]):
    """Somebody asks for committed offsets; `partitions` None means all of them.

    With `requires_stable` those that a transaction may yet change are not told (KIP-447).
    """

    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    requires_stable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup(Request[DescribeAnswer]):
    """Somebody asks for a group's state and members."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup(Request[ErrorCode]):
    """An administrator deletes an empty group with its offsets."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets(Request[DeleteOffsetsAnswer]):
    """An administrator deletes offsets of topics that the group is not subscribed to (KIP-496)."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """A marker of a producer is in the log: what it committed in its transaction holds, or is void."""

    producer_id: int
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLoaded:
    """The partition's log has been replayed; members get a full session to show themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionExpired:
    """A member has not been heard of for its session time-out."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMemberExpired:
    """A member that was told its id (MEMBER_ID_REQUIRED) has not come back with it."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinExpired:
    """The rebalance (or initial rebalance delay) of a group is over."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncExpired:
    """Members of a generation have not synced within the rebalance time-out."""

    group_id: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRetentionDue:
    """Time to look for expired offsets of a group, and whether it is of use at all."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDeleted:
    """Topics are gone; what a group committed for them goes too."""

    group_id: str
    topics: frozenset[str]


GroupEvent = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | FetchOffsets
    | DescribeGroup
    | DeleteGroup
    | DeleteOffsets
    | SessionExpired
    | PendingMemberExpired
    | JoinExpired
    | SyncExpired
    | OffsetRetentionDue
    | TopicsDeleted
)
Event = GroupEvent | ShardLoaded | TransactionEnded
