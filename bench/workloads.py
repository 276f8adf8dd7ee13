"""What a client does to a broker in one cell: the workloads, their names, and the matrix of them.

A name says what differs from the usual: one partition, one connection, acks=1, no compression.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
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
    acks: str = "1"
    codec: str = "none"

    @property
    def name(self) -> str:
        parts = [self._what]
        if self.partitions != 1:
            parts.append(f"{self.partitions:,} partitions")
        if self.connections != 1:
            parts.append(f"{self.connections} connections")
        if self.acks != "1":
            parts.append(f"acks={self.acks}")
        if self.codec != "none":
            parts.append(self.codec)
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
        if self.kind == "fetch":
            return common
        common |= {"acks": self.acks, "codec": self.codec}
        return common | ({"rate": self.rate} if self.kind == "latency" else {"batch": self.batch})


def _matrix() -> tuple[Workload, ...]:
    shapes = list(product((1, 64), (1, 50)))
    produce = (
        Workload(
            kind="produce",
            batch=batch,
            partitions=partitions,
            connections=connections,
            acks=acks,
            codec=codec,
        )
        for batch, (partitions, connections), acks, codec in product(
            (1, 50, MAX_BATCH), shapes, ("1", "0", "all"), ("none", "lz4")
        )
    )
    fetch = (
        Workload(kind="fetch", partitions=partitions, connections=connections, codec=codec)
        for (partitions, connections), codec in product(shapes, ("none", "lz4"))
    )
    latency = (
        Workload(
            kind="latency", rate=rate, partitions=partitions, connections=connections, acks=acks, codec=codec
        )
        for rate, (partitions, connections), acks, codec in product(
            (1_000, 10_000), shapes, ("1", "0", "all"), ("none", "lz4")
        )
    )
    return (*produce, *fetch, *latency)


PRODUCE_1 = Workload(kind="produce", batch=1)
PRODUCE_50 = Workload(kind="produce", batch=50)
PRODUCE_MAX = Workload(kind="produce")
FETCH = Workload(kind="fetch")
LATENCY_1K = Workload(kind="latency", rate=1_000)
LATENCY_10K = Workload(kind="latency", rate=10_000)
BUSY = Workload(kind="latency", rate=1_000, partitions=1_000, connections=50)
"""50 connections that publish and 50 that read."""
MATRIX = {workload.name: workload for workload in (*_matrix(), BUSY)}
