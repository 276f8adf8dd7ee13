"""Three idle brokers with 1,000 partitions beside three that lead one each: how often they wake, and the CPU that takes.

In either cluster every broker fetches from the two others, and both idle at the same time, so that whatever else the machine
does meets both alike.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from bench import contest
from bench.leaders import Leaders
from bench.machine import running_seconds, wake_ups
from bench.peers import Peer
from bench.runs import HEADRACE, RawRun, Workshop

IDLE = "idle, 1,000 partitions, 3 replicas"
PARTITIONS = 1_000
TOPIC = "idle"
SETTLE_SECONDS = 15.0
"""Until what came with the topic is over, the notes of leader epochs included."""
SECONDS = 15.0

name = "idle"
title = "Idle"
note = (
    f"three brokers, every partition on all of them, for {SECONDS:.0f} s without a client; wake-ups are the voluntary context "
    "switches of all threads of the busiest broker; CPU is that of the three processes together, and is set beside that of "
    "three others which lead one partition each and idle at the same time"
)
cells = (IDLE,)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take."""
    rounds = workshop.effort.rounds
    return rounds, 12 + SETTLE_SECONDS + rounds * SECONDS


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the cell: all rounds with the same brokers."""
    with (
        contest.zookeeper(workshop.data / "zookeeper") as ensemble,
        contest.cluster(HEADRACE, None, workshop.data / "many", ensemble, 3) as many,
        contest.cluster(HEADRACE, None, workshop.data / "few", ensemble, 3) as few,
    ):
        for peer, partitions in ((many, PARTITIONS), (few, len(few.processes))):
            peer.create_topic(TOPIC, partitions)
            with contextlib.closing(Leaders(TOPIC, partitions, peer.addresses)) as leaders:
                leaders.until_led()
        time.sleep(SETTLE_SECONDS)
        for number in range(workshop.effort.rounds):
            yield _measure(number, many, few)


def _measure(number: int, many: Peer, few: Peer) -> RawRun:
    began = time.monotonic()
    woken = [wake_ups(process) for process in many.processes]
    before, before_few = _cpu_seconds(many), _cpu_seconds(few)
    time.sleep(SECONDS)
    cpu, cpu_few = _cpu_seconds(many) - before, _cpu_seconds(few) - before_few
    seconds = time.monotonic() - began
    each = [wake_ups(process) - start for process, start in zip(many.processes, woken, strict=True)]
    return RawRun(
        cell=IDLE,
        peer=HEADRACE,
        round=number,
        messages=0,
        bytes=0,
        seconds=round(seconds, 3),
        cpu_seconds=round(cpu, 4),
        memory_mib=many.memory_mib,
        settings={"partitions": PARTITIONS, "replicas": 3},
        figures={"wake_ups_per_second": round(max(each) / seconds, 2), "cpu_ratio": round(cpu / cpu_few, 3)},
    )


def _cpu_seconds(peer: Peer) -> float:
    return sum(map(running_seconds, peer.processes))
