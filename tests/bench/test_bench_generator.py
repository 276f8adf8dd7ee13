"""The load generator and what watches processes: they count what is there."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import confluent_kafka
import fastavro
import pytest

from bench import generator, load_cells
from bench.machine import ProcessTree
from bench.peers import Peer, headrace

pytestmark = pytest.mark.acceptance

CONSUMED_MAX = 1_000_000
"""What librdkafka gives out at once."""
BURN = "import time\nwhile time.process_time() < 0.5: pass"
PARENT = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])\nprint('done')"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generator.build(tmp_path_factory.mktemp("generator"))


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with headrace(tmp_path_factory.mktemp("broker")) as running:
        yield running


def values_of(peer: Peer, topic: str, count: int, partitions: int = 2) -> list[bytes]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": peer.bootstrap, "group.id": "test"})
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    values: list[bytes] = []
    while messages := consumer.consume(min(count - len(values), CONSUMED_MAX), timeout=20):
        values += [value for message in messages if (value := message.value()) is not None]
    consumer.close()
    return values


def test_a_program_that_is_compiled_already_is_used_again(program: Path) -> None:
    compiled = program.stat().st_mtime_ns
    assert generator.build(program.parent) == program
    assert program.stat().st_mtime_ns == compiled


@pytest.mark.parametrize("batch", [1, 50, 0])
@pytest.mark.parametrize(("acks", "connections"), [("all", 1), ("0", 3)])
def test_what_is_produced_is_consumed(
    program: Path, peer: Peer, batch: int, acks: str, connections: int
) -> None:
    topic = f"noise-{batch}-{acks}"
    peer.create_topic(topic, 2)
    where: dict[str, Any] = {"bootstrap": peer.bootstrap, "topic": topic, "partitions": 2, "messages": 1000}
    codec = "zstd" if batch else "none"
    produced = generator.run(
        program, "produce", **where, connections=connections, batch=batch, acks=acks, codec=codec
    )
    assert (produced.messages, produced.bytes) == (1000, 200_000)
    consumed = generator.run(program, "consume", **where, connections=min(connections, 2))
    assert (consumed.messages, consumed.bytes) == (1000, 200_000)


@pytest.mark.parametrize(("connections", "batch"), [(1, 50), (2, 1)])
def test_each_message_goes_to_the_next_partition(
    program: Path, peer: Peer, connections: int, batch: int
) -> None:
    topic = f"round-{connections}"
    peer.create_topic(topic, 3)
    where: dict[str, Any] = {"bootstrap": peer.bootstrap, "topic": topic, "partitions": 3, "messages": 12}
    generator.run(program, "produce", **where, connections=connections, batch=batch)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": peer.bootstrap, "group.id": "test"})
    counts = [
        consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, number))[1]
        for number in range(3)
    ]
    consumer.close()
    assert counts == [4, 4, 4]


def test_a_run_by_time_ends_when_its_time_is_over(program: Path, peer: Peer) -> None:
    peer.create_topic("timed", 1)
    where: dict[str, Any] = {"bootstrap": peer.bootstrap, "topic": "timed"}
    produced = generator.run(program, "produce", **where, seconds=0.5, batch=50)
    assert produced.messages > 0
    assert produced.seconds >= 0.4
    assert len(values_of(peer, "timed", produced.messages, partitions=1)) == produced.messages


@pytest.mark.parametrize(("partitions", "connections"), [(1, 1), (4, 2)])
def test_latency_is_that_of_every_message_after_the_warm_up(
    program: Path, peer: Peer, partitions: int, connections: int
) -> None:
    topic = f"latency-{partitions}"
    peer.create_topic(topic, partitions)
    where: dict[str, Any] = {"bootstrap": peer.bootstrap, "topic": topic, "partitions": partitions}
    for _ in range(2):  # the second run must not count what the first has left in the log
        outcome = generator.run(program, "latency", **where, connections=connections, rate=500, seconds=0.5)
        assert outcome.messages == 750
        assert 0 < outcome.latency["p50_ms"] <= outcome.latency["p99_ms"] <= outcome.latency["p999_ms"]
        assert outcome.latency["max_ms"] < 20_000


def test_what_is_committed_counts_and_is_there_for_readers_of_committed_messages(
    program: Path, peer: Peer
) -> None:
    peer.create_topic("transacted", 3)
    peer.create_topic("input", 2)
    where: dict[str, str | int] = {"bootstrap": peer.bootstrap, "size": 20, "connections": 2}
    where |= {"partitions": 3, "batch": 5}
    seen = generator.run(program, "transact", **where, topic="transacted", seconds=0.5)
    assert seen.messages == seen.transactions * 5 * 3 > 0
    values_of(peer, "transacted", seen.messages, partitions=3)
    generator.run(program, "produce", bootstrap=peer.bootstrap, topic="input", partitions=2, messages=40_000)
    peer.create_topic("copied", 3)
    copied = generator.run(program, "transact", **where, topic="copied", input="input", seconds=0.5)
    assert copied.messages == copied.transactions * 5 > 0
    values_of(peer, "copied", copied.messages, partitions=3)


def test_events_are_avro_of_their_schema_in_the_registrys_frame(program: Path, peer: Peer) -> None:
    peer.create_topic("events", 2)
    where: dict[str, Any] = {
        "bootstrap": peer.bootstrap,
        "topic": "events",
        "partitions": 2,
        "messages": 5000,
    }
    produced = generator.run(program, "produce", **where, batch=0, schema=0x12345678)
    values = values_of(peer, "events", 5000)
    assert sum(len(value) for value in values) == produced.bytes
    assert 190 <= produced.bytes / 5000 <= 210
    schema: Any = fastavro.parse_schema(json.loads(load_cells.SCHEMA.read_text()))
    events = []
    for value in values:
        assert struct.unpack(">bI", value[:5]) == (0, 0x12345678)
        body = io.BytesIO(value[5:])
        event: Any = fastavro.schemaless_reader(body, schema, None)
        events.append(event)
        assert not body.read(), "bytes behind the event"
    assert sorted(event["sequence"] for event in events) == list(range(5000))
    assert len({event["path"] for event in events}) > 4000


def test_a_wrong_call_of_the_generator_is_an_error_that_shows_it(program: Path) -> None:
    with pytest.raises(
        click.ClickException, match="`consume topic=t` failed: load_generator: usage: bootstrap"
    ):
        generator.run(program, "consume", topic="t")
    with pytest.raises(click.ClickException, match="no such name: color"):
        generator.run(program, "produce", color="red")


def test_cpu_of_children_that_have_ended_counts() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    tree = ProcessTree(parent.pid)
    assert tree.watch(parent) == "done\n"
    assert tree.cpu_seconds >= 0.2
    assert tree.memory_mib_max > 5
