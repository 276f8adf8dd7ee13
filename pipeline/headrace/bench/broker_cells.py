"""One broker: start, produce in three batch sizes, fetch from the page cache, many partitions and connections.

All cells of a round meet the same broker, in order, so that the memory seen after the last of them is that after all of
these runs. The generator shares the machine's cores with the broker; CPU and memory are the broker process's alone.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from functools import partial

from headrace.bench.generator import Outcome, run
from headrace.bench.machine import cpu_seconds
from headrace.bench.peers import Peer, headrace
from headrace.bench.runs import MESSAGE_SIZE, RawRun, Workshop

START = "start of headrace dev"
BATCH_1 = "produce, batch of 1"
BATCH_50 = "produce, batch of 50"
BATCH_MAX = "produce, 1 MB batches"
FETCH = "fetch from cache"
MANY = "1,000 partitions, 100 connections"

BATCHES = {BATCH_1: (1, 200_000), BATCH_50: (50, 2_000_000), BATCH_MAX: (0, 3_000_000)}
"""Messages a batch (0: up to 1 MB), messages in all."""
FETCH_MESSAGES, FETCH_PASSES = 2_000_000, 3
MANY_PARTITIONS, MANY_CONNECTIONS, MANY_MESSAGES, MANY_BATCH = 1_000, 100, 100_000, 10

name = "broker"
title = "Broker"
note = "one partition, acks=1, no compression; CPU and memory of the broker process"
cells = (START, BATCH_1, BATCH_50, BATCH_MAX, FETCH, MANY)


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells against one fresh broker."""
    with headrace(workshop.data / "broker") as peer:
        for cell in wanted:
            yield _measure(cell, peer, workshop)


def _measure(cell: str, peer: Peer, workshop: Workshop) -> RawRun:
    if cell == START:
        return _started(peer, workshop)
    if cell == FETCH:
        return _fetch(peer, workshop)
    if cell == MANY:
        return _many(peer, workshop)
    batch, messages = BATCHES[cell]
    topic = f"bench-{batch}"
    peer.create_topic(topic, 1)
    work = partial(_produce, peer, workshop, topic, messages, batch, 1)
    return _timed(cell, peer, workshop, work, {"batch": batch})


def _started(peer: Peer, workshop: Workshop) -> RawRun:
    return RawRun(
        cell=START,
        peer=peer.name,
        round=workshop.round,
        messages=0,
        bytes=0,
        seconds=peer.start_seconds,
        cpu_seconds=round(cpu_seconds(peer.process), 4),
        memory_mib=peer.memory_mib,
        settings={},
    )


def _fetch(peer: Peer, workshop: Workshop) -> RawRun:
    """Read a topic that has just been written, several times over."""
    peer.create_topic("bench-fetch", 1)
    _produce(peer, workshop, "bench-fetch", FETCH_MESSAGES, 0, 1)

    def passes() -> Outcome:
        arguments = ("consume", peer.bootstrap, "bench-fetch", 1, FETCH_MESSAGES)
        outcomes = [run(workshop.generator, *arguments) for _ in range(FETCH_PASSES)]
        return Outcome(
            messages=sum(outcome.messages for outcome in outcomes),
            seconds=sum(outcome.seconds for outcome in outcomes),
            bytes=sum(outcome.bytes for outcome in outcomes),
        )

    return _timed(FETCH, peer, workshop, passes, {"passes": FETCH_PASSES})


def _many(peer: Peer, workshop: Workshop) -> RawRun:
    """Publish to every one of many partitions while many clients stay connected."""
    peer.create_topic("bench-many", MANY_PARTITIONS)
    host, _, port = peer.bootstrap.rpartition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(MANY_CONNECTIONS):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
        work = partial(_produce, peer, workshop, "bench-many", MANY_MESSAGES, MANY_BATCH, MANY_PARTITIONS)
        settings = {"batch": MANY_BATCH, "partitions": MANY_PARTITIONS, "connections": MANY_CONNECTIONS}
        return _timed(MANY, peer, workshop, work, settings)


def _produce(
    peer: Peer, workshop: Workshop, topic: str, messages: int, batch: int, partitions: int
) -> Outcome:
    return run(
        workshop.generator,
        *("produce", peer.bootstrap, topic, partitions, messages, MESSAGE_SIZE),
        *(batch, "1", "none"),
    )


def _timed(
    cell: str, peer: Peer, workshop: Workshop, work: Callable[[], Outcome], settings: dict[str, int]
) -> RawRun:
    """Do the work; the broker's CPU over it is the run's."""
    before = cpu_seconds(peer.process)
    outcome = work()
    return RawRun(
        cell=cell,
        peer=peer.name,
        round=workshop.round,
        messages=outcome.messages,
        bytes=outcome.bytes,
        seconds=round(outcome.seconds, 4),
        cpu_seconds=round(cpu_seconds(peer.process) - before, 4),
        memory_mib=peer.memory_mib,
        settings=settings,
    )
