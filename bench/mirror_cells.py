"""The mirror: a filled source cluster, and a target whose broker copies it.

The source's broker is held still (SIGSTOP) until the target is ready, so that the whole copy falls between two readings
of the target broker's CPU, which is all the CPU that mirroring costs the target: its copiers run inside it. MirrorMaker 2
copies between two such brokers too; it is held still while the source is filled, and its own CPU alone is counted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from bench.apache_kafka import NoKafkaError, find_mirror_maker_jars
from bench.contest import KAFKA
from bench.generator import Outcome, run
from bench.machine import cpu_seconds
from bench.mirror_maker import mirror_maker
from bench.peers import Peer, headrace
from bench.runs import MESSAGE_SIZE, RawRun, Workshop
from headrace.broker.client.bootstrap import Bootstrap
from headrace.load.log_client import LogClient

BATCH_50 = "mirror, batches of 50"
BATCH_MAX = "mirror, 1 MB batches"

SIZES = {BATCH_50: (50, 2_000_000), BATCH_MAX: (0, 3_000_000)}
"""Messages a batch (0: up to 1 MB), messages in all."""
PARTITIONS = 4
TOPIC = "bench"
WARM_UP_TOPIC = "warm"
SECONDS_MAX = 180
POLL_SECONDS = 0.05
SOURCE_SETTINGS = {"zookeeper.session.timeout.ms": "60000"}
"""A broker that is held still must not lose its session."""

name = "mirror"
title = "Mirror"
note = (
    f"{PARTITIONS} partitions, no compression; CPU of the target's broker process, the copy included. The rival is MirrorMaker 2 "
    "of Apache Kafka, tuned for large fetches and batches, which has copied as much before it is measured; CPU of its own "
    "process alone, without that of the broker that it writes to"
)
cells = (BATCH_50, BATCH_MAX)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take."""
    rounds = workshop.effort.rounds
    return rounds, rounds * (12.0 if workshop.kafka_jars is None else 75.0)


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells round by round, each with two clusters of its own."""
    own_jars = None
    if workshop.kafka_jars is not None:
        try:
            own_jars = find_mirror_maker_jars()
        except NoKafkaError as error:
            workshop.say(f"{error} The mirror is measured alone.")
    for number in range(workshop.effort.rounds):
        for cell in wanted:
            yield _measure(cell, number, workshop)
            if own_jars is not None:
                yield _measure_rival(cell, number, workshop, own_jars)


def _measure(cell: str, number: int, workshop: Workshop) -> RawRun:
    with workshop.folder("mirror") as data, headrace(data / "source", SOURCE_SETTINGS) as source:
        source.create_topic(TOPIC, PARTITIONS)
        batch, filled = _fill(cell, source, TOPIC, workshop)
        with waiting_target(source, data / "target", source.bootstrap, TOPIC) as target:
            before = cpu_seconds(target.process)
            source.process.resume()
            seconds = seconds_until_copied(target, filled)
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


def _measure_rival(cell: str, number: int, workshop: Workshop, own_jars: Path) -> RawRun:
    assert workshop.kafka_jars is not None
    with (
        workshop.folder("mirror-maker") as data,
        headrace(data / "source") as source,
        headrace(data / "target") as target,
    ):
        for topic in (WARM_UP_TOPIC, TOPIC):
            source.create_topic(topic, PARTITIONS)
        warm_up = _fill(cell, source, WARM_UP_TOPIC, workshop)[1]
        with mirror_maker(workshop.kafka_jars, own_jars, data, source, target, PARTITIONS) as process:
            seconds_until_copied(target, warm_up, WARM_UP_TOPIC)
            process.suspend()
            batch, filled = _fill(cell, source, TOPIC, workshop)
            before = cpu_seconds(process)
            process.resume()
            seconds = seconds_until_copied(target, filled)
            return RawRun(
                cell=cell,
                peer=KAFKA,
                round=number,
                messages=filled.messages,
                bytes=filled.bytes,
                seconds=seconds,
                cpu_seconds=round(cpu_seconds(process) - before, 4),
                memory_mib=process.memory_info().rss // 2**20,
                settings={"batch": batch, "partitions": PARTITIONS},
            )


def _fill(cell: str, source: Peer, topic: str, workshop: Workshop) -> tuple[int, Outcome]:
    """Fill a topic of the source; gives the batch and what went in."""
    batch, messages = SIZES[cell]
    options = {"partitions": PARTITIONS, "messages": messages, "size": MESSAGE_SIZE, "batch": batch}
    where = {"bootstrap": source.bootstrap, "topic": topic}
    return batch, run(workshop.generator, "produce", **where, **options)


@contextlib.contextmanager
def waiting_target(
    source: Peer, data: Path, bootstrap: str, topic: str, more: Mapping[str, str] | None = None
) -> Iterator[Peer]:
    """A target that is ready and waits for the answers of a source, reached at `bootstrap`, that is held still.

    `more` are settings of the target's broker.
    """
    settings = {
        "mirror.sources": "source",
        "mirror.source.bootstrap.servers": bootstrap,
        "mirror.source.topics": topic,
        **(more or {}),
    }
    source.process.suspend()
    try:
        with headrace(data, settings) as target:
            yield target
    finally:
        source.process.resume()


def seconds_until_copied(target: Peer, filled: Outcome, topic: str = TOPIC) -> float:
    """Wait until the target's consumers can read all of a topic's copy; the seconds that took."""
    began = time.monotonic()
    client = LogClient(Bootstrap(target.bootstrap), client_id="headrace-bench")
    try:
        while (copied := _copied(client, topic)) < filled.messages:
            if time.monotonic() - began > SECONDS_MAX:
                raise click.ClickException(
                    f"only {copied} of {filled.messages} messages were copied in {SECONDS_MAX} s"
                )
            time.sleep(POLL_SECONDS)
        return round(time.monotonic() - began, 4)
    finally:
        client.close()


def _copied(client: LogClient, topic: str) -> int:
    """How many messages of the topic the target's consumers can read."""
    partitions = client.partitions(lambda name: name == f"source.{topic}")
    return sum(offsets.end for offsets in client.reachable_log_offsets(partitions).values())
