"""What a client feels while a quota holds another one back: latency at 1,000/s beside a producer that would send far more.

The throttled producer shares the broker, a topic of its own aside; its quota and what it offers are the same for both peers.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final

import click
from confluent_kafka import Producer

from bench import contest, flows, generator
from bench.peers import Peer
from bench.runs import MESSAGE_SIZE, RawRun, Workshop
from bench.workloads import LATENCY_1K
from headrace.broker.client.blocking import BlockingLink
from headrace.broker.wire.api import k49_alter_client_quotas

BYSTANDER = "latency at 1,000/s beside a throttled producer"
CLIENT_ID = "throttled"
QUOTA_BYTES_PER_SECOND: Final = 1_000_000
THROTTLED_SIZE: Final = 10_000
QUEUED_MESSAGES_MAX: Final = 1_000
SETTLE_SECONDS = 3.0
"""Until what a quota allows at once is used up, and the producer waits."""
ALTER_VERSION = 1

name = "quotas"
title = "Quotas"
note = (
    f"one broker, one partition, acks=1; beside the client that is measured another one sends {THROTTLED_SIZE:,}-byte messages "
    f"to a topic of its own, as many as a quota of {QUOTA_BYTES_PER_SECOND:,} bytes a second lets it"
)
cells = (BYSTANDER,)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take, all brokers together."""
    peers = 1 if workshop.kafka_jars is None else 2
    runs = peers * workshop.effort.pairs
    return runs, runs * (SETTLE_SECONDS + flows.run_seconds(LATENCY_1K, workshop.effort))


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the cell, in turns against both warm brokers."""
    with (
        contest.zookeeper(workshop.data / "zookeeper") as ensemble,
        contest.both(workshop.kafka_jars, workshop.data, ensemble) as peers,
    ):
        for peer in peers:
            flows.warm_up(peer, workshop)
            _set_quota(peer)
        for number, peer in contest.in_turns(peers, workshop.effort.pairs):
            yield _run(number, peer, workshop)


def _set_quota(peer: Peer) -> None:
    entity = [{"entity_type": "client-id", "entity_name": CLIENT_ID}]
    ops = [{"key": "producer_byte_rate", "value": float(QUOTA_BYTES_PER_SECOND), "remove": False}]
    message = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    host, _, port = peer.bootstrap.rpartition(":")
    with BlockingLink((host, int(port)), "bench", contest.START_SECONDS_MAX) as link:
        (answer,) = link.ask(k49_alter_client_quotas.API, ALTER_VERSION, message)["entries"]
    if answer["error_code"]:
        raise click.ClickException(f"{peer.name} takes no quota: {answer['error_message']}.")


def _run(number: int, peer: Peer, workshop: Workshop) -> RawRun:
    seconds = flows.run_seconds(LATENCY_1K, workshop.effort)
    with contest.topic(peer, "busy", 1) as busy, contest.topic(peer, "run", 1) as topic:
        with _throttled(peer, busy) as told_ms:
            time.sleep(SETTLE_SECONDS)
            before = peer.cpu_seconds
            options = LATENCY_1K.settings | {
                "bootstrap": peer.bootstrap,
                "topic": topic,
                "size": MESSAGE_SIZE,
            }
            outcome = generator.run(workshop.generator, LATENCY_1K.kind, **options, seconds=seconds)
            cpu = peer.cpu_seconds - before
        if not max(told_ms, default=0):
            raise click.ClickException(f"{peer.name} throttles nobody.")
    return RawRun(
        cell=BYSTANDER,
        peer=peer.name,
        round=number,
        messages=outcome.messages,
        bytes=outcome.bytes,
        seconds=round(outcome.seconds, 4),
        cpu_seconds=round(cpu, 4),
        memory_mib=peer.memory_mib,
        settings=LATENCY_1K.settings | {"quota": QUOTA_BYTES_PER_SECOND},
        figures=outcome.latency,
    )


@contextlib.contextmanager
def _throttled(peer: Peer, topic: str) -> Iterator[list[float]]:
    """A producer that always has more to send; gives the throttle times that it is told, in milliseconds."""
    told_ms: list[float] = []
    settings = {
        "bootstrap.servers": peer.bootstrap,
        "client.id": CLIENT_ID,
        "acks": 1,
        "linger.ms": 0,
        "queue.buffering.max.messages": QUEUED_MESSAGES_MAX,
        "throttle_cb": lambda event: told_ms.append(event.throttle_time * 1000),
    }
    is_over = threading.Event()

    def send() -> None:
        producer, message = Producer(settings), bytes(THROTTLED_SIZE)
        while not is_over.is_set():
            try:
                producer.produce(topic, message, partition=0)
            except BufferError:
                producer.poll(0.05)
        producer.purge()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield told_ms
    finally:
        is_over.set()
        thread.join()
