"""What a handler may reach: the parts of a running broker, each behind the smallest interface that handlers need.

One `Services` serves all connections. Whatever concerns one request is in its `call`, never here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import UUID

from headrace.broker.auth.acls import Binding, BindingFilter
from headrace.broker.auth.authorizer import Authorizer
from headrace.broker.auth.delegation_tokens import Token, Tokens
from headrace.broker.auth.principal import Principal
from headrace.broker.clock import Clock
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.groups.events import GroupOverview, Request
from headrace.broker.handlers.fetch_sessions import FetchSessions
from headrace.broker.handlers.metadata_bodies import MetadataBodies
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.quotas.mutations import Allowance
from headrace.broker.quotas.usage import ClientUsage, unlimited
from headrace.broker.replication.control_requests import LeaderAndIsr, StopReplica, UpdateMetadata
from headrace.broker.replication.events import Answer, Question
from headrace.broker.replication.model import Broker, Endpoint, PartitionMetadata
from headrace.broker.replication.partition import Partition
from headrace.broker.replication.topic_requests import NewTopic, TopicResult
from headrace.broker.txn.events import Overview
from headrace.broker.txn.events import Request as TransactionRequest
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.parking import Waiting
from headrace.broker.waiting.round import Round
from headrace.broker.wire.partitions import PartitionKey, TopicPartition

T = TypeVar("T")
Change = Callable[[dict[str, str]], Mapping[str, str]]
"""The overrides that are to be, from those that are."""


class Logs(Protocol):
    """The logs in this broker's data directories; `offline` are those that failed, by path, and why."""

    offline: dict[str, str]

    def all(self) -> Iterable[PartitionLog]: ...

    def get(self, topic: str, partition: int) -> PartitionLog | None: ...

    def copies(self) -> Iterable[PartitionLog]:
        """Copies of logs on their way to other directories."""
        ...


class Partitions(Protocol):
    """The partitions that this broker holds a replica of."""

    @property
    def logs(self) -> Logs: ...

    def get(self, topic: str, partition: int) -> Partition | None:
        """The replica, whoever leads it, or None."""
        ...

    def leader_of(self, topic: str, partition: int) -> Partition:
        """Raises NotLeaderOrFollowerError or UnknownTopicOrPartitionError."""
        ...

    def replica(self, topic: str, partition: int) -> Partition:
        """The replica, whoever leads it; raises NotLeaderOrFollowerError, StorageError or UnknownTopicOrPartitionError."""
        ...


class Metadata(Protocol):
    """What the controller told of the cluster; `version` grows with each change."""

    cluster_id: str
    controller_id: int
    version: int

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers that are alive."""
        ...

    def topic_names(self) -> list[str]: ...

    def topics(self, name: str) -> Mapping[int, PartitionMetadata] | None:
        """The partitions of a topic by number, or None when there is no such topic."""
        ...

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None: ...

    def is_expected(self, topic: str) -> bool:
        """Whether the topic is there, and the controller has yet to tell of it."""
        ...

    def topic_id(self, name: str) -> UUID:
        """The zero UUID when the topic is unknown or has none."""
        ...

    def topic_name(self, topic_id: UUID) -> str | None: ...

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Where clients of that listener reach that broker, if they do."""
        ...


class Metrics(Protocol):
    """Counters."""

    def request(self, key: int, size: int) -> None: ...

    def produced(self, topic: str, batch_count: int, size: int) -> None: ...

    def fetched(self, topic: str, size: int) -> None: ...

    def replicated_out(self, size: int) -> None: ...

    def failed(self, key: int, error_code: int) -> None:
        """A request of that API, or a part of one, is answered with an error."""
        ...

    def throttled(self, quota: str, throttle_ms: int) -> None:
        """A client used more than its quota of that kind, and waits so long."""
        ...


class LeaderThrottle(Protocol):
    """How fast replicas that are out of sync are brought up from here (KIP-73)."""

    def covers(self, topic: str, partition: int) -> bool:
        """Whether what is sent of this partition counts."""
        ...

    def record(self, size: int) -> None: ...

    def holds_back(self, topic: str, partition: int) -> bool:
        """Whether a follower of this partition that is out of sync has to wait."""
        ...


