"""A steady load on partitions that have nothing to do with what happens elsewhere in the cluster, and what it felt of it."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import click

from bench import generator
from bench.peers import Peer
from bench.runs import MESSAGE_SIZE, Workshop

TOPIC = "bystander"
RATE = 1_000
SECONDS_MAX = 120
SETTLE_SECONDS = 2.5
"""Until the generator is connected and its warm-up is over."""


class Bystander:
    """The messages of a load that has ended: when each was due, and how long it took."""

    def __init__(self, trace: Path) -> None:
        lines = (line.split() for line in trace.read_text().splitlines())
        self._seen = [(float(due), float(latency_ms)) for due, latency_ms in lines]

    def p99_ms(self, since: float, until: float) -> float:
        """Of the messages that were due between two moments of the monotonic clock."""
        found = [latency_ms for due, latency_ms in self._seen if since <= due <= until]
        if len(found) < RATE:
            raise click.ClickException(f"the bystander has {len(found)} messages for {until - since:.1f} s")
        return round(statistics.quantiles(found, n=100)[98], 4)


@contextlib.contextmanager
def bystander(peer: Peer, brokers: tuple[int, int], workshop: Workshop) -> Iterator[list[Bystander]]:
    """A load on two partitions, one led by each of two brokers, which both hold them; the list has it once the load ended."""
    first, second = brokers
    peer.create_topic(TOPIC, 2, [(first, second), (second, first)])
    trace = workshop.data / "bystander.trace"
    where: dict[str, str | float] = {
        "bootstrap": peer.bootstrap,
        "topic": TOPIC,
        "partitions": 2,
        "acks": "all",
    }
    running = generator.start(
        workshop.generator,
        "latency",
        **where,
        size=MESSAGE_SIZE,
        rate=RATE,
        seconds=SECONDS_MAX,
        trace=str(trace),
    )
    ended: list[Bystander] = []
    try:
        time.sleep(SETTLE_SECONDS)
        yield ended
    except BaseException:
        running.kill()
        raise
    running.terminate()
    generator.outcome(running)
    ended.append(Bystander(trace))
