"""`headrace mirror run` beside Apache Kafka: two sources in one topic of it, through a kill and a stop beyond the session."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import headrace
from kafka_oracle import KafkaBroker
from mirror_clusters import Cluster
from numbered_messages import Brought, numbers_in, publish_while
from processes import ForegroundProcess, eventually, free_port
from sessions import Pair
from zookeeper_process import ZooKeeperProcess

from headrace.broker.config.properties import parse_properties
from headrace.broker.wire.api import k61_describe_producers
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.config import parse_addresses

PARTITIONS = {"dc-east": 4, "dc-west": 2}
ALL = {(name, p) for name, count in PARTITIONS.items() for p in range(count)}


def written(path: Path, properties: dict[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


class MemberProcess(ForegroundProcess):
    """`headrace mirror run --config mirror.properties`, with a file of its own."""

    def __init__(self, home: Path, member: int, settings: dict[str, str]) -> None:
        self.metrics_port = free_port()
        properties = {
            "mirror.member.id": str(member),
            "mirror.metadata.max.age.ms": "1000",
            "zookeeper.session.timeout.ms": "3000",
            "headrace.metrics.listener": f"127.0.0.1:{self.metrics_port}",
            **settings,
        }
        config = written(home / f"member-{member}.properties", properties)
        super().__init__(
            ["headrace.cli", "mirror", "run", "--config", str(config)], home / f"member-{member}.log"
        )

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as page:
            text: str = page.read().decode()
            return text


@pytest.fixture(scope="module")
def live(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess
) -> Iterator[dict[str, Cluster]]:
    home = tmp_path_factory.mktemp("live")
    clusters = {name: Cluster(home / name, zookeeper, 1) for name in PARTITIONS}
    yield clusters
    for cluster in clusters.values():
        cluster.end()


def target(kafka: KafkaBroker) -> dict[str, str]:
    own = parse_properties((kafka.home / "server.properties").read_text())
    return {"bootstrap.servers": kafka.bootstrap, "zookeeper.connect": own["zookeeper.connect"]}


def from_all(live: dict[str, Cluster], topic: str) -> dict[str, str]:
    settings = {"mirror.sources": ",".join(live)}
    for name, cluster in live.items():
        settings[f"mirror.{name}.bootstrap.servers"] = cluster.bootstrap
        settings[f"mirror.{name}.topics"] = topic
        settings[f"mirror.{name}.mode"] = "aggregate"
    return settings


def status(bootstrap: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        headrace("mirror", "status", "--json", "--bootstrap", bootstrap).stdout
    )
    return found


def owned_by(bootstrap: str, member: int) -> set[tuple[str, int]]:
    return {
        (row["source"], row["partition"])
        for row in status(bootstrap)["aggregates"]
        if row["owner"] == member and row["state"] == "copying"
    }


def states(bootstrap: str) -> set[str]:
    return {row["state"] for row in status(bootstrap)["aggregates"]}


def test_each_message_is_in_apache_kafka_once_through_a_kill_and_a_stop(
    pair: Pair, live: dict[str, Cluster], tmp_path: Path
) -> None:
    topic, kafka = "merged-clicks", pair.kafka
    for name, cluster in live.items():
        cluster.create(topic, PARTITIONS[name])
    settings = target(kafka) | from_all(live, topic)
    members = {number: MemberProcess(tmp_path, number, settings) for number in (101, 102)}
    is_over = threading.Event()
    publishers = [
        threading.Thread(
            target=publish_while,
            args=(cluster.bootstrap, name, topic, PARTITIONS[name], lambda: not is_over.is_set()),
        )
        for name, cluster in live.items()
    ]
    try:
        for publisher in publishers:
            publisher.start()
        eventually(lambda: all(owned_by(kafka.bootstrap, n) for n in members), what="two owners")
        assert headrace("mirror", "pause", topic, "--bootstrap", kafka.bootstrap).returncode == 0
        eventually(lambda: states(kafka.bootstrap) == {"paused"}, what="the pause")
        assert headrace("mirror", "resume", topic, "--bootstrap", kafka.bootstrap).returncode == 0
        members[101].kill()
        eventually(lambda: owned_by(kafka.bootstrap, 102) == ALL, what="one owner of all")
        members[101].start()
        eventually(lambda: owned_by(kafka.bootstrap, 101), what="a share for who came back")
        os.kill(members[102].process.pid, signal.SIGSTOP)
        eventually(lambda: owned_by(kafka.bootstrap, 101) == ALL, what="another owner of all")
        os.kill(members[102].process.pid, signal.SIGCONT)
        eventually(lambda: owned_by(kafka.bootstrap, 102), what="a share for who went on")
        is_over.set()
        for publisher in publishers:
            publisher.join()
        wanted: Brought = {}
        for cluster in live.values():
            wanted |= numbers_in(cluster.bootstrap, topic)
        count = sum(map(len, wanted.values()))
        eventually(
            lambda: sum(map(len, numbers_in(kafka.bootstrap, topic).values())) >= count,
            what=f"{count} messages",
        )
        page = members[101].metrics()
        assert 'headrace_mirror_source_up{source="dc-west"} 1.0' in page
        assert page.count('headrace_mirror_lag_messages{partition="') == len(owned_by(kafka.bootstrap, 101))
        assert members[101].stop() == members[102].stop() == 0
        assert numbers_in(kafka.bootstrap, topic) == wanted
    finally:
        is_over.set()
        for member in members.values():
            member.end()


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"mirror.member.id": "1"}, 2, "a number that no broker of the target has"),
        ({"zookeeper.connect": "ELSEWHERE"}, 1, "give both of the target, with its chroot"),
        ({"bootstrap.servers": "127.0.0.1:1"}, 1, "check bootstrap.servers and that its brokers run"),
    ],
)
def test_a_member_that_cannot_take_part_says_why(
    pair: Pair, live: dict[str, Cluster], tmp_path: Path, change: dict[str, str], code: int, said: str
) -> None:
    properties = target(pair.kafka) | from_all(live, "any") | {"mirror.member.id": "101"} | change
    if "zookeeper.connect" in change:
        properties["zookeeper.connect"] = live["dc-east"].zookeeper
    done = headrace("mirror", "run", "--config", str(written(tmp_path / "mirror.properties", properties)))
    assert done.returncode == code, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert said in last


@pytest.fixture
def forgetful(kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path: Path) -> Iterator[KafkaBroker]:
    """Apache Kafka that forgets a producer two seconds after its last message."""
    home = tmp_path / "forgetful"
    forgets = {"producer.id.expiration.ms": "2000", "producer.id.expiration.check.interval.ms": "500"}
    kafka = KafkaBroker(kafka_jars, home, broker_id=1, zookeeper=zookeeper.under_chroot(home), set=forgets)
    kafka.wait_until_serving()
    yield kafka
    kafka.end()


def remembered(kafka: KafkaBroker, topic: str) -> int:
    """How many producers the leader of partition 0 knows."""

    async def work() -> int:
        async with ClusterClient(parse_addresses("kafka", kafka.bootstrap)) as client:
            asked = {"topics": [{"name": topic, "partition_indexes": [0]}]}
            answer = await client.ask(client.leaders[topic, 0], k61_describe_producers.API, 0, asked)
        return len(answer["topics"][0]["partitions"][0]["active_producers"])

    return asyncio.run(work())


@pytest.mark.long
def test_a_producer_that_the_target_forgot_repeats_nothing(
    forgetful: KafkaBroker, live: dict[str, Cluster], tmp_path: Path
) -> None:
    topic, east = "forgotten-clicks", live["dc-east"]
    east.create(topic, 1)
    settings = target(forgetful) | from_all({"dc-east": east}, topic)
    member = MemberProcess(tmp_path, 101, settings)
    is_over = threading.Event()
    arguments = (east.bootstrap, "dc-east", topic, 1, lambda: not is_over.is_set())
    publisher = threading.Thread(target=publish_while, args=arguments)
    try:
        publisher.start()
        for _ in range(3):
            eventually(lambda: owned_by(forgetful.bootstrap, 101), what="an owner")
            before = len(numbers_in(forgetful.bootstrap, topic)["dc-east", 0])
            eventually(
                lambda n=before: len(numbers_in(forgetful.bootstrap, topic)["dc-east", 0]) > n,  # type: ignore[misc]
                what="more messages",
            )
            member.kill()
            eventually(lambda: remembered(forgetful, topic) == 0, what="a target that has forgotten")
            member.start()
        is_over.set()
        publisher.join()
        wanted = numbers_in(east.bootstrap, topic)
        eventually(
            lambda: len(numbers_in(forgetful.bootstrap, topic)["dc-east", 0]) >= len(wanted["dc-east", 0]),
            what="all messages",
        )
        assert member.stop() == 0
        assert numbers_in(forgetful.bootstrap, topic) == wanted
    finally:
        is_over.set()
        member.end()