class Topics(Protocol):
    """Topics that come, grow and go; only the controller makes them so."""

    def auto_create(self, topics: Sequence[str], /, allowance: Allowance) -> None:
        """Begin creating topics with the broker's defaults."""
        ...

    def error_on_demand(self, topic: str, /) -> ErrorCode:
        """What an asker is told of a topic that is created for it, or cannot be."""
        ...

    async def create(
        self, topics: Sequence[NewTopic], /, *, timeout_ms: int, validate_only: bool, allowance: Allowance
    ) -> list[TopicResult]: ...

    async def delete(
        self, names: Sequence[str], /, *, timeout_ms: int, allowance: Allowance
    ) -> list[TopicResult]: ...

    async def grow(
        self,
        topic: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        /,
        *,
        timeout_ms: int,
        validate_only: bool,
        by_client: bool,
        allowance: Allowance,
    ) -> TopicResult: ...

    async def await_leaders(
        self, leaders: Mapping[PartitionKey, int], /, *, timeout_ms: int
    ) -> Iterable[PartitionKey]:
        """The partitions that this broker's metadata does not show under these leaders when the time is over."""
        ...


class Configurations(Protocol):
    """What topics and brokers are set to, beside the broker's own file."""

    @property
    def static_properties(self) -> Mapping[str, str]:
        """What `server.properties` says."""
        ...

    def is_mirrored(self, topic: str, /) -> bool:
        """Whether a mirror of this broker makes and writes topics of that name."""
        ...

    def of_broker(self, broker: str, /) -> Mapping[str, str]: ...

    async def stored_of_topics(self, topics: Sequence[str], /) -> Mapping[str, Mapping[str, str]]: ...

    async def is_address(self, host: str, /) -> bool:
        """Whether it is an address, or the name of one."""
        ...

    async def stored_of_clients(self, kind: str, /) -> Mapping[str, Mapping[str, str]]: ...

    async def alter_client(self, kind: str, name: str, change: Change, /, *, validate_only: bool) -> None: ...

    async def alter_topic(self, topic: str, change: Change, /, *, validate_only: bool) -> None: ...

    async def alter_broker(self, broker: str, change: Change, /, *, validate_only: bool) -> None: ...


class Control(Protocol):
    """What brokers ask each other."""

    @property
    def is_controller(self) -> bool: ...

    async def perform(self, request: LeaderAndIsr | StopReplica | UpdateMetadata, /) -> dict[str, Any]:
        """Perform a request of the controller's in its turn; answers the response."""
        ...

    async def shut_down(self, broker_id: int, broker_epoch: int, /) -> Sequence[PartitionKey]:
        """The partitions that the broker still leads; raises a KafkaError."""
        ...

    async def answer(self, event: Question, /) -> Answer:
        """What the controller answers, this broker being it; raises NotControllerError."""
        ...

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int, /) -> tuple[int, int]:
        """(first id, count) of a block, this broker being controller; raises a KafkaError."""
        ...


class ConsumerOffsets(Protocol):
    """Offsets that consumers of old keep in ZooKeeper; raises KafkaErrors and MalformedZnodeError."""

    async def commit(self, group_id: str, topic: str, partition: int, offset: int, /) -> None: ...

    async def fetch(self, group_id: str, topic: str, partition: int, /) -> int | None: ...


class Groups(Protocol):
    """The group coordinator."""

    def ask(self, request: Request[T], /) -> Deferred[T]:
        """The answer, once what it rests on is committed."""
        ...

    def partition_for(self, group_id: str, /) -> int:
        """The partition of `__consumer_offsets` that keeps the group."""
        ...

    def overviews(self) -> tuple[ErrorCode, list[GroupOverview]]: ...

    def transaction_ended(self, partition: int, producer_id: int, /, *, is_commit: bool) -> None:
        """A marker of the producer is in that partition of `__consumer_offsets`."""
        ...


class Transactions(Protocol):
    """The transaction coordinator."""

    def ask(self, request: TransactionRequest[T], /) -> Deferred[T]:
        """The answer, once what it rests on is committed."""
        ...

    def partition_for(self, transactional_id: str, /) -> int:
        """The partition of `__transaction_state` that keeps the id."""
        ...

    def overviews(self) -> tuple[ErrorCode, list[Overview]]: ...


