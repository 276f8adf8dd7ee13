"""The instrumented producer beside the bare client: the same events with the same settings, by `bench.producer_program`.

CPU and memory are those of the publishing process, its start left out: of the library from the first event to its closing
account, of the client alone, which is given encoded values and hears of no delivery, to the last acknowledgement.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.load_cells import registry
from bench.peers import Peer, headrace
from bench.programs import told_by
from bench.runs import RawRun, Workshop

ACCOUNTED = "publish by the library, events of 220 B"
EVENTS = 300_000
PARTITIONS = 4
SECONDS_MAX = 300

name = "producer"
title = "Producer"
note = (
    f"one process, {EVENTS:,} events without keys to {PARTITIONS} partitions as fast as it can, `acks=all`, idempotent, "
    "linger 20 ms; CPU and memory are the publishing process's, its start left out. The bare client is given encoded values "
    "and no callbacks, and runs before it in each round"
)
cells = (ACCOUNTED,)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take."""
    rounds = workshop.effort.rounds
    return rounds, rounds * 15.0


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells round by round, all of a round on one cluster with a registry."""
    for number in range(workshop.effort.rounds):
        with (
            workshop.folder("producer") as data,
            headrace(data / "broker") as peer,
            registry(peer, data) as url,
        ):
            for cell in wanted:
                yield _measure(cell, number, peer, url)


def _measure(cell: str, number: int, peer: Peer, url: str) -> RawRun:
    bare = _publish("bare", peer, url)
    found = _publish("instrumented", peer, url)
    return RawRun(
        cell=cell,
        peer=peer.name,
        round=number,
        messages=EVENTS,
        bytes=int(found["bytes"]),
        seconds=round(found["seconds"], 4),
        cpu_seconds=round(found["cpu_seconds"], 4),
        memory_mib=int(found["memory_mib"]),
        settings={"partitions": PARTITIONS},
        figures={
            "bare_cpu_seconds": round(bare["cpu_seconds"], 4),
            "cpu_ratio": round(found["cpu_seconds"] / bare["cpu_seconds"], 2),
        },
    )


def _publish(kind: str, peer: Peer, url: str) -> dict[str, float]:
    """Let a process publish to a topic of its own; return what it says of itself."""
    topic = f"bench.{kind}"
    peer.create_topic(topic, PARTITIONS)
    return told_by("producer_program", (kind, peer.bootstrap, url, topic, str(EVENTS)), SECONDS_MAX)
