"""This broker as a member of its cluster: ZooKeeper session, registration, election, topics, dynamic configuration.

How a broker starts:
    cluster = Cluster(config, clock, metadata)
    await cluster.connect()               # session, parent znodes, cluster id, broker id, all topic configs
    logs = LogStore.open(..., broker_id=cluster.broker_id, cluster_id=cluster.cluster_id, overrides=cluster.topic_config)
    partitions = Partitions(cluster.broker_id, logs, metadata)
    await cluster.join(partitions)        # register, watch, run for controller
    ... serve ...
    await cluster.leave()                 # controlled shutdown, then the session ends
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from headrace.broker.clock import Clock
from headrace.broker.config import BrokerConfig
from headrace.broker.errors import ErrorCode
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.replicas import Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 takes the broker's default; `assignments` (partition → brokers) excludes the counts."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: dict[int, list[int]] = field(default_factory=dict)
    configs: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """What became of one topic; `error` is NONE when it was done."""

    name: str | None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: UUID = UUID(int=0)
    partition_count: int = -1
    replication_factor: int = -1


class Cluster:
    """The broker's membership; all methods run on the broker's loop."""

    broker_id: int
    cluster_id: str
    broker_epoch: int

    def __init__(self, config: BrokerConfig, clock: Clock, metadata: MetadataCache) -> None:
        raise NotImplementedError

    async def connect(self) -> None:
        """Open the ZooKeeper session; afterwards `broker_id`, `cluster_id` and `topic_config` are known."""
        raise NotImplementedError

    async def join(self, partitions: Partitions) -> None:
        """Register this broker and run for controller; returns once registered."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Move leadership away where it can move, deregister, end the session."""
        raise NotImplementedError

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool = False
    ) -> list[TopicResult]:
        """Create topics; answers when the local metadata cache shows them or the time is over."""
        raise NotImplementedError

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int) -> list[TopicResult]:
        """Delete topics; answers when the local metadata cache lost them or the time is over."""
        raise NotImplementedError

    def auto_create(self, topics: Sequence[str]) -> None:
        """Begin creating topics with the broker's defaults (internal ones with theirs), unless that is under way."""
        raise NotImplementedError

    def topic_config(self, topic: str) -> dict[str, str]:
        """The topic's overrides as `/config/topics/<t>` holds them, from memory."""
        raise NotImplementedError

    async def allocate_producer_id_block(self) -> tuple[int, int]:
        """(first id, count) of a block that no other broker has or will get."""
        raise NotImplementedError
