"""What a handler may reach: the parts of a running broker, each behind the smallest interface that handlers need.

One `Context` serves all connections. `client` is the connection whose request is being handled: it is set before
every call and is only valid until `handle` returns (a handler that answers later keeps what it needs from it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headrace.broker.clock import Clock
from headrace.broker.config import BrokerConfig
from headrace.broker.handlers.fetch_sessions import FetchSessions
from headrace.broker.handlers.refused_writes import RefusedWrites

if TYPE_CHECKING:
    from headrace.broker.handlers.deferred import Deferred
    from headrace.broker.handlers.fetch_reading import Reading
    from headrace.broker.handlers.watch import Watch
    from headrace.broker.log.partition_log import PartitionLog
    from headrace.broker.replication.leader import Partition


T = TypeVar("T")


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


class Waiting(Protocol):
    """Parks requests until their partitions move or their time is over; `server.waiting` performs it."""

    def park(
        self,
        keys: Iterable[tuple[str, int]] | Watch,
        timeout_ms: int,
        attempt: Callable[[Collection[tuple[str, int]] | None], T | None],
    ) -> Deferred[T]:
        """What `attempt(moved)` gives after a wake of some of `keys`, or `attempt(None)` at the time-out."""
        ...

    def keep(self, keys: Iterable[tuple[str, int]]) -> Watch | None:
        """A watch to park with until `forget`, one request at a time; None when there are too many."""
        ...

    def forget(self, watch: Watch) -> None: ...

    def wake(self, topic: str, partition: int) -> None:
        """The partition has new data, a new high watermark, a new leader or is gone."""
        ...


class Metrics(Protocol):
    """Counters that handlers feed themselves; per-request figures are counted by the connection."""

    def produced(self, topic: str, batch_count: int, size: int) -> None: ...

    def fetched(self, topic: str, size: int) -> None: ...

    def failed(self, key: int, error_code: int) -> None:
        """A request of that API, or a part of one, is answered with an error."""
        ...


@dataclass(slots=True)
class Client:
    """Who sent the request that is being handled; `reading` is what it fetches, from one request to the next."""

    host: str
    listener: str
    reading: Reading | None = None

    def gone(self) -> None:
        """Its connection is closed."""
        if self.reading is not None:
            self.reading.close()


class MetadataBodies:
    """Encoded Metadata answers to what was asked, of one version of the metadata cache; at most `SIZE_MAX` bytes."""

    SIZE_MAX = 2 << 20
    ENTRY_SIZE = 512
    """What an entry costs beside its bytes: small requests in great number must not exceed the bound, either."""

    __slots__ = ("_bodies", "_size", "_version")

    def __init__(self) -> None:
        self._version = -1
        self._size = 0
        self._bodies: dict[tuple[int, str, bytes], bytes] = {}

    def get(self, version: int, key: tuple[int, str, bytes]) -> bytes | None:
        """The answer as of `version` of the metadata cache; what belongs to another one is forgotten."""
        if version != self._version:
            self._clear(version)
        return self._bodies.get(key)

    def put(self, version: int, key: tuple[int, str, bytes], body: bytes) -> None:
        """Keep an answer; when there is no room all others go."""
        size = len(key[2]) + len(body) + self.ENTRY_SIZE
        if version != self._version or self._size + size > self.SIZE_MAX:
            self._clear(version)
        if size <= self.SIZE_MAX:
            self._bodies[key] = body
            self._size += size

    def _clear(self, version: int) -> None:
        self._version, self._size = version, 0
        self._bodies.clear()


class Context:
    """All parts that handlers use; built once by `server.main`."""

    __slots__ = (
        "broker_id",
        "client",
        "clock",
        "cluster",
        "config",
        "fetch_sessions",
        "groups",
        "metadata",
        "metadata_bodies",
        "metrics",
        "moves",
        "partitions",
        "producer_ids",
        "refused_writes",
        "slicing",
        "waiting",
    )

    def __init__(
        self,
        *,
        broker_id: int,
        config: BrokerConfig,
        clock: Clock,
        partitions: Partitions,
        metadata: Any,
        cluster: Any,
        waiting: Waiting,
        metrics: Metrics,
        groups: Any,
        producer_ids: Any,
        moves: Any,
        refused_writes: RefusedWrites,
    ) -> None:
        self.broker_id = broker_id
        self.config = config
        self.clock = clock
        self.partitions = partitions
        self.metadata = metadata
        self.cluster = cluster
        self.waiting = waiting
        self.metrics = metrics
        self.groups = groups
        self.producer_ids = producer_ids
        self.moves = moves
        self.client = Client("", "")
        self.metadata_bodies = MetadataBodies()
        self.refused_writes = refused_writes
        self.slicing = asyncio.Lock()
        self.fetch_sessions = FetchSessions(config.network.max_incremental_fetch_session_cache_slots)

    def use_config(self, config: BrokerConfig) -> None:
        """Requests from now on see a changed configuration."""
        self.config = config
