"""`headrace mirror run` beside Apache Kafka: two sources in one topic of it, through a kill and a stop beyond the session."""

from __future__ import annotations

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
