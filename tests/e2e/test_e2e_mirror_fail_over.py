"""An offline cluster of three brokers whose copies are replicated: any of them may be lost while it copies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from mirror_clusters import Cluster, copied
from processes import eventually
from zookeeper_process import ZooKeeperProcess

REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "3000",
}


@pytest.fixture
def clusters(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[tuple[Cluster, Cluster]]:
    """(dc-east with one broker, whose topic `late` begins above offset 0, offline with three)."""
    east = Cluster(tmp_path / "east", zookeeper, 1, {"log.retention.check.interval.ms": "300"})
    east.create("late", 1, segment_bytes="20000", retention_bytes="30000")
    east.publish("late", 1000)
    eventually(lambda: east.log_start("late") > 0, what="retention")
    offline = Cluster(
        tmp_path / "offline",
        zookeeper,
        3,
        REPLICATED
        | {
            "mirror.sources": "dc-east",
            "mirror.dc-east.bootstrap.servers": east.bootstrap,
            "mirror.metadata.max.age.ms": "500",
        },
    )
    yield east, offline
    for cluster in (offline, east):
        cluster.end()


def test_a_copy_goes_on_with_its_next_leader_and_knows_what_the_last_one_knew(
    clusters: tuple[Cluster, Cluster],
) -> None:
    east, offline = clusters
    assert east.log_start("late") > 0
    east.create("events", 3)
    east.publish("events", 3000)
    for topic in ("events", "late"):
        copied(east, offline, topic)
    in_sync(offline)
    publisher = threading.Thread(target=east.publish, args=("events", 30_000))
    publisher.start()
    lost = leader_of(offline, "headrace.mirror")
    offline.brokers[lost].kill()
    publisher.join()
    east.kill_and_start(0)
    east.publish("events", 500)
    for topic in ("events", "late"):
        copied(east, offline, topic)
    assert offline.records("headrace.findings") == []
    offline.start(lost)
    in_sync(offline)
    offline.brokers[leader_of(offline, "dc-east.late")].kill()
    copied(east, offline, "late")


def leader_of(cluster: Cluster, topic: str) -> int:
    """The leader of partition 0."""
    leader: int = cluster.admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
    return leader


def in_sync(cluster: Cluster) -> None:
    """Wait until all replicas of all topics are."""

    def are_all() -> bool:
        found = [
            partition
            for topic in cluster.admin.list_topics(timeout=10).topics.values()
            for partition in topic.partitions.values()
        ]
        return all(len(p.replicas) == 3 and sorted(p.isrs) == sorted(p.replicas) for p in found)

    eventually(are_all, timeout_s=40, what="all replicas in sync")
