"""Parts that live inside the broker's process: the mirror's copiers, started by entry point.

Each entry of the group `headrace.embedded` names `start(host: EmbeddingHost) -> Awaitable[None]`. It runs in the
broker's tasks, is started again with a growing pause when it fails, and is cancelled when the broker stops. What an
embedded part may touch of the broker is `EmbeddingHost` and what else this module names. A part whose module has
`check(properties)` has its configuration checked before the broker starts; one whose module has
`mirrored_names(properties)` says which names are for its own topics, whether it runs or not: its answer is a function that
tells of a name (`server.settings.configurations.IsMirrored`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from headrace.broker.client.security import ClientSecurity
from headrace.broker.clock import Clock
from headrace.broker.errors import NotEnoughReplicasError, NotLeaderOrFollowerError, PolicyViolationError
from headrace.broker.replication.partition import Partition
from headrace.broker.replication.topic_requests import NewTopic, TopicResult
from headrace.broker.server.peers.inter_broker import security_between_brokers
from headrace.broker.server.replicas.logs import in_threads
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.client.view import Address

if TYPE_CHECKING:
    from headrace.broker.config.broker import BrokerConfig
    from headrace.broker.log.results import AppendResult
    from headrace.broker.server.cluster import Cluster
    from headrace.broker.server.metadata import MetadataCache
    from headrace.broker.server.replicas.hosted import Partitions
    from headrace.broker.server.settings.configurations import Configurations, IsMirrored
    from headrace.broker.server.status.metrics import BrokerMetrics
    from headrace.broker.server.topics.changes import Topics
    from headrace.broker.waiting.parking import Waiting

__all__ = [
    "BrokerHost",
    "EmbeddingHost",
    "NewTopic",
    "Partition",
    "TopicResult",
    "check_embedded",
    "mirrored_names",
    "run_embedded",
]

logger = get_logger(__name__)
GROUP = "headrace.embedded"
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 30.0


class EmbeddingHost(Protocol):
    """The broker, as an embedded part sees it; everything runs on the broker's loop."""

    @property
    def broker_id(self) -> int: ...

    @property
    def properties(self) -> Mapping[str, str]:
        """The raw `server.properties`."""
        ...

    @property
    def clock(self) -> Clock: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def topics(self) -> Topics: ...

    @property
    def configurations(self) -> Configurations: ...

    @property
    def metadata(self) -> MetadataCache: ...

    @property
    def registry(self) -> Any:
        """The prometheus_client registry that the broker's metrics port serves."""
        ...

    @property
    def security(self) -> ClientSecurity:
        """How a client is let in at what `leader_address` names."""
        ...

    def led(self) -> Iterable[Partition]:
        """The partitions that this broker leads now."""
        ...

    @property
    def internal_replication_factor(self) -> int:
        """How many replicas topics get in which brokers keep their own state: `offsets.topic.replication.factor`."""
        ...

    def leader_address(self, topic: str, partition: int) -> Address | None:
        """Where brokers reach the leader of a partition, this broker included; None without one that is alive."""
        ...

    def on_change(self, callback: Callable[[Partition], None]) -> Callable[[], None]:
        """Call `callback(partition)` after it became led, stopped being led, or was deleted, until what this returns is
        called.
        """
        ...

    def append_mirrored(self, partition: Partition, records: memoryview) -> AppendResult:
        """Append whole batches with their own offsets to a led partition and wake its fetchers.

        Returns the log's AppendResult; raises NotLeaderOrFollowerError, NotEnoughReplicasError below
        `min.insync.replicas`, PolicyViolationError for a topic that is no copy, where clients write, and whatever the
        log refuses.
        """
        ...

    def start_mirrored_at(self, partition: Partition, offset: int) -> None:
        """Have the empty log of a led partition begin at `offset`, and its followers with it; raises StorageError."""
        ...

    async def cut_mirrored(self, partition: Partition, offset: int, *, leader_epoch: int) -> None:
        """Have the log of a copy that is led here end at `offset`, below what is committed, and its followers' with it.

        Nothing of it may be of this leader epoch. Raises NotLeaderOrFollowerError outside of that epoch,
        PolicyViolationError for a topic that is no copy, StorageError.
        """
        ...


