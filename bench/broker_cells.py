"""One broker beside Apache Kafka: produce, fetch from the page cache, latency, many partitions, idling, starting.

The runs of both are made in turns (A B, B A, ...), so that what the machine does meanwhile meets both alike, and a pair's
ratio is what counts. The generator shares the machine's cores with the broker; CPU and memory are the broker process's
alone. The cells of a run meet the same two brokers, in order, so that the memory seen at the last of them is that after all.
Without Apache Kafka's jars headrace is measured alone.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import contest, generator
from bench.generator import Outcome
from bench.machine import cpu_seconds, kernel_seconds, voluntary_switches
from bench.peers import Peer, headrace
from bench.runs import HEADRACE, MESSAGE_SIZE, Effort, RawRun, Workshop
from bench.workloads import (
    BUSY,
    FETCH,
    LATENCY_1K,
    LATENCY_10K,
    MATRIX,
    MAX_BATCH,
    PRODUCE_1,
    PRODUCE_50,
    PRODUCE_MAX,
    Workload,
)

START_DEV = "start of headrace dev"
START = "start of a broker"
IDLE = "idle"
CALM = f"{LATENCY_1K.name}, beside 1,000 idle partitions"
"""What a run of BUSY is paired with: the same rate over one partition and one connection, on the same broker."""
MANY = "produce, batch of 10, 1,000 partitions, 100 connections"

FETCH_MESSAGES, FETCH_PASSES = 2_000_000, 3
MANY_PARTITIONS = 1_000
STANDING = "standing"
LATENCY_SECONDS_MIN = 4
START_PAIRS_MAX = 3
AROUND_SECONDS = 1.2
"""What comes with a run: a topic and its deletion, a client's start and end."""
IDLE_SECONDS, SETTLE_SECONDS = 20, 65
"""What a load leaves to do, such as checkpoints, is done within a minute."""
WARM_UP_MESSAGES_PER_SECOND = 5_000_000 / 60
WARM_UP_SECONDS = {PRODUCE_1: 2, PRODUCE_50: 2, PRODUCE_MAX: 2, LATENCY_10K: 1}
"""How long each workload is part of one round of warming up."""
MANY_WORKLOAD = Workload(kind="produce", batch=10, partitions=MANY_PARTITIONS, connections=100)
STEADY = (PRODUCE_1, PRODUCE_50, PRODUCE_MAX, FETCH, LATENCY_1K, LATENCY_10K, BUSY)
WORKLOADS = {**MATRIX, CALM: LATENCY_1K, MANY: MANY_WORKLOAD}

name = "broker"
title = "Broker"
note = (
    "unless the cell says otherwise: one partition, one connection, acks=1, no compression; both brokers with the same settings "
    "on the same disk, neither flushes by itself; in a latency cell as many clients read as publish, at most one a partition; "
    "CPU and memory of the broker process"
)
cells = (START_DEV, START, *(workload.name for workload in STEADY), CALM, MANY, IDLE)
more_cells = tuple(cell for cell in MATRIX if cell not in cells)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take, all brokers together."""
    effort = workshop.effort
    peers = 1 if workshop.kafka_jars is None else 2
    starts = min(effort.pairs, START_PAIRS_MAX)
    if cell == START_DEV:
        return starts, starts * 4.0
    if cell == START:
        return peers * starts, starts * (4.0 if peers == 1 else 14.0)
    if cell == IDLE:
        return peers, float(IDLE_SECONDS + SETTLE_SECONDS)
    runs = peers * effort.pairs
    return runs, runs * (_seconds(WORKLOADS[cell], effort) + AROUND_SECONDS)


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells: the starts with brokers of their own, the others against two warm ones."""
    jars = workshop.kafka_jars
    if START_DEV in wanted:
        yield from _dev_starts(workshop)
    steady = dict.fromkeys(
        BUSY.name if cell == CALM else cell for cell in wanted if cell not in (START_DEV, START)
    )
    with contest.zookeeper(workshop.data / "zookeeper") as ensemble:
        if START in wanted:
            yield from _starts(jars, ensemble, workshop)
        if not steady:
            return
        with contest.both(jars, workshop.data, ensemble) as peers:
            if list(steady) != [IDLE]:
                for peer in peers:
                    _warm_up(peer, workshop)
            for cell in steady:
                yield from _idle(peers) if cell == IDLE else _pairs(cell, peers, workshop)


def _dev_starts(workshop: Workshop) -> Iterator[RawRun]:
    for number in range(min(workshop.effort.pairs, START_PAIRS_MAX)):
        with headrace(workshop.data / f"dev-{number}") as peer:
            yield _started(START_DEV, peer, number)


def _starts(jars: Path | None, ensemble: str, workshop: Workshop) -> Iterator[RawRun]:
    kinds = [HEADRACE, contest.KAFKA][: 1 if jars is None else 2]
    for number in range(min(workshop.effort.pairs, START_PAIRS_MAX)):
        for kind in kinds if number % 2 == 0 else reversed(kinds):
            data = workshop.data / f"start-{number}-{kind.split()[0]}"
            with contest.broker(kind, jars, data, ensemble) as peer:
                yield _started(START, peer, number)


def _started(cell: str, peer: Peer, number: int) -> RawRun:
    return RawRun(
        cell=cell,
        peer=peer.name,
        round=number,
        messages=0,
        bytes=0,
        seconds=peer.start_seconds,
        cpu_seconds=round(cpu_seconds(peer.process), 4),
        memory_mib=peer.memory_mib,
    )


