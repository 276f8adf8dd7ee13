"""The workloads' runs, on one broker or on a cluster of them, and the warming up before.

The runs of all peers are made in turns; a run has a topic of its own, or shares one where that takes longer to make than to use.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bench import contest, generator
from bench.generator import Outcome
from bench.peers import Peer
from bench.runs import MESSAGE_SIZE, Effort, RawRun, Workshop
from bench.workloads import LATENCY_10K, MAX_BATCH, PRODUCE_1, PRODUCE_50, PRODUCE_MAX, Workload

FETCH_MESSAGES, FETCH_PASSES = 2_000_000, 3
MANY_PARTITIONS = 1_000
"""A topic of so many is made once a cell: it takes longer to make than to use."""
STANDING = "standing"
LATENCY_SECONDS_MIN = 4
WARM_UP_MESSAGES_PER_SECOND = 5_000_000 / 60
WARM_UP_SECONDS = {PRODUCE_1: 2, PRODUCE_50: 2, PRODUCE_MAX: 2, LATENCY_10K: 1}
"""How long each workload is part of one round of warming up."""


def warm_up(peer: Peer, workshop: Workshop, *, is_tls: bool = False) -> None:
    """All kinds of load until the JVM has compiled what it will; headrace, which has nothing to compile, once."""
    seconds_min = workshop.effort.warm_up_seconds if peer.name == contest.KAFKA else 0.0
    messages_min = seconds_min * WARM_UP_MESSAGES_PER_SECOND
    workshop.say(f"Warming {peer.name} up: {seconds_min:.0f} s and {messages_min:,.0f} messages at least.")
    began, messages = time.monotonic(), 0
    for number in itertools.count():
        with contest.topic(peer, f"warm-{number}", 1) as topic:
            for workload, seconds in WARM_UP_SECONDS.items():
                workload = replace(workload, replicas=1 + len(peer.others), is_tls=is_tls)
                messages += _flow(workload, peer, topic, seconds, workshop).messages
        if time.monotonic() - began >= seconds_min and messages >= messages_min:
            return


def pairs(workload: Workload, peers: Sequence[Peer], workshop: Workshop) -> Iterator[RawRun]:
    """The runs of a workload's cell, in turns."""
    with _standing_topic(peers, workload, workshop) as standing:
        for number, peer in contest.in_turns(peers, workshop.effort.pairs):
            yield _run(workload, number, peer, standing, workshop)


def _run(workload: Workload, number: int, peer: Peer, standing: str, workshop: Workshop) -> RawRun:
    """One run of a cell, on the standing topic or on one of its own."""
    own: contextlib.AbstractContextManager[str] = (
        contextlib.nullcontext(standing) if standing else contest.topic(peer, "run", workload.partitions)
    )
    with own as topic:
        before = peer.cpu_seconds
        outcome = _flow(workload, peer, topic, run_seconds(workload, workshop.effort), workshop)
        cpu = peer.cpu_seconds - before
    return RawRun(
        cell=workload.name,
        peer=peer.name,
        round=number,
        messages=outcome.messages,
        bytes=outcome.bytes,
        seconds=round(outcome.seconds, 4),
        cpu_seconds=round(cpu, 4),
        memory_mib=peer.memory_mib,
        settings=workload.settings,
        figures=outcome.latency,
    )


def _flow(workload: Workload, peer: Peer, topic: str, seconds: float, workshop: Workshop) -> Outcome:
    """Let the generator do the workload on a topic, for so many seconds or, for a fetch, over all that is there."""
    where = peer.where(is_tls=workload.is_tls) | {"topic": topic}
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
    }
    where = {"bootstrap": peer.bootstrap, "topic": STANDING}
    generator.run(workshop.generator, "produce", **where, **options, size=MESSAGE_SIZE, batch=MAX_BATCH)


def run_seconds(workload: Workload, effort: Effort) -> float:
    """How long one run lasts; a fetch takes what it takes, about as long."""
    return max(effort.seconds, LATENCY_SECONDS_MIN) if workload.kind == "latency" else effort.seconds
