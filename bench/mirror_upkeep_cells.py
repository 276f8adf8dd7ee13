"""What the mirror does beside copying: it finds new topics, and compares its copies with their sources all the time.

New topics: from the moment when the source is asked to make them until the copy of each has its message. Comparison: a target
copies a filled topic and compares nothing; started again it compares the whole copy, faster than usual. What that takes of what
the copy took, times the share of the copied bytes that is compared by default, is what comparing adds to copying.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.generator import run
from bench.machine import cpu_seconds
from bench.mirror_cells import PARTITIONS, SOURCE_SETTINGS, seconds_until_copied, waiting_target
from bench.mirror_distance_cells import free_port
from bench.peers import Peer, headrace
from bench.runs import MESSAGE_SIZE, RawRun, Workshop
from headrace.broker.client.bootstrap import Bootstrap
from headrace.load.log_client import LogClient
from headrace.mirror.equality.checks import COPIED_SHARE

NEW_TOPICS = "mirror, 200 new topics"
COMPARISON = "mirror, copies compared all the time"
TOPICS = 200
TOPIC, MESSAGES, BATCH = "bench", 2_000_000, 50
COMPARED_PER_SECOND = 100_000_000
SECONDS_MAX, POLL_SECONDS, SETTLE_SECONDS = 120, 0.1, 10.0

name = "mirror-upkeep"
title = "Mirror, beside copying"
note = (
    f"{TOPICS} topics of one partition that are made by one request, with a message each, by a target that mirrors one topic "
    f"already; and {PARTITIONS} partitions in batches of {BATCH} that are compared once, whole: the CPU that takes the target's "
    f"broker process as a part of what copying them took, by the hundredth of the copied bytes that is compared by default"
)
cells = (NEW_TOPICS, COMPARISON)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take."""
    rounds = workshop.effort.rounds
    return rounds, rounds * 40.0


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells round by round, each with two clusters of its own."""
    for number in range(workshop.effort.rounds):
        for cell in wanted:
            with workshop.folder("upkeep") as data:
                yield _new_topics(number, data) if cell == NEW_TOPICS else _compare(number, data, workshop)


def _new_topics(number: int, data: Path) -> RawRun:
    settings = {"mirror.sources": "source", "mirror.source.topics": "new-.*"}
    with headrace(data / "source") as source:
        settings["mirror.source.bootstrap.servers"] = source.bootstrap
        _make(source, ["new-first"])
        with headrace(data / "target", settings) as target:
            _until_copied(target, 1)
            time.sleep(SETTLE_SECONDS)
            before, began = cpu_seconds(target.process), time.monotonic()
            _make(source, [f"new-{topic}" for topic in range(TOPICS)])
            _until_copied(target, TOPICS + 1)
            return RawRun(
                cell=NEW_TOPICS,
                peer=target.name,
                round=number,
                messages=0,
                bytes=0,
                seconds=round(time.monotonic() - began, 3),
                cpu_seconds=round(cpu_seconds(target.process) - before, 4),
                memory_mib=target.memory_mib,
                settings={"topics": TOPICS},
            )


def _make(source: Peer, topics: list[str]) -> None:
    """Make topics by one request, and publish a message to each."""
    client = AdminClient({"bootstrap.servers": source.bootstrap})
    for made in client.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        made.result()
    producer = Producer({"bootstrap.servers": source.bootstrap, "log_level": 2})
    for topic in topics:
        producer.produce(topic, b"x", partition=0)
    producer.flush(30)


def _until_copied(target: Peer, count: int) -> None:
    client = LogClient(Bootstrap(target.bootstrap), client_id="headrace-bench")
    deadline = time.monotonic() + SECONDS_MAX
    try:
        while time.monotonic() < deadline:
            copies = client.partitions(lambda topic: topic.startswith("source.new-"))
            if sum(offsets.end for offsets in client.reachable_log_offsets(copies).values()) == count:
                return
            time.sleep(POLL_SECONDS)
    finally:
        client.close()
    raise TimeoutError(f"{count} topics were not all copied in {SECONDS_MAX} s")


def _compare(number: int, data: Path, workshop: Workshop) -> RawRun:
    pace = "mirror.verify.max.bytes.per.second"
    with headrace(data / "source", SOURCE_SETTINGS) as source:
        source.create_topic(TOPIC, PARTITIONS)
        options = {"partitions": PARTITIONS, "messages": MESSAGES, "size": MESSAGE_SIZE, "batch": BATCH}
        filled = run(workshop.generator, "produce", bootstrap=source.bootstrap, topic=TOPIC, **options)
        with waiting_target(source, data / "target", source.bootstrap, TOPIC, {pace: "0"}) as target:
            before = cpu_seconds(target.process)
            source.process.resume()
            seconds_until_copied(target, filled)
            copying = cpu_seconds(target.process) - before
        metrics = f"127.0.0.1:{free_port()}"
        faster = {pace: str(COMPARED_PER_SECOND), "headrace.metrics.listener": metrics}
        with waiting_target(source, data / "target", source.bootstrap, TOPIC, faster) as target:
            before, began = cpu_seconds(target.process), time.monotonic()
            source.process.resume()
            _until_compared(metrics, filled.bytes)
            comparing = cpu_seconds(target.process) - before
            return RawRun(
                cell=COMPARISON,
                peer=target.name,
                round=number,
                messages=filled.messages,
                bytes=filled.bytes,
                seconds=round(time.monotonic() - began, 3),
                cpu_seconds=round(comparing, 4),
                memory_mib=target.memory_mib,
                settings={"batch": BATCH, "partitions": PARTITIONS},
                figures={"cpu_percent": round(100 * COPIED_SHARE * comparing / copying, 3)},
            )


def _until_compared(metrics: str, size: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while _compared(metrics) < size:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{size} bytes were not compared in {SECONDS_MAX} s")
        time.sleep(POLL_SECONDS)


def _compared(metrics: str) -> float:
    """Bytes of the source that were compared so far."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("headrace_mirror_verified_bytes_total")
    )
