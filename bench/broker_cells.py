"""One broker beside Apache Kafka: produce, fetch from the page cache, latency, many partitions; and a start.

The runs of both are made in turns (A B, B A, ...), so that what the machine does meanwhile meets both alike, and a pair's
ratio is what counts. The generator shares the machine's cores with the broker; CPU and memory are the broker process's
alone. The cells of a run meet the same two brokers, in order, so that the memory seen at one of them is that after all before it.
Without Apache Kafka's jars headrace is measured alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import contest, flows
from bench.peers import headrace
from bench.runs import RawRun, Workshop
from bench.workloads import ALONE

START_DEV = "start of headrace dev"

STARTS_MAX = 3
AROUND_SECONDS = 1.2
"""What comes with a run: a topic and its deletion, a client's start and end."""
name = "broker"
title = "Broker"
note = (
    "one partition and one connection unless the path says otherwise, acks=1, no compression; a connection's messages go round, "
    "each to the next partition; neither broker flushes by itself; memory is that after all paths above"
)
cells = (START_DEV, *ALONE)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take, all brokers together."""
    effort = workshop.effort
    peers = 1 if workshop.kafka_jars is None else 2
    if cell == START_DEV:
        starts = min(effort.pairs, STARTS_MAX)
        return starts, starts * 4.0
    runs = peers * effort.pairs
    return runs, runs * (flows.run_seconds(ALONE[cell], effort) + AROUND_SECONDS)


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells: the starts with brokers of their own, the others against two warm ones."""
    if START_DEV in wanted:
        yield from _dev_starts(workshop)
    streams = [cell for cell in wanted if cell != START_DEV]
    if not streams:
        return
    with (
        contest.zookeeper(workshop.data / "zookeeper") as ensemble,
        contest.both(workshop.kafka_jars, workshop.data, ensemble) as peers,
    ):
        for peer in peers:
            flows.warm_up(peer, workshop)
        for cell in streams:
            yield from flows.pairs(ALONE[cell], peers, workshop)


def _dev_starts(workshop: Workshop) -> Iterator[RawRun]:
    for number in range(min(workshop.effort.pairs, STARTS_MAX)):
        with headrace(workshop.data / f"dev-{number}") as peer:
            yield RawRun(
                cell=START_DEV,
                peer=peer.name,
                round=number,
                messages=0,
                bytes=0,
                seconds=peer.start_seconds,
                cpu_seconds=round(peer.cpu_seconds, 4),
                memory_mib=peer.memory_mib,
            )
