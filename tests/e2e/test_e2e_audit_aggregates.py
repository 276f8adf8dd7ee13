"""Two live clusters of any client's messages in one topic of the offline cluster, counted by their batch headers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from audit_world import end_offset, run
from commands import headrace
from confluent_kafka import KafkaException
from confluent_kafka import Producer as KafkaProducer
from load_helpers import create_topic
from processes import DevCluster, eventually
from zookeeper_process import ZooKeeperProcess

from headrace.load.tables import open_catalog

TOPIC, PARTITIONS = "clicks", 2
LIVE = ("dc-east", "dc-west")
Clusters = tuple[dict[str, DevCluster], DevCluster]


@pytest.fixture
def clusters(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[Clusters]:
    """The live ones by name, and the offline one: it has copies of what headrace writes there, and one topic of all messages."""
    live = {
        name: DevCluster(tmp_path / name, zookeeper=zookeeper.under_chroot(tmp_path / name)) for name in LIVE
    }
    settings = {"mirror.sources": ",".join([*LIVE, *(f"all-{name}" for name in LIVE)])}
    for name, cluster in live.items():
        for topic, partitions in ((TOPIC, PARTITIONS), ("headrace.monitoring", 1), ("headrace.counts", 1)):
            create_topic(cluster.bootstrap, topic, partitions)
        settings |= {
            f"mirror.{name}.bootstrap.servers": cluster.bootstrap,
            f"mirror.{name}.topics": "headrace.*",
            f"mirror.all-{name}.bootstrap.servers": cluster.bootstrap,
            f"mirror.all-{name}.topics": TOPIC,
            f"mirror.all-{name}.mode": "aggregate",
        }
    home = tmp_path / "offline"
    offline = DevCluster(home, set=settings, zookeeper=zookeeper.under_chroot(home))
    create_topic(offline.bootstrap, "headrace.counts", 1)
    yield live, offline
    for process in (offline, *live.values()):
        process.end()


def publish(cluster: DevCluster, count: int) -> None:
    sink = KafkaProducer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for number in range(count):
        sink.produce(TOPIC, f"{number}".encode(), partition=number % PARTITIONS)
    assert sink.flush(30) == 0


def count(cluster: DevCluster, datacenter: str) -> None:
    tier = ["offline", "--topics", TOPIC] if datacenter == "offline" else ["live"]
    options = ["--bootstrap", cluster.bootstrap, "--datacenter", datacenter, "--modes", f"{TOPIC}=headers"]
    run("count", "--once", "--tier", *tier, *options)


def test_the_messages_of_both_add_up_to_what_they_share(clusters: Clusters, tmp_path: Path) -> None:
    live, offline = clusters
    open_catalog(str(tmp_path / "warehouse"))
    publish(live["dc-east"], 300)
    publish(live["dc-west"], 200)

    def arrived() -> int:
        try:
            return sum(end_offset(offline.bootstrap, TOPIC, at) for at in range(PARTITIONS))
        except KafkaException:
            return 0  # The mirror makes the topic.

    def report() -> dict[str, Any]:
        output = tmp_path / "report"
        command = ["--bootstrap", offline.bootstrap, "--warehouse", str(tmp_path / "warehouse")]
        done = headrace("audit", "report", *command, "--output", str(output))
        assert done.returncode in (0, 1), done.stderr[-3000:]
        found: dict[str, Any] = json.loads((output / "report.json").read_text(encoding="utf-8"))
        return found

    eventually(lambda: arrived() == 500, what="500 messages in the aggregate")
    for name, cluster in (*live.items(), ("offline", offline)):
        count(cluster, name)
    eventually(lambda: report()["verdict"] == "complete", every_s=1, what="a complete report")
    (row,) = report()["aggregate_topics"]
    assert (row["datacenter"], row["topic"], row["live"], row["aggregate"]) == ("", TOPIC, 500, 500)
    assert {item["datacenter"]: item["offline"] for item in report()["header_topics"]} == {
        "": 500,
        "dc-east": None,
        "dc-west": None,
    }

    publish(live["dc-west"], 10)
    count(live["dc-west"], "dc-west")
    eventually(lambda: report()["aggregate_topics"][0]["under_way"] == 10, every_s=1, what="10 on their way")
    found = report()
    assert found["verdict"] == "incomplete"
    assert {item["reason"] for item in found["incomplete"]} == {
        f"partition {at}: 5 messages are on their way to the aggregate topic, from dc-east or dc-west"
        for at in range(PARTITIONS)
    }
    eventually(lambda: arrived() == 510, what="510 messages in the aggregate")
    count(offline, "offline")
    assert report()["verdict"] == "complete"