def _warm_up(peer: Peer, workshop: Workshop) -> None:
    """All kinds of load until the JVM has compiled what it will; headrace, which has nothing to compile, once."""
    seconds_min = workshop.effort.warm_up_seconds if peer.name == contest.KAFKA else 0.0
    messages_min = seconds_min * WARM_UP_MESSAGES_PER_SECOND
    workshop.say(f"Warming {peer.name} up: {seconds_min:.0f} s and {messages_min:,.0f} messages at least.")
    began, messages = time.monotonic(), 0
    for number in itertools.count():
        with contest.topic(peer, f"warm-{number}", 1) as topic:
            for workload, seconds in WARM_UP_SECONDS.items():
                messages += _flow(workload, peer, topic, seconds, workshop).messages
        if time.monotonic() - began >= seconds_min and messages >= messages_min:
            return


def _pairs(cell: str, peers: Sequence[Peer], workshop: Workshop) -> Iterator[RawRun]:
    workload = WORKLOADS[cell]
    with _standing_topic(peers, workload, workshop) as standing:
        for number, peer in contest.in_turns(peers, workshop.effort.pairs):
            yield _run(cell, number, peer, standing, workshop)
            if cell == BUSY.name:
                yield _run(CALM, number, peer, "", workshop)


def _run(cell: str, number: int, peer: Peer, standing: str, workshop: Workshop) -> RawRun:
    """One run of a cell, on the standing topic or on one of its own."""
    workload = WORKLOADS[cell]
    own: contextlib.AbstractContextManager[str] = (
        contextlib.nullcontext(standing) if standing else contest.topic(peer, "run", workload.partitions)
    )
    with own as topic:
        cpu_before, kernel_before = cpu_seconds(peer.process), kernel_seconds(peer.process)
        outcome = _flow(workload, peer, topic, _seconds(workload, workshop.effort), workshop)
        cpu, kernel = cpu_seconds(peer.process) - cpu_before, kernel_seconds(peer.process) - kernel_before
    return RawRun(
        cell=cell,
        peer=peer.name,
        round=number,
        messages=outcome.messages,
        bytes=outcome.bytes,
        seconds=round(outcome.seconds, 4),
        cpu_seconds=round(cpu, 4),
        memory_mib=peer.memory_mib,
        settings=workload.settings,
        figures={
            **outcome.latency,
            "kernel_cpu_seconds": round(kernel, 4),
            "client_cpu_seconds": round(outcome.cpu_seconds, 4),
        },
    )


def _flow(workload: Workload, peer: Peer, topic: str, seconds: float, workshop: Workshop) -> Outcome:
    """Let the generator do the workload on a topic, for so many seconds or, for a fetch, over all that is there."""
    where = {"bootstrap": peer.bootstrap, "topic": topic}
    if workload.kind == "fetch":
        options = workload.settings | where | {"messages": FETCH_MESSAGES}
        return _together(
            [generator.run(workshop.generator, "consume", **options) for _ in range(FETCH_PASSES)]
        )
    options = workload.settings | where | {"size": MESSAGE_SIZE}
    return generator.run(workshop.generator, workload.kind, **options, seconds=seconds)


def _together(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        messages=sum(outcome.messages for outcome in outcomes),
        seconds=sum(outcome.seconds for outcome in outcomes),
        bytes=sum(outcome.bytes for outcome in outcomes),
        cpu_seconds=sum(outcome.cpu_seconds for outcome in outcomes),
    )


@contextlib.contextmanager
def _standing_topic(peers: Sequence[Peer], workload: Workload, workshop: Workshop) -> Iterator[str]:
    """A topic for all runs of a cell, on every broker: for a fetch with what its readers together take, or one of very
    many partitions, which would take longer to make than to use. Otherwise none, and no name.
    """
    is_fetch, is_wide = workload.kind == "fetch", workload.partitions >= MANY_PARTITIONS
    with contextlib.ExitStack() as stack:
        for peer in peers if is_fetch or is_wide else ():
            stack.enter_context(contest.topic(peer, STANDING, workload.partitions))
            if is_fetch:
                _fill(peer, workload, workshop)
        yield STANDING if is_fetch or is_wide else ""


def _fill(peer: Peer, workload: Workload, workshop: Workshop) -> None:
    readers = max(1, workload.connections // workload.partitions)
    options: dict[str, str | int] = {
        "partitions": workload.partitions,
        "messages": FETCH_MESSAGES // readers,
        "codec": workload.codec,
    }
    where = {"bootstrap": peer.bootstrap, "topic": STANDING}
    generator.run(workshop.generator, "produce", **where, **options, size=MESSAGE_SIZE, batch=MAX_BATCH)


def _idle(peers: Sequence[Peer]) -> Iterator[RawRun]:
    """Nobody is connected, and nothing is left to do: how often do the brokers wake up?"""
    time.sleep(SETTLE_SECONDS)
    switches = [voluntary_switches(peer.process) for peer in peers]
    cpu = [cpu_seconds(peer.process) for peer in peers]
    time.sleep(IDLE_SECONDS)
    for peer, switches_before, cpu_before in zip(peers, switches, cpu, strict=True):
        woken = voluntary_switches(peer.process) - switches_before
        yield RawRun(
            cell=IDLE,
            peer=peer.name,
            round=0,
            messages=0,
            bytes=0,
            seconds=IDLE_SECONDS,
            cpu_seconds=round(cpu_seconds(peer.process) - cpu_before, 4),
            memory_mib=peer.memory_mib,
            figures={"wake_ups_per_second": round(woken / IDLE_SECONDS, 2)},
        )


def _seconds(workload: Workload, effort: Effort) -> float:
    """How long one run lasts; a fetch takes what it takes, about as long."""
    return max(effort.seconds, LATENCY_SECONDS_MIN) if workload.kind == "latency" else effort.seconds
