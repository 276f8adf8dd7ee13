"""`headrace mirror run` beside Apache Kafka: two sources in one topic of it, through a kill and a stop beyond the session."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import headrace
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_oracle import KafkaBroker
from mirror_clusters import Cluster
from numbered_messages import Brought, numbers_in, publish_while
from processes import ForegroundProcess, eventually, free_port
from sessions import Pair
from zookeeper_process import ZooKeeperProcess

from headrace.broker.config.properties import parse_properties

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


@pytest.mark.long
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


@pytest.mark.long
def test_what_comes_from_a_cluster_of_kafka_is_not_brought_back_to_it(
    pair: Pair, kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    other = KafkaBroker(
        kafka_jars,
        tmp_path / "other",
        broker_id=7,
        zookeeper=zookeeper.under_chroot(tmp_path / "other"),
        set={"transaction.state.log.replication.factor": "1"},
    )
    topic, members = "circular", dict[int, MemberProcess]()
    try:
        other.wait_until_serving()
        for cluster in (pair.kafka, other):
            make_topic(cluster.bootstrap, topic)
        publish(other.bootstrap, topic, 100)
        members[101] = MemberProcess(tmp_path, 101, target(pair.kafka) | from_one("there", other, topic))
        eventually(lambda: len(all_of(pair.kafka.bootstrap, topic)) == 100, what="what was published there")
        members[102] = MemberProcess(tmp_path, 102, target(other) | from_one("here", pair.kafka, topic))
        eventually(
            lambda: "round and round" in str(status(other.bootstrap)["topics"]),
            what="the refusal of the way back",
        )
        publish(pair.kafka.bootstrap, topic, 20)
        publish(other.bootstrap, topic, 10)
        eventually(lambda: len(all_of(pair.kafka.bootstrap, topic)) == 130, what="what is published later")
        time.sleep(5)
        assert len(all_of(other.bootstrap, topic)) == 110
        assert len(all_of(pair.kafka.bootstrap, topic)) == 130
        members[101].kill()
        members[101].start()
        publish(other.bootstrap, topic, 5)
        eventually(lambda: len(all_of(pair.kafka.bootstrap, topic)) == 135, what="what follows a kill")
    finally:
        for member in members.values():
            member.end()
        other.end()


def from_one(name: str, source: KafkaBroker, topic: str) -> dict[str, str]:
    return {
        "mirror.sources": name,
        f"mirror.{name}.bootstrap.servers": source.bootstrap,
        f"mirror.{name}.topics": topic,
        f"mirror.{name}.mode": "aggregate",
    }


def make_topic(bootstrap: str, topic: str) -> None:
    # A client that hears of no controller asks again after minutes only.
    eventually(
        lambda: bool(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).brokers),
        what="a controller",
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def publish(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0


def all_of(bootstrap: str, topic: str) -> list[bytes]:
    """The values that the topic has."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "all", "enable.auto.commit": False})
    try:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)[1]
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() or b"" for message in consumer.consume(end, 20)]
    finally:
        consumer.close()
