"""The load: flat Avro events in a log, read by `headrace load --once` into committed Parquet.

Seconds are those of the load's rounds, Spark's start left out; CPU and memory are those of driver, workers and JVM
together, from their start.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError

import click

from bench.generator import Outcome, run
from bench.machine import ProcessTree
from bench.peers import STOP_SECONDS_MAX, Peer, headrace
from bench.runs import RawRun, Workshop

FLAT = "load, flat events of 200 B"
MESSAGES = 8_000_000
PARTITIONS = 4
TASKS = 2
TOPIC = "bench.events"
SCHEMA = Path(__file__).with_name("flat_event.avsc")

name = "load"
title = "Load"
note = (
    f"{PARTITIONS} partitions, 1 MB batches, no compression, {TASKS} Spark tasks; from the first round to the last, "
    "the start of Spark left out"
)
cells = (FLAT,)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take."""
    rounds = workshop.effort.rounds
    return rounds, rounds * 50.0


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells round by round, each with a cluster, a registry and a warehouse of its own."""
    for number in range(workshop.effort.rounds):
        for cell in wanted:
            yield _measure(cell, number, workshop)


def _measure(cell: str, number: int, workshop: Workshop) -> RawRun:
    with (
        workshop.folder("load") as data,
        headrace(data / "broker") as peer,
        registry(peer, data) as url,
    ):
        peer.create_topic(TOPIC, PARTITIONS)
        where = {"bootstrap": peer.bootstrap, "topic": TOPIC}
        options = {"partitions": PARTITIONS, "messages": MESSAGES, "batch": 0}
        filled = run(workshop.generator, "produce", **where, **options, schema=_register(url))
        return _load(cell, number, peer, url, filled, data)


def _load(cell: str, number: int, peer: Peer, url: str, filled: Outcome, data: Path) -> RawRun:
    command = [sys.executable, "-m", "headrace.cli", "load", "--once", "--json", "--tasks", str(TASKS)]
    command += ["--bootstrap", peer.bootstrap, "--registry", url, "--topics", TOPIC]
    command += ["--warehouse", str(data / "warehouse")]
    with (data / "load.log").open("wb") as log:
        load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    tree = ProcessTree(load.pid)
    output = tree.watch(load)
    if load.returncode:
        raise click.ClickException(f"headrace load ended with {load.returncode}; see {data / 'load.log'}.")
    totals = json.loads(output)
    if totals["rows"] != filled.messages:
        raise click.ClickException(f"{totals['rows']} rows were loaded of {filled.messages} events.")
    return RawRun(
        cell=cell,
        peer=peer.name,
        round=number,
        messages=filled.messages,
        bytes=filled.bytes,
        seconds=totals["seconds"],
        cpu_seconds=round(tree.cpu_seconds, 4),
        memory_mib=tree.memory_mib_max,
        settings={"partitions": PARTITIONS, "tasks": TASKS, "commits": totals["commits"]},
    )


@contextlib.contextmanager
def registry(peer: Peer, data: Path) -> Iterator[str]:
    """A schema registry on the peer; gives its URL."""
    command = [sys.executable, "-m", "headrace.cli", "registry", "--bootstrap", peer.bootstrap]
    command += ["--listen", "127.0.0.1:0"]
    with (data / "registry.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        if not ready or ready[0] != "ready":
            raise click.ClickException(f"headrace registry did not start; see {data / 'registry.log'}.")
        yield f"http://{ready[1]}"
    finally:
        process.terminate()
        process.wait(STOP_SECONDS_MAX)


def _register(url: str) -> int:
    """Register the events' schema and return its id."""
    schema = SCHEMA.read_text()
    request = urllib.request.Request(
        f"{url}/subjects/{TOPIC}-value/versions",
        data=json.dumps({"schema": schema}).encode(),
        headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(json.load(answer)["id"])
    except URLError as error:
        raise click.ClickException(f"the registry refused the schema of the benchmark: {error}") from error
