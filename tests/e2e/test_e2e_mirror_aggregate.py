"""Two live clusters into one topic of an offline one, whose brokers are killed and stopped beyond their sessions."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource
from mirror_clusters import Cluster, flip, mirror
from numbered_messages import Brought, numbers_in, publish_while
from processes import eventually
from zookeeper_process import ZooKeeperProcess

from headrace.broker.zk.client import ZooKeeperClient

PARTITIONS = {"dc-east": 4, "dc-west": 2}


@pytest.fixture(scope="module")
def clusters(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess
) -> Iterator[tuple[dict[str, Cluster], Cluster]]:
    """The live ones by name, and the offline one: three brokers, each partition on all of them."""
    home = tmp_path_factory.mktemp("aggregate")
    live = {name: Cluster(home / name, zookeeper, 1) for name in PARTITIONS}
    settings = {
        "mirror.sources": ",".join(live),
        "mirror.metadata.max.age.ms": "1000",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
    }
    for name, cluster in live.items():
        settings[f"mirror.{name}.bootstrap.servers"] = cluster.bootstrap
        settings[f"mirror.{name}.mode"] = "aggregate"
    offline = Cluster(home / "offline", zookeeper, 3, settings)
    yield live, offline
    for cluster in (offline, *live.values()):
        cluster.end()


def all_is_there(live: dict[str, Cluster], offline: Cluster, topic: str) -> Brought:
    """Wait until as many messages came as were published, then compare each."""
    wanted: Brought = {}
    for cluster in live.values():
        wanted |= numbers_in(cluster.bootstrap, topic)
    count = sum(map(len, wanted.values()))

    def is_there() -> bool:
        ends = [offline.end_offset(topic, p) for p in range(max(PARTITIONS.values()))]
        return sum(ends) >= count

    eventually(is_there, timeout_s=120, what=f"{count} messages")
    time.sleep(2)
    assert numbers_in(offline.bootstrap, topic) == wanted
    return wanted


def status(offline: Cluster) -> dict[str, Any]:
    command = [sys.executable, "-m", "headrace.cli", "mirror", "status", "--json"]
    done = subprocess.run(
        [*command, "--bootstrap", offline.bootstrap], capture_output=True, text=True, timeout=60, check=False
    )
    found: dict[str, Any] = json.loads(done.stdout or '{"aggregates": []}')
    return found


def owners(offline: Cluster) -> dict[tuple[str, str, int], int]:
    """(source, topic, partition) → the broker that owns it, by what brokers report; those that none answers for have none."""
    return {
        (row["source"], row["topic"], row["partition"]): row["owner"] for row in status(offline)["aggregates"]
    }


def is_without(offline: Cluster, number: int) -> bool:
    """Whether the broker owns nothing any more."""
    return number not in owners(offline).values()


def while_published(live: dict[str, Cluster], topic: str, seconds: float, faults: Callable[[], None]) -> None:
    until = time.monotonic() + seconds
    publishers = [
        threading.Thread(
            target=publish_while,
            args=(cluster.bootstrap, name, topic, PARTITIONS[name], lambda: time.monotonic() < until),
        )
        for name, cluster in live.items()
    ]
    for publisher in publishers:
        publisher.start()
    faults()
    for publisher in publishers:
        publisher.join()


def create(live: dict[str, Cluster], topic: str) -> None:
    for name, cluster in live.items():
        cluster.create(topic, PARTITIONS[name])


def test_two_sources_are_in_one_topic(clusters: tuple[dict[str, Cluster], Cluster]) -> None:
    live, offline = clusters
    create(live, "clicks")
    while_published(live, "clicks", 2, lambda: None)
    found = all_is_there(live, offline, "clicks")
    assert set(found) == {(name, p) for name, count in PARTITIONS.items() for p in range(count)}
    assert "clicks" in offline.topics
    assert not any(topic.startswith("dc-") for topic in offline.topics)

    def is_told() -> bool:
        rows = status(offline)["aggregates"]
        return len(rows) == 6 and all((row["state"], row["lag"]) == ("copying", 0) for row in rows)

    eventually(is_told, what="owners without lag")
    assert len(set(owners(offline).values())) == 3
    assert {(row["state"], row["mode"]) for row in status(offline)["sources"]} == {("answers", "aggregate")}
    resource = ConfigResource(ConfigResource.Type.TOPIC, "clicks")
    configs = offline.admin.describe_configs([resource])[resource].result(10)
    assert len(configs["headrace.mirror.merged"].value.split(",")) == 2
    page = offline.metrics()
    assert page.count('headrace_mirror_lag_messages{partition="') == 6
    assert 'headrace_mirror_state{partition="1",source="dc-west",state="copying",topic="clicks"} 1.0' in page


@pytest.mark.long
def test_kills_neither_lose_nor_repeat_a_message(clusters: tuple[dict[str, Cluster], Cluster]) -> None:
    live, offline = clusters
    create(live, "killed")

    def faults() -> None:
        for number in (0, 1, 2):
            time.sleep(2.5)
            offline.kill_and_start(number)

    while_published(live, "killed", 10, faults)
    all_is_there(live, offline, "killed")


@pytest.mark.long
def test_a_member_that_is_stopped_beyond_its_session_and_goes_on_repeats_nothing(
    clusters: tuple[dict[str, Cluster], Cluster],
) -> None:
    live, offline = clusters
    create(live, "stopped")

    def faults() -> None:
        for number in (0, 1, 2):
            time.sleep(1)
            os.kill(offline.brokers[number].process.pid, signal.SIGSTOP)
            eventually(partial(is_without, offline, number), timeout_s=30, what="other owners")
            time.sleep(1)
            os.kill(offline.brokers[number].process.pid, signal.SIGCONT)
            time.sleep(1)

    while_published(live, "stopped", 22, faults)
    all_is_there(live, offline, "stopped")


@pytest.mark.long
def test_a_topic_that_was_made_anew_stops_until_its_position_is_taken_away(
    clusters: tuple[dict[str, Cluster], Cluster],
) -> None:
    live, offline = clusters
    east = live["dc-east"]
    east.create("anew", 1)
    east.publish("anew", 100, 0)
    eventually(lambda: has(offline, "anew", 100), what="the first life's messages")
    east.admin.delete_topics(["anew"])["anew"].result(20)
    eventually(lambda: is_created(east, "anew"), what="the second life", every_s=0.5)
    east.publish("anew", 50, 0)

    def is_stopped() -> bool:
        rows = [row for row in status(offline)["aggregates"] if row["topic"] == "anew"]
        return [row["state"] for row in rows] == ["stopped"] and rows[0]["reason"].startswith("recreation: ")

    eventually(is_stopped, what="the stop")
    assert has(offline, "anew", 100)

    async def take_away() -> None:
        zookeeper = ZooKeeperClient(offline.zookeeper, session_timeout_ms=6_000, connection_timeout_ms=10_000)
        await zookeeper.connect()
        await zookeeper.delete("/consumers/headrace.mirror.dc-east/offsets/anew/0")
        await zookeeper.close()

    asyncio.run(take_away())
    eventually(lambda: has(offline, "anew", 150), what="the second life's messages")


@pytest.mark.long
def test_rot_blocks_its_partition_until_it_is_given_up(clusters: tuple[dict[str, Cluster], Cluster]) -> None:
    live, offline = clusters
    east = live["dc-east"]
    at = ("--bootstrap", offline.bootstrap)
    eventually(lambda: len(status(offline).get("sources", ())) == 6, what="reports of both sources")
    mirror("topics", "dc-east", "(?!rotted).*", *at)
    time.sleep(2)
    east.create("rotted", 1)
    east.publish("rotted", 300, 0)
    first, last, _ = next(entry for entry in east.batches("rotted")[0] if entry[0] > 150)
    flip(east, "rotted", first)
    mirror("topics", "dc-east", *at)
    command = f"headrace mirror skip dc-east.rotted 0 --offsets {first}-{last}"

    def is_rotten() -> bool:
        rows = [row for row in status(offline)["aggregates"] if row["topic"] == "rotted"]
        return [row["state"] for row in rows] == ["stopped"] and f"`{command}` gives it up" in rows[0][
            "reason"
        ]

    eventually(is_rotten, what="the rot")
    assert has(offline, "rotted", first), "what lies before it"
    (owner,) = [owner for (_, topic, _), owner in owners(offline).items() if topic == "rotted"]
    mirror(*command.split()[2:], *at)
    offline.kill_and_start(owner)
    eventually(lambda: has(offline, "rotted", 300 - (last + 1 - first)), what="the rest")
    time.sleep(2)
    values = [value for _, value in numbers_of(offline, "rotted")]
    assert values == [number for number in range(300) if not first <= number <= last]


def numbers_of(cluster: Cluster, topic: str) -> list[tuple[int, int]]:
    """(offset, number) of what `Cluster.publish` published."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "numbers"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        count = cluster.end_offset(topic, 0)
        found = consumer.consume(count, 20)
        return [(m.offset() or 0, int((m.value() or b"").partition(b"-")[0])) for m in found]
    finally:
        consumer.close()


def has(cluster: Cluster, topic: str, count: int) -> bool:
    try:
        return cluster.end_offset(topic, 0) == count
    except Exception:
        return False


def is_created(cluster: Cluster, topic: str) -> bool:
    try:
        cluster.create(topic, 1)
    except KafkaException:
        return False
    return True
