"""A cluster that was given up is back: its topics are copied back from what took over, under their own names, and then it leads
again. Brokers of both sides are killed in the middle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from mirror_clusters import Cluster, copied, is_copy, mirror, mirror_process
from processes import eventually
from zookeeper_process import ZooKeeperProcess


@pytest.fixture(scope="module")
def clusters(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess
) -> Iterator[tuple[Cluster, Cluster]]:
    """(dc-east, offline), of one broker each, which may copy from each other; dc-east copies nothing by itself."""
    tmp_path = tmp_path_factory.mktemp("reverse")
    east = Cluster(tmp_path / "east", zookeeper, 1)
    offline = Cluster(tmp_path / "offline", zookeeper, 1)
    offline.mirror({"dc-east": east})
    east.settings["mirror.offline.topics"] = ""
    east.mirror({"offline": offline})
    yield east, offline
    for cluster in (offline, east):
        cluster.end()


@pytest.mark.long
def test_what_took_over_is_copied_back_and_the_old_source_leads_again(
    clusters: tuple[Cluster, Cluster],
) -> None:
    east, offline = clusters
    given_up(east, offline)
    said = mirror("reverse", "offline", "--bootstrap", east.bootstrap)
    assert (
        "orders-0 has 200 messages of its own (offsets 1000 to 1199) behind what its source has up to" in said
    )
    assert "lost is not here: it would be made anew." in said
    assert "orders would be copied from offline, with --yes." in said
    assert not is_copy(east, "orders")
    copied_back_with_kills(east, offline)
    refused_here(east)
    leads_again(east, offline)


def given_up(east: Cluster, offline: Cluster) -> None:
    """dc-east dies with messages that nobody copied, clients go on in the copies, and dc-east comes back without one topic."""
    for topic in ("orders", "lost"):
        east.create(topic, 2)
        for partition in (0, 1):
            east.publish(topic, 1000, partition)
        copied(east, offline, topic)
    refused = mirror_process("reverse", "offline", "orders", "--yes", "--bootstrap", east.bootstrap)
    assert "dc-east.orders of offline is a copy still: promote it there" in refused.communicate(timeout=60)[1]
    offline.brokers[0].kill()
    east.publish("orders", 200, 0)
    east.brokers[0].kill()
    offline.start(0)
    mirror("failover", "dc-east.orders", "dc-east.lost", "--bootstrap", offline.bootstrap)
    for topic in ("dc-east.orders", "dc-east.lost"):
        for partition in (0, 1):
            offline.publish(topic, 500, partition)
    east.start(0)
    east.admin.delete_topics(["lost"])["lost"].result(20)
    eventually(lambda: "lost" not in east.topics, what="the end of a topic")


def copied_back_with_kills(east: Cluster, offline: Cluster) -> None:
    """The broker that cuts its logs is killed while it does, the one that it copies from while it copies."""
    reverse = mirror_process("reverse", "offline", "--yes", "--bootstrap", east.bootstrap)
    eventually(lambda: is_copy(east, "orders"), what="the mark")
    east.kill_and_start(0)
    told, problem = reverse.communicate(timeout=100)
    if reverse.returncode != 0:
        # The command's own question was cut off by the kill: what was ordered stands, and it goes on.
        assert "does not answer" in problem, problem
        told = mirror("reverse", "offline", "--yes", "--bootstrap", east.bootstrap)
    assert "orders is" in told
    for topic in ("orders", "lost"):
        same(east, offline, topic)
    for partition in (0, 1):
        offline.publish("dc-east.orders", 300, partition)
    offline.kill_and_start(0)
    offline.publish("dc-east.orders", 100)
    for topic in ("orders", "lost"):
        same(east, offline, topic)


def same(east: Cluster, offline: Cluster, topic: str) -> None:
    """Wait until what was the source is, batch by batch, what was its copy."""
    wanted = offline.batches(f"dc-east.{topic}")

    def is_there() -> bool:
        try:
            return east.batches(topic) == wanted
        except Exception:
            return False

    eventually(is_there, timeout_s=40, what=f"{topic} copied back")


def refused_here(east: Cluster) -> None:
    """Clients cannot write to what is copied back; `status` and `verify` know it by its own name, and nothing else was made."""
    answers: list[object] = []
    producer = Producer({"bootstrap.servers": east.bootstrap, "log_level": 0})
    producer.produce("orders", b"x", partition=0, on_delivery=lambda error, _: answers.append(error))
    producer.flush(20)
    assert "POLICY_VIOLATION" in str(answers[0])
    rows = json.loads(mirror("status", "--json", "--bootstrap", east.bootstrap))["partitions"]
    states = {(row["topic"], row["partition"]): (row["state"], row["lag"]) for row in rows}
    assert states == {(topic, p): ("copying", 0) for topic in ("lost", "orders") for p in (0, 1)}
    verdicts = json.loads(mirror("verify", "--json", "--bootstrap", east.bootstrap))
    assert verdicts, "something was compared"
    assert east.topics == {"lost", "orders"}


def leads_again(east: Cluster, offline: Cluster) -> None:
    """Promoted here, restored there: the same way round as in the beginning, and nothing is cut."""
    mirror("promote", "orders", "--bootstrap", east.bootstrap)
    told = mirror("restore", "dc-east.orders", "--yes", "--bootstrap", offline.bootstrap)
    assert "dc-east.orders-0 has no messages of its own behind what its source has" in told
    east.publish("orders", 400)
    copied(east, offline, "orders")
    assert [cluster.records("headrace.findings") for cluster in (east, offline)] == [[], []]


@pytest.mark.long
def test_a_source_that_answers_as_another_cluster_is_not_copied_from(
    tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    east, west = (Cluster(tmp_path / name, zookeeper, 1) for name in ("east", "west"))
    offline = Cluster(tmp_path / "offline", zookeeper, 1)
    try:
        for cluster, count in ((east, 100), (west, 40)):
            cluster.create("orders", 1)
            cluster.publish("orders", count, 0)
        west.create("new", 1)
        offline.mirror({"dc-east": east})
        copied(east, offline, "orders")
        offline.mirror({"dc-east": west})

        def is_refused() -> bool:
            sources = json.loads(told_status(offline))["sources"]
            return [row["state"] for row in sources] != ["answers"] and "it answers as the cluster" in str(
                sources
            )

        eventually(is_refused, timeout_s=40, what="the refusal")
        assert offline.topics == {"dc-east.orders"}
        assert offline.records("headrace.findings") == []
        offline.mirror({"dc-east": east})
        east.publish("orders", 10, 0)
        copied(east, offline, "orders")
    finally:
        for cluster in (offline, east, west):
            cluster.end()


def told_status(cluster: Cluster) -> str:
    told, _ = mirror_process("status", "--json", "--bootstrap", cluster.bootstrap).communicate(timeout=60)
    return told
