"""Partitions that move between headrace and Apache Kafka, by Kafka's own tools, under controllers of both kinds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer
from kafka_oracle import run_tool
from processes import eventually
from test_conformance_mixed_cluster import HEADRACE, KAFKA, MixedCluster

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli.cluster import look
from headrace.cli.cluster_admin import ClusterAdmin
from headrace.cli.cluster_status import problems

TOPIC = "moves"
Partitions = dict[int, tuple[list[int], list[int]]]


@pytest.fixture
def mixed(kafka_jars: Path, tmp_path: Path) -> Iterator[MixedCluster]:
    cluster = MixedCluster(tmp_path, kafka_jars)
    yield cluster
    cluster.end()


@pytest.mark.long
def test_partitions_move_by_kafkas_tools_and_under_either_controller(
    mixed: MixedCluster, kafka_jars: Path, tmp_path: Path
) -> None:
    mixed.create(TOPIC)
    assert mixed.produce(TOPIC, HEADRACE) == [None] * 4

    def tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        address = mixed.address(HEADRACE)
        return run_tool(
            kafka_jars, f"org.apache.kafka.tools.{name}", "--bootstrap-server", address, *arguments
        )

    def move(replicas: list[int], *options: str) -> str:
        """Have all partitions get these replicas, and wait until the tool says so."""
        plan = tmp_path / "plan.json"
        listed = [{"topic": TOPIC, "partition": p, "replicas": replicas} for p in range(4)]
        plan.write_text(json.dumps({"version": 1, "partitions": listed}))
        wish = ("--reassignment-json-file", str(plan))
        begun = tool("reassign.ReassignPartitionsCommand", *wish, "--execute", *options)
        assert "Successfully started partition reassignments" in begun.stdout, begun.stdout + begun.stderr
        await_replicas(mixed, replicas)
        done = tool("reassign.ReassignPartitionsCommand", *wish, "--verify").stdout
        assert done.count("is completed.") == 4, done
        return done

    done = move([HEADRACE, KAFKA], "--throttle", "10000000")
    assert f"Clearing topic-level throttles on topic {TOPIC}" in done
    assert mixed.produce(TOPIC, KAFKA) == [None] * 4
    elected = tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    assert elected.returncode == 0, elected.stdout + elected.stderr
    eventually(lambda: set(mixed.leaders(TOPIC, KAFKA).values()) == {HEADRACE}, what="preferred leaders")
    move([KAFKA])
    assert set(mixed.leaders(TOPIC, HEADRACE).values()) == {KAFKA}
    assert not list((mixed.home / "headrace" / "logs").glob(f"{TOPIC}-?"))
    begun_under_headrace_ended_under_kafka(mixed)
    begun_under_kafka_ended_under_headrace(mixed)
    assert mixed.produce(TOPIC, HEADRACE) == [None] * 4
    assert read(mixed) == 16


def begun_under_headrace_ended_under_kafka(mixed: MixedCluster) -> None:
    """Kafka, which leads, hangs while the move begins; when it goes on, the controller is dead."""
    assert mixed.controller() == HEADRACE
    kafka = psutil.Process(mixed.kafka.process.pid)
    kafka.suspend()
    begin(mixed, HEADRACE, [KAFKA, HEADRACE])
    mixed.headrace.kill()
    kafka.resume()
    eventually(lambda: mixed.controller() == KAFKA, timeout_s=60, what="Kafka as controller")
    assert set(stored(mixed)["adding_replicas"]) == {"0", "1", "2", "3"}
    mixed.start_headrace()
    await_replicas(mixed, [KAFKA, HEADRACE])
    assert mixed.produce(TOPIC, KAFKA) == [None] * 4


def begun_under_kafka_ended_under_headrace(mixed: MixedCluster) -> None:
    """Kafka, which is controller, dies before the replicas that it wants gone are."""
    begin(mixed, KAFKA, [HEADRACE])
    await_replicas(mixed, [HEADRACE])
    headrace = psutil.Process(mixed.headrace.process.pid)
    headrace.suspend()
    begin(mixed, KAFKA, [KAFKA, HEADRACE])
    mixed.kafka.end()
    headrace.resume()
    eventually(lambda: mixed.controller() == HEADRACE, timeout_s=60, what="headrace as controller")
    assert set(stored(mixed)["adding_replicas"]) == {"0", "1", "2", "3"}
    mixed.kafka.start()
    await_replicas(mixed, [KAFKA, HEADRACE])
    seen = look(Bootstrap(mixed.address(KAFKA)))
    assert {n: (b.engine, b.protocol, b.failure) for n, b in seen.brokers.items()} == {
        HEADRACE: ("headrace", "3.9-IV0", None),
        KAFKA: ("kafka", "3.9-IV0", None),
    }
    assert problems(seen) == []


def begin(mixed: MixedCluster, through: int, replicas: list[int]) -> None:
    with ClusterAdmin(Bootstrap(mixed.address(through))) as admin:
        assert admin.reassign({(TOPIC, p): replicas for p in range(4)}) == {}


def stored(mixed: MixedCluster) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = json.loads(mixed.znodes.get(f"/brokers/topics/{TOPIC}")[0])
    return found


def await_replicas(mixed: MixedCluster, replicas: list[int]) -> None:
    """Wait until all partitions have these replicas, all in sync, and no move is under way."""

    def have_moved() -> bool:
        topic = stored(mixed)
        if topic["adding_replicas"] or topic["removing_replicas"]:
            return False
        path = f"/brokers/topics/{TOPIC}/partitions"
        states = [json.loads(mixed.znodes.get(f"{path}/{p}/state")[0]) for p in range(4)]
        return all(r == replicas for r in topic["partitions"].values()) and all(
            set(s["isr"]) == set(replicas) and s["leader"] in replicas for s in states
        )

    eventually(have_moved, timeout_s=60, what=f"{TOPIC} on {replicas}")


def read(mixed: MixedCluster) -> int:
    """How many messages there are."""
    consumer = Consumer(
        {
            "bootstrap.servers": mixed.address(HEADRACE),
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([TOPIC])
    found: list[bytes] = []
    ended: set[int] = set()

    def is_at_the_end() -> bool:
        for message in consumer.consume(100, 0.5):
            if message.error() is None:
                found.append(message.value() or b"")
            else:
                ended.add(message.partition() or 0)
        return len(ended) == 4

    eventually(is_at_the_end, timeout_s=30, what="the end")
    consumer.close()
    return len(found)
