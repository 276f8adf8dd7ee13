"""The mirror: a filled source cluster, and a target whose broker copies it.

The source's broker is held still (SIGSTOP) until the target is ready, so that the whole copy falls between two readings
of the target broker's CPU, which is all the CPU that mirroring costs the target: its copiers run inside it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import click

from bench.generator import Outcome, run
from bench.machine import cpu_seconds
from bench.peers import Peer, headrace
from bench.runs import MESSAGE_SIZE, RawRun, Workshop
from headrace.load.log_client import LogClient

BATCH_50 = "mirror, batches of 50"
BATCH_MAX = "mirror, 1 MB batches"

SIZES = {BATCH_50: (50, 2_000_000), BATCH_MAX: (0, 3_000_000)}
"""Messages a batch (0: up to 1 MB), messages in all."""
PARTITIONS = 4
TOPIC = "bench"
SECONDS_MAX = 180
POLL_SECONDS = 0.05
SOURCE_SETTINGS = {"zookeeper.session.timeout.ms": "60000"}
"""A broker that is held still must not lose its session."""

name = "mirror"
title = "Mirror"
note = f"{PARTITIONS} partitions, no compression; CPU of the target's broker process, the copy included"
cells = (BATCH_50, BATCH_MAX)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take."""
    rounds = workshop.effort.rounds
    return rounds, rounds * 12.0


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells round by round, each with two clusters of its own."""
    for number in range(workshop.effort.rounds):
        for cell in wanted:
            yield _measure(cell, number, workshop)


def _measure(cell: str, number: int, workshop: Workshop) -> RawRun:
    with workshop.folder("mirror") as data, headrace(data / "source", SOURCE_SETTINGS) as source:
        batch, filled = _fill(cell, source, workshop)
        with waiting_target(source, data / "target", source.bootstrap, TOPIC) as target:
            before = cpu_seconds(target.process)
            source.process.resume()
            seconds = _seconds_until_copied(target, filled)
            return RawRun(
                cell=cell,
                peer=target.name,
                round=number,
                messages=filled.messages,
                bytes=filled.bytes,
                seconds=seconds,
                cpu_seconds=round(cpu_seconds(target.process) - before, 4),
                memory_mib=target.memory_mib,
                settings={"batch": batch, "partitions": PARTITIONS},
            )


def _fill(cell: str, source: Peer, workshop: Workshop) -> tuple[int, Outcome]:
    """Make the source's topic and fill it; gives the batch and what went in."""
    batch, messages = SIZES[cell]
    source.create_topic(TOPIC, PARTITIONS)
    options = {"partitions": PARTITIONS, "messages": messages, "size": MESSAGE_SIZE, "batch": batch}
    where = {"bootstrap": source.bootstrap, "topic": TOPIC}
    return batch, run(workshop.generator, "produce", **where, **options)


@contextlib.contextmanager
def waiting_target(source: Peer, data: Path, bootstrap: str, topic: str) -> Iterator[Peer]:
    """A target that is ready and waits for the answers of a source, reached at `bootstrap`, that is held still."""
    settings = {
        "mirror.sources": "source",
        "mirror.source.bootstrap.servers": bootstrap,
        "mirror.source.topics": topic,
    }
    source.process.suspend()
    try:
        with headrace(data, settings) as target:
            yield target
    finally:
        source.process.resume()


def _seconds_until_copied(target: Peer, filled: Outcome) -> float:
    began = time.monotonic()
    client = LogClient(target.bootstrap, client_id="headrace-bench")
    try:
        while (copied := _copied(client)) < filled.messages:
            if time.monotonic() - began > SECONDS_MAX:
                raise click.ClickException(
                    f"only {copied} of {filled.messages} messages were copied in {SECONDS_MAX} s"
                )
            time.sleep(POLL_SECONDS)
        return round(time.monotonic() - began, 4)
    finally:
        client.close()


def _copied(client: LogClient) -> int:
    """How many messages of the topic the target's consumers can read."""
    partitions = client.partitions(lambda topic: topic == f"source.{TOPIC}")
    return sum(offsets.end for offsets in client.reachable_log_offsets(partitions).values())
