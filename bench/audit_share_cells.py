"""The audit's share of a pipeline's CPU: counters of both clusters and the auditor, beside all that works for the same events.

What producers do for their accounts is in the cell of the library that publishes.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from bench.load_cells import registry
from bench.machine import ProcessTree
from bench.peers import STOP_SECONDS_MAX, Peer, headrace
from bench.runs import HEADRACE, RawRun, Workshop

SHARE = "audit of a pipeline, 6,000 events/s"
RATE = 6_000
PARTITIONS = 4
TOPICS = {"pageviews": PARTITIONS, "pageviews.rejected": 1, "headrace.monitoring": 1, "headrace.counts": 1}
DATACENTER = "dc-east"
WARM_UP_SECONDS, SECONDS = 30.0, 40.0
TABLE_SECONDS_MAX = 120.0
AUDIT = ("live-counter", "offline-counter", "auditor")
LOG = Path(__file__).parents[1] / "examples" / "access.log"

name = "audit-share"
title = "Audit of a pipeline"
note = (
    f"one live broker and an offline one that mirrors it, {PARTITIONS} partitions, a producer of {RATE:,} events/s, a load, a "
    f"counter of each cluster and the auditor, with defaults; CPU of counters and auditor beside that of all, the "
    f"ZooKeepers and the producer included, for {SECONDS:.0f} s once all go on steadily"
)
cells = (SHARE,)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take."""
    rounds = workshop.effort.rounds
    return rounds, 60 + rounds * SECONDS


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the cell: all rounds with the same pipeline."""
    with contextlib.ExitStack() as stack:
        data = stack.enter_context(workshop.folder("pipeline"))
        live = stack.enter_context(headrace(data / "live"))
        for topic, partitions in TOPICS.items():
            live.create_topic(topic, partitions)
        mirror = {"mirror.sources": DATACENTER, f"mirror.{DATACENTER}.bootstrap.servers": live.bootstrap}
        offline = stack.enter_context(headrace(data / "offline", mirror))
        offline.create_topic("headrace.counts", 1)
        url = stack.enter_context(registry(live, data))
        pipeline = Pipeline(data, stack)
        pipeline.start(live, offline, url)
        time.sleep(WARM_UP_SECONDS)
        for number in range(workshop.effort.rounds):
            yield pipeline.measure(number)


class Pipeline:
    """The processes beside brokers and registry; `audit` are those of the audit."""

    def __init__(self, data: Path, stack: contextlib.ExitStack) -> None:
        self._data = data
        self._stack = stack
        self._audit: list[ProcessTree] = []
        self._all: list[ProcessTree] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, live: Peer, offline: Peer, url: str) -> None:
        """Return once events go all the way."""
        self._all += [ProcessTree(_dev_of(peer)) for peer in (live, offline)]
        warehouse = self._data / "warehouse"
        at = ("--bootstrap", live.bootstrap)
        seconds = WARM_UP_SECONDS + TABLE_SECONDS_MAX + 20 * SECONDS
        replay = ("replay", "--log", str(LOG), "--rate", str(RATE), "--events", str(int(RATE * seconds)))
        self._run("replay", *replay, *at, "--registry", url, "--datacenter", DATACENTER)
        topics = rf"{DATACENTER}[.]pageviews"
        load = ("load", "--bootstrap", offline.bootstrap, "--registry", url, "--topics", topics)
        self._run("load", *load, "--warehouse", str(warehouse))
        counted = ("audit", "count", *at, "--datacenter", DATACENTER, "--tier", "live")
        self._run("live-counter", *counted, "--topics", "pageviews,pageviews.rejected")
        copies = ",".join(f"{DATACENTER}.{topic}" for topic in ("pageviews", "pageviews.rejected"))
        counted = (
            "audit",
            "count",
            "--bootstrap",
            offline.bootstrap,
            "--datacenter",
            "offline",
            "--tier",
            "offline",
        )
        self._run("offline-counter", *counted, "--topics", copies)
        _wait_for_rows(warehouse)
        watch = ("audit", "watch", "--bootstrap", offline.bootstrap, "--warehouse", str(warehouse))
        self._run("auditor", *watch, "--state", str(self._data / "auditor"))

    def _run(self, name: str, *arguments: str) -> None:
        with (self._data / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "headrace.cli", *arguments], stdout=log, stderr=log
            )
        self._stack.callback(_end, process)
        self._processes[name] = process
        tree = ProcessTree(process.pid)
        self._all.append(tree)
        if name in AUDIT:
            self._audit.append(tree)

    def measure(self, number: int) -> RawRun:
        """One round."""
        before, before_all = _cpu_seconds(self._audit), sum(_cpu_seconds(self._all))
        time.sleep(SECONDS)
        self._check()
        each = [after - earlier for after, earlier in zip(_cpu_seconds(self._audit), before, strict=True)]
        spent, of_all = sum(each), sum(_cpu_seconds(self._all)) - before_all
        return RawRun(
            cell=SHARE,
            peer=HEADRACE,
            round=number,
            messages=int(RATE * SECONDS),
            bytes=0,
            seconds=SECONDS,
            cpu_seconds=round(spent, 4),
            memory_mib=sum(tree.memory_mib_max for tree in self._audit),
            settings={"partitions": PARTITIONS},
            figures={
                "cpu_percent": round(100 * spent / of_all, 3),
                **{name: round(100 * one / of_all, 3) for name, one in zip(AUDIT, each, strict=True)},
            },
        )

    def _check(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise click.ClickException(
                    f"{name} ended with {process.returncode}; see {self._data / f'{name}.log'}."
                )


def _dev_of(peer: Peer) -> int:
    """What the broker and its ZooKeeper were started by."""
    parent = peer.process.parent()
    assert parent is not None, "it runs for as long as its broker does"
    return parent.pid


def _cpu_seconds(trees: Sequence[ProcessTree]) -> list[float]:
    for tree in trees:
        tree.look()
    return [tree.cpu_seconds for tree in trees]


def _wait_for_rows(warehouse: Path) -> None:
    """Return once the load has written a file."""
    deadline = time.monotonic() + TABLE_SECONDS_MAX
    while not any(warehouse.glob("**/*.parquet")):
        if time.monotonic() > deadline:
            raise click.ClickException(f"no event was loaded in {TABLE_SECONDS_MAX:.0f} s; see load.log.")
        time.sleep(0.5)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(STOP_SECONDS_MAX)
