"""An offline cluster of three brokers whose copies are replicated: any of them may be lost while it copies, or restores."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from mirror_clusters import Cluster, copied, is_copy, mirror, mirror_process
from processes import eventually
from zookeeper_process import ZooKeeperProcess

from headrace.broker.wire.batches import iter_batches

REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "3000",
}


@pytest.fixture(scope="module")
def clusters(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess
) -> Iterator[tuple[Cluster, Cluster]]:
    """(dc-east with one broker, whose topic `late` begins above offset 0, offline with three)."""
    tmp_path = tmp_path_factory.mktemp("fail_over")
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
    lost = leader_of(offline, "dc-east.late")
    offline.brokers[lost].kill()
    copied(east, offline, "late")
    offline.start(lost)


@pytest.mark.acceptance
def test_a_promoted_copy_is_restored_though_its_leader_is_killed_in_the_middle(
    clusters: tuple[Cluster, Cluster],
) -> None:
    east, offline = clusters
    east.create("returning", 2)
    for partition in (0, 1):
        east.publish("returning", 1000, partition)
    copied(east, offline, "returning")
    in_sync(offline)
    diverge(east, offline, 500)
    said = mirror("restore", "dc-east.returning", "dc-east.late", "--bootstrap", offline.bootstrap)
    for words in (
        "dc-east.returning-0 has 500 messages of its own (offsets 1000 to 1499) behind what its source has up to offset "
        "1000; 300 of the source's follow there.",
        "dc-east.late is a copy: there is nothing to restore.",
        "dc-east.returning would be a copy again, with --yes.",
    ):
        assert words in said
    ended = offline.batches("dc-east.returning")
    restored_with_a_kill(east, offline)
    assert all(
        ended[partition][-1] not in offline.batches("dc-east.returning")[partition] for partition in (0, 1)
    )


def diverge(east: Cluster, offline: Cluster, own: int) -> None:
    """Make the copy of `returning` the offline cluster's, and have clients write on both sides."""
    mirror("failover", "dc-east.returning", "--bootstrap", offline.bootstrap)
    for partition in (0, 1):
        offline.publish("dc-east.returning", own, partition)
        east.publish("returning", 300, partition)


def restored_with_a_kill(east: Cluster, offline: Cluster) -> None:
    """Kill the leader of a partition once the copy is one again, and have it back; every replica ends as the source."""
    restore = mirror_process("restore", "dc-east.returning", "--yes", "--bootstrap", offline.bootstrap)
    eventually(lambda: is_copy(offline, "dc-east.returning"), what="the mark")
    lost = leader_of(offline, "dc-east.returning")
    offline.brokers[lost].kill()
    told, problem = restore.communicate(timeout=100)
    assert restore.returncode == 0, told + problem
    assert "dc-east.returning is a copy again." in told
    copied(east, offline, "returning")
    offline.start(lost)
    in_sync(offline)
    eventually(
        lambda: all(len(replicas(offline, partition)) == 1 for partition in (0, 1)),
        what="the same log on every replica",
    )
    east.publish("returning", 100)
    copied(east, offline, "returning")


def replicas(offline: Cluster, partition: int) -> set[tuple[tuple[int, int, int], ...]]:
    """The logs that the brokers have of that partition of the copy: offsets and checksums of batches."""
    folder = f"dc-east.returning-{partition}"
    return {
        tuple(
            (header.base_offset, header.last_offset, header.crc)
            for path in sorted((broker / "logs" / folder).glob("*.log"))
            for _, header in iter_batches(path.read_bytes())
        )
        for broker in offline.home.glob("broker-*")
    }


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
