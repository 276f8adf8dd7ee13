"""Transactions on one broker beside Apache Kafka: produced to one partition and to a hundred, and copied with a group's offsets.

Each producer has a transactional id of its own and makes one transaction after the other, so that a broker's rate is that of
so many producers who wait for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench import contest, generator
from bench.peers import Peer
from bench.runs import MESSAGE_SIZE, RawRun, Workshop
from bench.workloads import MAX_BATCH

BATCH = 50
INPUT = "input"
INPUT_MESSAGES_PER_SECOND = 60_000
"""As many as no copy takes."""
AROUND_SECONDS = 1.5
WARM_UP_RUN_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transacting:
    """So many producers, each transaction a batch to each of the partitions, or copied from an input."""

    what: str
    producers: int
    partitions: int = 1
    is_copy: bool = False

    @property
    def name(self) -> str:
        return f"{self.what}, {self.producers} producers"

    @property
    def settings(self) -> dict[str, str | int]:
        return {
            "batch": BATCH,
            "connections": self.producers,
            "partitions": self.partitions,
            **({"input": INPUT} if self.is_copy else {}),
        }


TO_ONE = Transacting(what="transactions of one batch of 50", producers=16)
TO_HUNDRED = Transacting(
    what="transactions of 100 batches of 50 to 100 partitions", producers=4, partitions=100
)
COPIED = Transacting(what="copies of batches of 50 in transactions", producers=8, is_copy=True)
ALL = {each.name: each for each in (TO_ONE, TO_HUNDRED, COPIED)}
name = "transactions"
title = "Transactions"
note = "one broker, no compression; each producer begins a transaction once its last one is committed"
cells = (*ALL,)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take, all brokers together."""
    effort = workshop.effort
    runs = (1 if workshop.kafka_jars is None else 2) * effort.pairs
    return runs, runs * (effort.seconds + AROUND_SECONDS) + effort.warm_up_seconds


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells against two warm brokers, in turns."""
    with (
        contest.zookeeper(workshop.data / "zookeeper") as ensemble,
        contest.both(workshop.kafka_jars, workshop.data, ensemble) as peers,
    ):
        for cell in wanted:
            yield from _pairs(ALL[cell], peers, workshop)


def _pairs(cell: Transacting, peers: Sequence[Peer], workshop: Workshop) -> Iterator[RawRun]:
    with contextlib.ExitStack() as stack:
        for peer in peers:
            if cell.is_copy:
                stack.enter_context(_input(peer, cell, workshop))
            for number in range(_warm_ups(peer, workshop)):
                _run(cell, number, peer, workshop, WARM_UP_RUN_SECONDS)
        for number, peer in contest.in_turns(peers, workshop.effort.pairs):
            yield _run(cell, number, peer, workshop, workshop.effort.seconds)


def _warm_ups(peer: Peer, workshop: Workshop) -> int:
    """Until the JVM has compiled what it will; headrace makes its coordinators' topic in one."""
    seconds = workshop.effort.warm_up_seconds if peer.name == contest.KAFKA else 0.0
    return max(1, round(seconds / WARM_UP_RUN_SECONDS))


@contextlib.contextmanager
def _input(peer: Peer, cell: Transacting, workshop: Workshop) -> Iterator[None]:
    seconds = max(workshop.effort.seconds, WARM_UP_RUN_SECONDS)
    messages = round(INPUT_MESSAGES_PER_SECOND * seconds)
    with contest.topic(peer, INPUT, cell.producers):
        where = {"bootstrap": peer.bootstrap, "topic": INPUT}
        load = {"partitions": cell.producers, "messages": messages, "size": MESSAGE_SIZE, "batch": MAX_BATCH}
        generator.run(workshop.generator, "produce", **where, **load)
        yield


def _run(cell: Transacting, number: int, peer: Peer, workshop: Workshop, seconds: float) -> RawRun:
    with contest.topic(peer, "run", cell.partitions) as topic:
        before = peer.cpu_seconds
        options = cell.settings | {"bootstrap": peer.bootstrap, "topic": topic, "size": MESSAGE_SIZE}
        outcome = generator.run(workshop.generator, "transact", **options, seconds=seconds)
        cpu = peer.cpu_seconds - before
    return RawRun(
        cell=cell.name,
        peer=peer.name,
        round=number,
        messages=outcome.messages,
        bytes=outcome.bytes,
        seconds=round(outcome.seconds, 4),
        cpu_seconds=round(cpu, 4),
        memory_mib=peer.memory_mib,
        settings=cell.settings,
        figures={"transactions_per_second": outcome.transactions / outcome.seconds},
    )
