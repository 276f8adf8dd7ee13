"""What a handler may reach: the parts of a running broker, each behind the smallest interface that handlers need.

One `Context` serves all connections. `client` is the connection whose request is being handled: it is set before
every call and is only valid until `handle` returns (a handler that answers later keeps what it needs from it).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headrace.broker.clock import Clock
from headrace.broker.config import BrokerConfig

if TYPE_CHECKING:
    from headrace.broker.handlers.deferred import Deferred
    from headrace.broker.log.store import LogStore
    from headrace.broker.replication.leader import Partition


T = TypeVar("T")


class Partitions(Protocol):
    """The partitions that this broker holds a replica of."""

    def leader_of(self, topic: str, partition: int) -> Partition:
        """Raises NotLeaderOrFollowerError or UnknownTopicOrPartitionError."""
        ...

    def led(self) -> Iterable[Partition]: ...


class Waiting(Protocol):
    """Parks requests until their partitions move or their time is over; `server.waiting` performs it."""

    def park(
        self, keys: Iterable[tuple[str, int]], timeout_ms: int, attempt: Callable[[bool], T | None]
    ) -> Deferred[T]:
        """A deferred of what `attempt(False)` gives after a wake of one of `keys`, or `attempt(True)` at the time-out."""
        ...

    def wake(self, topic: str, partition: int) -> None:
        """The partition has new data, a new high watermark, a new leader or is gone."""
        ...


class Metrics(Protocol):
    """Counters that handlers feed themselves; per-request figures are counted by the connection."""

    def produced(self, topic: str, size: int) -> None: ...

    def fetched(self, topic: str, size: int) -> None: ...


@dataclass(slots=True)
class Client:
    """Who sent the request that is being handled."""

    host: str
    listener: str


class MetadataBodies:
    """Encoded Metadata answers of one version of the metadata cache."""

    __slots__ = ("bodies", "version")

    def __init__(self) -> None:
        self.version = -1
        self.bodies: dict[tuple[int, str, bytes], bytes] = {}


class Context:
    """All parts that handlers use; built once by `server.main`."""

    __slots__ = (
        "broker_id",
        "client",
        "clock",
        "cluster",
        "config",
        "controller",
        "groups",
        "logs",
        "metadata",
        "metadata_bodies",
        "metrics",
        "partitions",
        "producer_ids",
        "replicas",
        "run",
        "waiting",
    )

    def __init__(
        self,
        *,
        broker_id: int,
        config: BrokerConfig,
        clock: Clock,
        logs: LogStore,
        partitions: Partitions,
        metadata: Any,
        cluster: Any,
        waiting: Waiting,
        metrics: Metrics,
        run: Callable[[Coroutine[Any, Any, Any]], Deferred[Any]],
        groups: Any = None,
        producer_ids: Any = None,
        replicas: Any = None,
        controller: Any = None,
    ) -> None:
        self.broker_id = broker_id
        self.config = config
        self.clock = clock
        self.logs = logs
        self.partitions = partitions
        self.metadata = metadata
        self.cluster = cluster
        self.waiting = waiting
        self.metrics = metrics
        self.run = run
        self.groups = groups
        self.producer_ids = producer_ids
        self.replicas = replicas
        self.controller = controller
        self.client = Client("", "")
        self.metadata_bodies = MetadataBodies()

    def topic_overrides(self, topic: str) -> Mapping[str, str]:
        """A topic's own configuration."""
        overrides: Mapping[str, str] = self.cluster.topic_config(topic)
        return overrides
