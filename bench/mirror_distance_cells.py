"""The mirror over a long road, and with little to do: how fast it catches up, what idle partitions cost, how soon copies come.

The road is a proxy that holds up what goes either way (`bench.delaying_proxy`), in a process of its own; the source has a
listener behind it. The source's broker is held still until the target is ready. A rate is that between the first tenth and the
end, so that it tells of copying, not of the round trips that topics and leaders take before.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.delaying_proxy import road
from bench.generator import run
from bench.machine import cpu_seconds
from bench.mirror_cells import SOURCE_SETTINGS, waiting_target
from bench.peers import Peer, headrace
from bench.runs import MESSAGE_SIZE, RawRun, Workshop
from headrace.broker.client.bootstrap import Bootstrap
from headrace.load.log_client import LogClient

NEAR = "mirror, 50 ms away"
FAR = "mirror, 200 ms away"
IDLE = "mirror, 4,000 idle partitions"
DELAYS_MS = {NEAR: 50, FAR: 200}
PARTITIONS, MESSAGES, BATCH = 8, 4_000_000, 50
TOPIC = "bench"
SECONDS_MAX = 180
POLL_SECONDS = 0.05
IDLE_TOPICS, IDLE_PARTITIONS = 40, 100
SETTLE_SECONDS = 15.0
SECONDS = 20.0
PROBES, PROBE_SECONDS = 200, 0.05

name = "mirror-distance"
title = "Mirror over a distance"
note = (
    f"{PARTITIONS} partitions, batches of {BATCH}, defaults; CPU of the target's broker process. The idle cell has "
    f"{IDLE_TOPICS * IDLE_PARTITIONS:,} partitions at no distance, and nothing happens for {SECONDS:.0f} s; then {PROBES} "
    "messages come one by one, and p50 and p99 are from the source's acknowledgement to a consumer of the copy"
)
cells = (NEAR, FAR, IDLE)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take."""
    rounds = workshop.effort.rounds
    return rounds, rounds * (90.0 if cell == IDLE else 40.0)


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells round by round, each with two clusters of its own."""
    for number in range(workshop.effort.rounds):
        for cell in wanted:
            with workshop.folder("distance") as data:
                if cell == IDLE:
                    yield _measure_idle(number, data)
                else:
                    yield _measure(cell, number, workshop, data)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _measure(cell: str, number: int, workshop: Workshop, data: Path) -> RawRun:
    own, far, near = (f"127.0.0.1:{free_port()}" for _ in range(3))
    listeners = {
        "listeners": f"PLAINTEXT://{own},FAR://{far}",
        "advertised.listeners": f"PLAINTEXT://{own},FAR://{near}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,FAR:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    with headrace(data / "source", SOURCE_SETTINGS | listeners, own) as source:
        source.create_topic(TOPIC, PARTITIONS)
        options = {"partitions": PARTITIONS, "messages": MESSAGES, "size": MESSAGE_SIZE, "batch": BATCH}
        where = {"bootstrap": source.bootstrap, "topic": TOPIC}
        filled = run(workshop.generator, "produce", **where, **options)
        with (
            road(near, far, DELAYS_MS[cell]),
            waiting_target(source, data / "target", near, TOPIC) as target,
        ):
            before = cpu_seconds(target.process)
            source.process.resume()
            seconds, messages = _steady(target, filled.messages)
            return RawRun(
                cell=cell,
                peer=target.name,
                round=number,
                messages=messages,
                bytes=messages * filled.bytes // filled.messages,
                seconds=seconds,
                cpu_seconds=round(cpu_seconds(target.process) - before, 4),
                memory_mib=target.memory_mib,
                settings={"batch": BATCH, "partitions": PARTITIONS, "round_trip_ms": DELAYS_MS[cell]},
            )


def _steady(target: Peer, messages: int) -> tuple[float, int]:
    """Seconds and messages from when a tenth was copied until all were."""
    began: tuple[float, int] | None = None
    client = LogClient(Bootstrap(target.bootstrap), client_id="headrace-bench")
    deadline = time.monotonic() + SECONDS_MAX
    try:
        while True:
            partitions = client.partitions(lambda topic: topic == f"source.{TOPIC}")
            copied = sum(offsets.end for offsets in client.reachable_log_offsets(partitions).values())
            now = time.monotonic()
            if began is None and copied >= messages / 10:
                began = now, copied
            if copied >= messages:
                assert began is not None, "a tenth comes before all"
                return round(max(now - began[0], POLL_SECONDS), 4), copied - began[1]
            if now > deadline:
                raise TimeoutError(f"only {copied} of {messages} messages were copied in {SECONDS_MAX} s")
            time.sleep(POLL_SECONDS)
    finally:
        client.close()


def _measure_idle(number: int, data: Path) -> RawRun:
    settings = {"mirror.sources": "source", "mirror.source.topics": "idle-.*"}
    with headrace(data / "source") as source:
        for topic in range(IDLE_TOPICS):
            source.create_topic(f"idle-{topic}", IDLE_PARTITIONS)
        began = time.monotonic()
        settings["mirror.source.bootstrap.servers"] = source.bootstrap
        with headrace(data / "target", settings) as target:
            first = _until_copied(source, target)
            created = time.monotonic() - began
            time.sleep(SETTLE_SECONDS)
            before, began = cpu_seconds(target.process), time.monotonic()
            time.sleep(SECONDS)
            cpu, seconds = cpu_seconds(target.process) - before, time.monotonic() - began
            latencies = _latencies(source, target, first)
            return RawRun(
                cell=IDLE,
                peer=target.name,
                round=number,
                messages=PROBES,
                bytes=PROBES,
                seconds=round(seconds, 3),
                cpu_seconds=round(cpu, 4),
                memory_mib=target.memory_mib,
                settings={"partitions": IDLE_TOPICS * IDLE_PARTITIONS},
                figures={
                    "p50_ms": round(statistics.median(latencies), 2),
                    "p99_ms": round(statistics.quantiles(latencies, n=100)[98], 2),
                    "cpu_percent": round(100 * cpu / seconds, 2),
                    "seconds_to_copy": round(created, 1),
                },
            )


def _until_copied(source: Peer, target: Peer) -> int:
    """Publish one message to each partition of the probed topic, and wait until all copies have theirs; how many there are."""
    _publish(source, range(IDLE_PARTITIONS))
    client = LogClient(Bootstrap(target.bootstrap), client_id="headrace-bench")
    deadline = time.monotonic() + SECONDS_MAX
    try:
        while time.monotonic() < deadline:
            partitions = client.partitions(lambda topic: topic.startswith("source.idle-"))
            probed = [place for place in partitions if place.topic == "source.idle-0"]
            if len(partitions) == IDLE_TOPICS * IDLE_PARTITIONS and (
                sum(offsets.end for offsets in client.reachable_log_offsets(probed).values())
                == IDLE_PARTITIONS
            ):
                return IDLE_PARTITIONS
            time.sleep(POLL_SECONDS)
    finally:
        client.close()
    raise TimeoutError(f"the partitions were not all copied in {SECONDS_MAX} s")


def _publish(source: Peer, partitions: range) -> None:
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 0, "log_level": 2})
    for partition in partitions:
        producer.produce("idle-0", b"x", partition=partition)
    producer.flush(30)


def _latencies(source: Peer, target: Peer, first: int) -> list[float]:
    """Milliseconds from the source's acknowledgement of a message to when a consumer of the copy has it."""
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 0, "log_level": 2})
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition("source.idle-0", partition, 1) for partition in range(first)])
    consumer.poll(2)
    found = []
    for probe in range(PROBES):
        acknowledged: list[float] = []
        producer.produce(
            "idle-0",
            b"x",
            partition=probe % first,
            on_delivery=lambda *_, at=acknowledged: at.append(time.monotonic()),
        )
        while not acknowledged:
            producer.poll(0.001)
        while (message := consumer.poll(5)) is None or message.error() is not None:
            if message is None:
                raise TimeoutError("a message was not copied in 5 s")
        found.append(max(0.0, time.monotonic() - acknowledged[0]) * 1000)
        time.sleep(PROBE_SECONDS)
    consumer.close()
    return found
