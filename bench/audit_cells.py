"""The audit's counter on a topic of any client, and its ledger in the long run.

The counter: a full log, counted once by `headrace audit count` from its batch headers.

Seconds, CPU and memory are those of the counter's process, from its start to its end; runs that find nothing new say what of
seconds and CPU is its start: their median is taken off. The ledger: see `audit_scale`; its seconds are CPU seconds a round.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from bench.generator import run
from bench.peers import Peer, headrace
from bench.runs import HEADRACE, RawRun, Workshop

HEADERS_50 = "audit by batch headers, batch of 50"
SCALE = "a round of the ledger, 1,000 topics, 10^6 producers a day"
SCALE_SECONDS_MAX = 3_600
MESSAGES = 20_000_000
STARTS = 3
PARTITIONS = 4
BATCH = 50
TOPIC = "bench.clicks"

name = "audit"
title = "Audit"
note = (
    f"one counter, {PARTITIONS} partitions, batches of {BATCH}, no compression; CPU and memory are "
    "the counter's, its start taken off the CPU; the ledger's seconds are the CPU that a round of ten seconds takes when as many "
    "producers, of 60 s each in one of five datacenters, end as begin"
)
cells = (HEADERS_50, SCALE)


class Used(NamedTuple):
    """What a process took."""

    seconds: float
    cpu_seconds: float
    memory_mib: int


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take."""
    rounds = workshop.effort.rounds
    return (rounds, 420.0) if cell == SCALE else (rounds, rounds * 40.0)


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells round by round, each with a cluster of its own."""
    if SCALE in wanted:
        yield from _scale(workshop.effort.rounds)
    for number in range(workshop.effort.rounds):
        for cell in wanted:
            if cell == SCALE:
                continue
            with workshop.folder("audit") as data, headrace(data / "broker") as peer:
                yield _measure(cell, number, peer, workshop.generator, data)


def _scale(rounds: int) -> Iterator[RawRun]:
    """One process; each run is a part of its measured rounds."""
    command = [sys.executable, "-m", "bench.audit_scale"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SCALE_SECONDS_MAX, check=False)
    if done.returncode:
        raise click.ClickException(f"bench.audit_scale ended with {done.returncode}: {done.stderr[-500:]}")
    found = json.loads(done.stdout)
    for number in range(rounds):
        took = statistics.median(found["seconds"][number::rounds])
        yield RawRun(
            cell=SCALE,
            peer=HEADRACE,
            round=number,
            messages=0,
            bytes=0,
            seconds=round(took, 4),
            cpu_seconds=round(took, 4),
            memory_mib=found["memory_mib"],
            settings={"open producers": found["open_streams"], "producers": found["lives"]},
        )


def _measure(cell: str, number: int, peer: Peer, generator: Path, data: Path) -> RawRun:
    peer.create_topic(TOPIC, PARTITIONS)
    filled = run(
        generator,
        "produce",
        bootstrap=peer.bootstrap,
        topic=TOPIC,
        partitions=PARTITIONS,
        messages=MESSAGES,
        batch=BATCH,
    )
    counted = _count(peer, data)
    starts = [_count(peer, data) for _ in range(STARTS)]
    return RawRun(
        cell=cell,
        peer=peer.name,
        round=number,
        messages=filled.messages,
        bytes=filled.bytes,
        seconds=round(counted.seconds - statistics.median(start.seconds for start in starts), 4),
        cpu_seconds=round(counted.cpu_seconds - statistics.median(start.cpu_seconds for start in starts), 4),
        memory_mib=counted.memory_mib,
        settings={"partitions": PARTITIONS},
    )


def _count(peer: Peer, data: Path) -> Used:
    """Let a counter count what is new."""
    command = [sys.executable, "-m", "headrace.cli", "audit", "count", "--once", "--tier", "live"]
    command += ["--bootstrap", peer.bootstrap, "--datacenter", "bench", "--modes", f"{TOPIC}=headers"]
    begun = time.monotonic()
    with (data / "count.log").open("wb") as log:
        counter = subprocess.Popen(command, stderr=log)
        _, status, usage = os.wait4(counter.pid, 0)
    counter.returncode = os.waitstatus_to_exitcode(status)
    if counter.returncode:
        raise click.ClickException(
            f"headrace audit count ended with {counter.returncode}; see {data / 'count.log'}."
        )
    return Used(time.monotonic() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024)
