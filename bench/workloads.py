"""What a client does to a broker in one cell: the workloads and their names.

A name says what differs from the usual: one partition, one connection, one replica.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MAX_BATCH = 0
"""As a batch size: as many messages as 1 MB holds."""
Kind = Literal["produce", "fetch", "latency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A load on one topic; `batch` is messages a batch of a `produce`, `rate` messages a second of a `latency`."""

    kind: Kind
    batch: int = MAX_BATCH
    rate: int = 0
    partitions: int = 1
    connections: int = 1
    replicas: int = 1
    """With more than one every message is acknowledged when all replicas in sync have it."""
    is_tls: bool = False

    @property
    def name(self) -> str:
        parts = [self._what]
        if self.partitions != 1:
            parts.append(f"{self.partitions:,} partitions")
        if self.connections != 1:
            parts.append(f"{self.connections} connections")
        if self.replicas != 1:
            parts.append(f"{self.replicas} replicas")
        if self.is_tls:
            parts.append("TLS")
        return ", ".join(parts)

    @property
    def _what(self) -> str:
        if self.kind == "fetch":
            return "fetch from cache"
        if self.kind == "latency":
            return f"latency at {self.rate:,}/s"
        return "produce, 1 MB batches" if self.batch == MAX_BATCH else f"produce, batch of {self.batch}"

    @property
    def settings(self) -> dict[str, str | int]:
        """What the generator is told, but for the topic and how much."""
        common: dict[str, str | int] = {"partitions": self.partitions, "connections": self.connections}
        if self.replicas != 1:
            common["acks"] = "all"
        if self.kind == "fetch":
            return common
        return common | ({"rate": self.rate} if self.kind == "latency" else {"batch": self.batch})


PRODUCE_1 = Workload(kind="produce", batch=1)
PRODUCE_50 = Workload(kind="produce", batch=50)
PRODUCE_MAX = Workload(kind="produce")
PRODUCE_1_TO_8 = Workload(kind="produce", batch=1, partitions=8)
PRODUCE_50_TO_8 = Workload(kind="produce", batch=50, partitions=8)
PRODUCE_1_TO_64 = Workload(kind="produce", batch=1, partitions=64)
PRODUCE_50_TO_64 = Workload(kind="produce", batch=50, partitions=64)
PRODUCE_MAX_TO_64 = Workload(kind="produce", partitions=64)
PRODUCE_50_BY_50 = Workload(kind="produce", batch=50, connections=50)
FETCH = Workload(kind="fetch")
FETCH_OF_64 = Workload(kind="fetch", partitions=64)
LATENCY_1K = Workload(kind="latency", rate=1_000)
LATENCY_10K = Workload(kind="latency", rate=10_000)
MANY = Workload(kind="produce", batch=10, partitions=1_000, connections=100)
ALONE = {
    workload.name: workload
    for workload in (
        PRODUCE_1,
        PRODUCE_50,
        PRODUCE_MAX,
        PRODUCE_1_TO_8,
        PRODUCE_50_TO_8,
        PRODUCE_1_TO_64,
        PRODUCE_50_TO_64,
        PRODUCE_MAX_TO_64,
        PRODUCE_50_BY_50,
        FETCH,
        FETCH_OF_64,
        LATENCY_1K,
        LATENCY_10K,
        MANY,
    )
}
"""Those of one broker, in the order in which they run and stand on the page."""
LATENCY_1K_OF_3 = Workload(kind="latency", rate=1_000, replicas=3)
CLUSTERED = {
    workload.name: workload
    for workload in (
        *(
            Workload(kind="produce", batch=batch, partitions=partitions, connections=connections, replicas=3)
            for batch in (1, 50, MAX_BATCH)
            for partitions, connections in ((1, 1), (12, 50))
        ),
        LATENCY_1K_OF_3,
    )
}
"""Those of three brokers that replicate."""
PRODUCE_50_BY_TLS = Workload(kind="produce", batch=50, is_tls=True)
FETCH_BY_TLS = Workload(kind="fetch", is_tls=True)
SECURED = {workload.name: workload for workload in (PRODUCE_50_BY_TLS, FETCH_BY_TLS)}
"""Those of one broker over TLS."""
