"""Three brokers that replicate beside three of Apache Kafka: produce with acks=all, and latency.

Measured as one broker is; CPU and memory are those of all three processes together.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import contest, flows
from bench.runs import RawRun, Workshop
from bench.workloads import CLUSTERED

BROKER_COUNT = 3
AROUND_SECONDS = 2.5
"""What comes with a run: a topic on three brokers and its deletion, a client's start and end."""

name = "cluster"
title = "Cluster"
note = (
    "three brokers, every partition on all of them, min.insync.replicas=2, acks=all, no compression; one partition and one "
    "connection unless the path says otherwise; CPU and memory are those of the three processes together"
)
cells = tuple(CLUSTERED)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take, both clusters together."""
    runs = workshop.effort.pairs * (1 if workshop.kafka_jars is None else 2)
    return runs, runs * (flows.run_seconds(CLUSTERED[cell], workshop.effort) + AROUND_SECONDS)


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells against two warm clusters."""
    with (
        contest.zookeeper(workshop.data / "zookeeper") as ensemble,
        contest.both(workshop.kafka_jars, workshop.data, ensemble, BROKER_COUNT) as peers,
    ):
        for peer in peers:
            flows.warm_up(peer, workshop)
        for cell in wanted:
            yield from flows.pairs(CLUSTERED[cell], peers, workshop)
