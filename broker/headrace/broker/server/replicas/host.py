"""The broker as its partitions know it: time, live brokers, syncs, and whom to tell of what they decide.

Wiring only: what a partition asks for is done by others.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.clock import Clock
from headrace.broker.replication.leader import IsrProposal
from headrace.broker.replication.partition import Partition
from headrace.broker.server.metadata import MetadataCache


class ReplicaHost:
    """See `replication.partition.Host`."""

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        metadata: MetadataCache,
        *,
        replica_lag_ms_max: int,
        request_sync: Callable[[Partition], None],
        secure: Callable[[Partition], None],
        propose: Callable[[Partition, IsrProposal], None],
        wake: Callable[[str, int], None],
    ) -> None:
        self.broker_id = broker_id
        self.replica_lag_ms_max = replica_lag_ms_max
        self.monotonic_ms = clock.monotonic_ms
        self.request_sync = request_sync
        self.secure = secure
        self.propose = propose
        self.is_alive = metadata.is_alive
        self._wake = wake

    def committed(self, partition: Partition) -> None:
        """Wake who waits for the partition."""
        self._wake(partition.topic, partition.partition)