class Verifier(Protocol):
    """Asks the coordinators of transactions, wherever they are."""

    def is_in(self, transactional_id: str, producer: ProducerEpoch, partition: TopicPartition, /) -> bool:
        """Whether that is this broker, and says at once that the producer's transaction has the partition."""
        ...

    def verify(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Iterable[TopicPartition],
        size: int,
        /,
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]]:
        """Of each partition whether the producer's transaction has it: NONE, or why not; `size` bytes wait for it."""
        ...


class ProducerIds(Protocol):
    def next_id(self) -> int | None:
        """An id that no other producer of the cluster has; None while there is none (try again)."""
        ...


class Moves(Protocol):
    """Replicas on their way to other data directories."""

    async def alter(
        self, wanted: Mapping[tuple[str, int], str], /
    ) -> Mapping[tuple[str, int], ErrorCode]: ...


class Credentials(Protocol):
    """The SCRAM credentials of users."""

    async def stored(self, users: Collection[str] | None, /) -> Mapping[str, Mapping[str, str]]:
        """By user, of these or of all, its credentials' texts by mechanism, as ZooKeeper holds them now."""
        ...

    async def alter(self, user: str, change: Change, /) -> None:
        """Replace what is configured for a user by `change(overrides)`; raises what that raises."""
        ...


class DelegationTokens(Protocol):
    """The delegation tokens of the cluster; raises KafkaErrors."""

    book: Tokens

    async def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], lifetime_ms_max: int, /
    ) -> tuple[Token, bytes]:
        """(the new token, its HMAC)."""
        ...

    async def renew(self, principal: Principal, mac: bytes, period_ms: int, /) -> Token: ...

    async def expire(self, principal: Principal, mac: bytes, period_ms: int, /) -> Token: ...


class AccessLists(Protocol):
    """The access control lists of the cluster."""

    def matching(self, wanted: BindingFilter, /) -> list[Binding]: ...

    async def create(self, bindings: Sequence[Binding], /) -> list[KafkaError | None]:
        """Add each to its list; why not, or None, for each."""
        ...

    async def delete(
        self, filters: Sequence[BindingFilter], /
    ) -> list[list[tuple[Binding, KafkaError | None]]]:
        """Take away what each of the filters takes; (binding, why it is still there) for each."""
        ...


class Later(Protocol):
    def __call__(self, name: str, work: Coroutine[Any, Any, T], /) -> Deferred[T]:
        """The outcome of `work`, which runs in a task of the broker."""
        ...


@dataclass(slots=True, kw_only=True)
class Services:
    """All parts that handlers use; built once by `server.broker`."""

    broker_id: int
    api_versions: Mapping[int, tuple[int, int]]
    """The first and the last version of each API key that is served: what the table of handlers holds."""
    config: BrokerConfig
    clock: Clock
    partitions: Partitions
    metadata: Metadata
    topics: Topics
    configurations: Configurations
    control: Control
    consumer_offsets: ConsumerOffsets
    waiting: Waiting
    metrics: Metrics
    leader_throttle: LeaderThrottle
    groups: Groups
    transactions: Transactions
    verifier: Verifier
    producer_ids: ProducerIds
    moves: Moves
    credentials: Credentials
    tokens: DelegationTokens
    refused_writes: RefusedWrites
    later: Later
    now: Callable[[], float] = time.monotonic
    """Seconds of the clock whose `monotonic_ms` handlers read."""
    client_usage: ClientUsage = field(default_factory=unlimited)
    authorizer: Authorizer | None = None
    """None allows everything, and nobody asks."""
    access_lists: AccessLists | None = None
    """Where there is an authorizer."""
    metadata_bodies: MetadataBodies = field(default_factory=MetadataBodies)
    slicing: asyncio.Lock = field(default_factory=asyncio.Lock)
    together: Round = field(default_factory=Round)
    fetch_sessions: FetchSessions = field(init=False)

    def __post_init__(self) -> None:
        self.fetch_sessions = FetchSessions(
            self.config.network.max_incremental_fetch_session_cache_slots, self.waiting
        )

    def use_config(self, config: BrokerConfig) -> None:
        """Requests from now on see a changed configuration."""
        self.config = config
