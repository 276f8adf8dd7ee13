"""A follower that was away catches up: what it costs its broker, beside the mirror's copy of the same messages.

The follower's broker is held still (SIGSTOP) while its leader's is filled, so that all it does then is to fetch, and no start
is part of it. It is no controller, and keeps its session.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import click

from bench import contest, generator
from bench.generator import Outcome
from bench.machine import cpu_seconds
from bench.mirror_cells import BATCH_50 as MIRROR_50
from bench.mirror_cells import BATCH_MAX as MIRROR_MAX
from bench.mirror_cells import PARTITIONS, SIZES
from bench.peers import Peer
from bench.runs import HEADRACE, MESSAGE_SIZE, RawRun, Workshop
from headrace.broker.client.blocking_cluster import BlockingCluster
from headrace.broker.wire.api import k02_list_offsets, k03_metadata
from headrace.broker.wire.client.offsets import LIST_OFFSETS_VERSION, list_offsets, listed_offsets
from headrace.broker.wire.special_values import LATEST_TIMESTAMP, NO_EPOCH

BATCH_50 = "catching up, batches of 50"
BATCH_MAX = "catching up, 1 MB batches"
MIRRORED = {BATCH_50: MIRROR_50, BATCH_MAX: MIRROR_MAX}
"""The mirror's cell with the same messages."""
TOPIC = "behind"
METADATA_VERSION = 9
SETTINGS = {"zookeeper.session.timeout.ms": "60000"}
"""A broker that is held still must not lose its session."""
SECONDS_MAX = 180
POLL_SECONDS = 0.05

name = "catching-up"
title = "Catching up"
note = (
    f"two brokers, {PARTITIONS} partitions that one leads and the other follows, no compression; CPU of the follower's broker "
    "from the moment when it goes on until it is in sync; × is the share of the mirror's figure with the same messages"
)
cells = tuple(MIRRORED)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take."""
    rounds = workshop.effort.rounds
    return rounds, rounds * 10.0


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells round by round, each with brokers of its own."""
    with contest.zookeeper(workshop.data / "zookeeper") as ensemble:
        for number in range(workshop.effort.rounds):
            for cell in wanted:
                with (
                    workshop.folder("run") as data,
                    contest.cluster(HEADRACE, None, data / "brokers", ensemble, 2, SETTINGS) as peer,
                ):
                    yield _measure(cell, number, peer, workshop)


def _measure(cell: str, number: int, peer: Peer, workshop: Workshop) -> RawRun:
    with contest.zookeeper_session(peer) as zookeeper:
        leader = int(json.loads(zookeeper.get("/controller")[0])["brokerid"])
    follower = 3 - leader
    peer.create_topic(TOPIC, PARTITIONS, [(leader, follower)] * PARTITIONS)
    cluster = BlockingCluster([peer.addresses[leader - 1]], "headrace-bench", SECONDS_MAX)
    try:
        _wait_until_in_sync(cluster, 0)
        process = peer.processes[follower - 1]
        process.suspend()
        try:
            filled = _fill(cell, peer, leader, workshop)
        finally:
            before, began = cpu_seconds(process), time.monotonic()
            process.resume()
        _wait_until_in_sync(cluster, filled.messages)
        seconds = time.monotonic() - began
    finally:
        cluster.close()
    return RawRun(
        cell=cell,
        peer=HEADRACE,
        round=number,
        messages=filled.messages,
        bytes=filled.bytes,
        seconds=round(seconds, 4),
        cpu_seconds=round(cpu_seconds(process) - before, 4),
        memory_mib=peer.memory_mib,
        settings={"batch": SIZES[MIRRORED[cell]][0], "partitions": PARTITIONS, "replicas": 2},
    )


def _fill(cell: str, peer: Peer, leader: int, workshop: Workshop) -> Outcome:
    batch, messages = SIZES[MIRRORED[cell]]
    host, port = peer.addresses[leader - 1]
    where = {"bootstrap": f"{host}:{port}", "topic": TOPIC}
    options = {"partitions": PARTITIONS, "messages": messages, "size": MESSAGE_SIZE, "batch": batch}
    return generator.run(workshop.generator, "produce", **where, **options)


def _wait_until_in_sync(cluster: BlockingCluster, messages: int) -> None:
    """Return once the follower is in sync, and that many messages are committed."""
    deadline = time.monotonic() + SECONDS_MAX
    while not (_committed(cluster) >= messages and _in_sync(cluster)):
        if time.monotonic() > deadline:
            raise click.ClickException(f"the follower did not catch up in {SECONDS_MAX} s")
        time.sleep(POLL_SECONDS)


def _in_sync(cluster: BlockingCluster) -> bool:
    request = {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}
    (topic,) = cluster.any().ask(k03_metadata.API, METADATA_VERSION, request)["topics"]
    partitions = topic["partitions"]
    return len(partitions) == PARTITIONS and all(len(p["isr_nodes"]) == 2 for p in partitions)


def _committed(cluster: BlockingCluster) -> int:
    request = list_offsets({(TOPIC, p): NO_EPOCH for p in range(PARTITIONS)}, LATEST_TIMESTAMP)
    answer = cluster.any().ask(k02_list_offsets.API, LIST_OFFSETS_VERSION, request)
    return sum(max(0, offset) for _, offset in listed_offsets(answer).values())