class BrokerHost:
    """The broker behind `EmbeddingHost`."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        cluster: Cluster,
        metadata: MetadataCache,
        partitions: Partitions,
        waiting: Waiting,
        metrics: BrokerMetrics,
    ) -> None:
        self.properties = config.properties
        self.clock = clock
        self.topics = cluster.topics
        self.configurations = cluster.configurations
        self._membership = cluster.membership
        self.metadata = metadata
        self.registry = metrics.registry
        self.internal_replication_factor = config.groups.offsets_topic_replication_factor
        self._listener = config.inter_broker_listener
        self._callbacks: list[Callable[[Partition], None]] = []
        self._partitions = partitions
        self._waiting = waiting
        self._refused_writes = metrics.refused_writes
        partitions.on_change(self._changed)

    @property
    def broker_id(self) -> int:
        return self._membership.broker_id

    @property
    def cluster_id(self) -> str:
        return self._membership.cluster_id

    @property
    def security(self) -> ClientSecurity:
        return security_between_brokers(self.configurations.in_effect)

    def led(self) -> Iterable[Partition]:
        return self._partitions.led()

    def leader_address(self, topic: str, partition: int) -> Address | None:
        found = self.metadata.partition(topic, partition)
        endpoint = None if found is None else self.metadata.endpoint(found.leader, self._listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def on_change(self, callback: Callable[[Partition], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def _changed(self, partition: Partition) -> None:
        for callback in list(self._callbacks):
            callback(partition)

    @staticmethod
    def _check_copy(partition: Partition) -> None:
        if not partition.is_leader:
            raise NotLeaderOrFollowerError(
                f"this broker does not lead {partition.topic}-{partition.partition}"
            )
        if not partition.log.is_mirror_copy:
            raise PolicyViolationError(f"{partition.topic} is no mirror's copy any more: clients write to it")

    def append_mirrored(self, partition: Partition, records: memoryview) -> AppendResult:
        self._check_copy(partition)
        if partition.is_under_min_isr:
            raise NotEnoughReplicasError(
                f"{partition.topic}-{partition.partition} has fewer replicas in sync than min.insync.replicas asks for"
            )
        committed_before = partition.high_watermark
        result = self._refused_writes.noted(
            partition.log.directory,
            self.clock,
            lambda: partition.appender.append_mirrored(
                records, leader_epoch=partition.leader_epoch, now_ms=self.clock.now_ms()
            ),
        )
        partition.appended()
        self._waiting.wake_end(partition.topic, partition.partition)
        if partition.high_watermark > committed_before:
            self._waiting.wake(partition.topic, partition.partition)
        return result

    def start_mirrored_at(self, partition: Partition, offset: int) -> None:
        self._partitions.logs.truncate_at_once(partition.log, offset, empties=True)
        # The log has forgotten all epochs, and followers ask for this one's begin.
        partition.log.assign_epoch(partition.leader_epoch)
        self._waiting.wake_both(partition.topic, partition.partition)

    async def cut_mirrored(self, partition: Partition, offset: int, *, leader_epoch: int) -> None:
        logs = self._partitions.logs
        async with self._partitions.changing:
            self._check_copy(partition)
            if partition.leader_epoch != leader_epoch:
                raise NotLeaderOrFollowerError(
                    f"{partition.topic}-{partition.partition} is led in epoch {partition.leader_epoch} by now"
                )
            end_before = partition.log.log_end_offset
            truncation = logs.truncation(partition.log, offset)
            if truncation is not None:
                try:
                    await in_threads(logs.lowering_jobs([truncation]))
                    await in_threads([truncation.run])
                finally:
                    truncation.end()
            partition.cut(end_before)
        self._waiting.wake_both(partition.topic, partition.partition)


Start = Callable[[EmbeddingHost], Awaitable[None]]


async def run_embedded(host: EmbeddingHost, name: str, start: Start) -> None:
    """Run one embedded part until it ends by itself or is cancelled, again after each failure."""
    pause_s = PAUSE_S_MIN
    while True:
        began_ms = host.clock.monotonic_ms()
        try:
            await start(host)
            return
        except Exception as error:
            if host.clock.monotonic_ms() - began_ms > PAUSE_S_MAX * 1000:
                pause_s = PAUSE_S_MIN
            logger.failure("embedded part failed", error, part=name, again_in_s=pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, PAUSE_S_MAX)


def check_embedded(properties: Mapping[str, str]) -> None:
    """Have each installed part look at its configuration; raises ConfigurationError."""
    for check in _offered("check"):
        check(properties)


def mirrored_names(properties: Mapping[str, str]) -> IsMirrored:
    """Tells whether a topic's name is one that an installed part makes and writes topics of."""
    rules = [mirrored(properties) for mirrored in _offered("mirrored_names")]
    return lambda topic, *, is_named: any(rule(topic, is_named=is_named) for rule in rules)


def _offered(name: str) -> Iterable[Callable[..., Any]]:
    """The functions of that name in the modules of the installed parts."""
    for _, start in embedded_parts():
        found = getattr(sys.modules[start.__module__], name, None)
        if found is not None:
            yield found


@cache
def embedded_parts() -> Sequence[tuple[str, Start]]:
    """(name, start) of every installed part; one that cannot be imported is skipped with a warning."""
    parts = []
    for entry in entry_points(group=GROUP):
        try:
            parts.append((entry.name, entry.load()))
        except (ImportError, AttributeError) as error:
            logger.warning("embedded part is not installed", part=entry.name, reason=error)
    return parts
