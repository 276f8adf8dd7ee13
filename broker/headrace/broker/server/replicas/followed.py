"""What fetchers go by: the partitions that they follow, and what all fetchers of a broker share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.broker.clock import Clock
from headrace.broker.config.sections import Replication
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.replication.follower import Follower
from headrace.broker.replication.model import Endpoint
from headrace.broker.replication.partition import Partition
from headrace.broker.replication.versions import Versions
from headrace.broker.server.peers.requests import Connect
from headrace.broker.server.replicas.throttle import ReplicaThrottle
from headrace.broker.wire.client.replica_fetch import WireKey
from headrace.broker.wire.partitions import PartitionKey

if TYPE_CHECKING:
    from headrace.broker.log.partition_log import PartitionLog
    from headrace.broker.log.store import LogStore


class Replicas(Protocol):
    """This broker's partitions, as fetchers need them."""

    changing: asyncio.Lock
    logs: LogStore

    @property
    def broker_epoch(self) -> int: ...

    def get(self, topic: str, partition: int) -> Partition | None: ...


@dataclass(slots=True, kw_only=True)
class FetchContext:
    """What all fetchers of a broker share. `endpoint` tells where another broker is, None while it is not alive; `sync(log)`
    brings to the disk what `flush.messages` wants there; `versions` are those of inter.broker.protocol.version;
    `replicated` counts bytes; `is_leaving` says whether this broker is about to stop.
    """

    broker_id: int
    config: Replication
    partitions: Replicas
    clock: Clock
    connect: Connect
    endpoint: Callable[[int], Endpoint | None]
    replicated: Callable[[int], None]
    refused_writes: RefusedWrites
    throttle: ReplicaThrottle
    sync: Callable[[PartitionLog], Awaitable[None]]
    versions: Versions
    is_leaving: Callable[[], bool]


class Followed:
    """A partition with its follower; `wire_key` is how requests name it, by the topic's id where it has one."""

    __slots__ = ("follower", "key", "partition", "wire_key")

    def __init__(self, follower: Follower, partition: Partition) -> None:
        self.follower = follower
        self.partition = partition
        self.key: PartitionKey = (partition.topic, partition.partition)
        self.wire_key: WireKey = (b"", partition.partition)

    def name(self, *, by_name: bool) -> None:
        """Requests name the topic by its name, or its id."""
        topic = self.partition.topic.encode() if by_name else self.partition.topic_id.bytes
        self.wire_key = topic, self.partition.partition
