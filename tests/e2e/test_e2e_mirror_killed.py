"""Any broker of either side is killed every few seconds while groups are brought, while copies are promoted and while they are
restored; and the road between the two is cut for minutes.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from random import Random
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from mirror_clusters import Cluster, copied, is_copy, mirror_process
from processes import eventually
from wan_road import road_to
from zookeeper_process import ZooKeeperProcess

from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.mirror.memory.reports import ANSWERS, NEVER_REACHED, SILENT, SILENT_AFTER_MS

KILL_EVERY_S = 3.0
CUT_S = 100.0
GROUP = "readers"
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "3000",
    "mirror.sources": "dc-east",
    "mirror.metadata.max.age.ms": "500",
    "mirror.dc-east.sync.groups": GROUP,
    "mirror.sync.groups.interval.ms": "1000",
}


class Killer:
    """While it is entered: kills one broker after the other, at random, and starts each again before the next."""

    def __init__(self, seed: int, *clusters: Cluster) -> None:
        self._random = Random(seed)
        self._brokers = [(cluster, number) for cluster in clusters for number in cluster.brokers]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.killed: list[int] = []
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._failure is None, self._failure

    def _work(self) -> None:
        try:
            while not self._is_over.wait(KILL_EVERY_S):
                at = self._random.randrange(len(self._brokers))
                cluster, number = self._brokers[at]
                cluster.kill_and_start(number)
                self.killed.append(at)
        except BaseException as error:  # a broker that does not start again fails the test
            self._failure = error


@pytest.fixture(scope="module")
def clusters(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess
) -> Iterator[tuple[Cluster, Cluster]]:
    """(dc-east with one broker, offline with three, whose copies are replicated)."""
    home = tmp_path_factory.mktemp("killed")
    east = Cluster(home / "east", zookeeper, 1)
    settings = {**REPLICATED, "mirror.dc-east.bootstrap.servers": east.bootstrap}
    offline = Cluster(home / "offline", zookeeper, 3, settings)
    yield east, offline
    for cluster in (offline, east):
        cluster.end()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_groups_and_messages_are_in_step_once_the_kills_end(clusters: tuple[Cluster, Cluster]) -> None:
    east, offline = clusters
    east.create("read", 1)
    east.publish("read", 100)
    copied(east, offline, "read")
    with Killer(1, east, offline) as killer:
        while len(killer.killed) < 8:
            east.publish("read", 100)
            commit(east, "read", end_of(east, "read") - 10)
    last = end_of(east, "read")
    commit(east, "read", last - 5)
    copied(east, offline, "read")
    eventually(
        lambda: committed(offline, "dc-east.read") == last - 5, timeout_s=60, what="the group's offset"
    )
    assert offline.records("headrace.findings") == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_copies_are_promoted_and_restored_whole_through_kills(clusters: tuple[Cluster, Cluster]) -> None:
    east, offline = clusters
    east.create("orders", 2)
    for partition in (0, 1):
        east.publish("orders", 2000, partition)
    wanted = east.batches("orders")
    with Killer(2, east, offline) as killer:
        done_at_last("promote", "dc-east.orders", "--timeout", "20", "--bootstrap", offline.bootstrap)
        while len(killer.killed) < 3:
            time.sleep(0.5)
    assert not is_copy(offline, "dc-east.orders")
    assert offline.batches("dc-east.orders") == wanted, "all that its source had, and nothing else"
    for partition in (0, 1):
        offline.publish("dc-east.orders", 500, partition)
        east.publish("orders", 300, partition)
    with Killer(3, east, offline) as killer:
        done_at_last("restore", "dc-east.orders", "--yes", "--bootstrap", offline.bootstrap)
        while len(killer.killed) < 4:
            time.sleep(0.5)
    assert is_copy(offline, "dc-east.orders")
    copied(east, offline, "orders")
    east.publish("orders", 100)
    copied(east, offline, "orders")
    assert offline.records("headrace.findings") == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_road_that_is_cut_for_minutes_costs_nothing_but_time(clusters: tuple[Cluster, Cluster]) -> None:
    east, offline = clusters
    road, begin = road_to(east)
    try:
        offline.settings["mirror.dc-east.bootstrap.servers"] = begin
        for number in (0, 1, 2):
            offline.kill_and_start(number)
        east.create("far", 2)
        east.publish("far", 1000)
        copied(east, offline, "far")
        with road.cut():
            began = time.monotonic()
            east.publish("far", 1000)
            offline.kill_and_start(1)
            eventually(
                lambda: source_states(offline) <= {SILENT, NEVER_REACHED},
                timeout_s=3 * SILENT_AFTER_MS / 1000,
                what="the silence",
            )
            refused = mirror_process(
                "promote", "dc-east.far", "--timeout", "5", "--bootstrap", offline.bootstrap
            )
            assert refused.communicate(timeout=100)[1], "a promotion waits for what nobody can see"
            assert refused.returncode != 0
            time.sleep(max(0.0, began + CUT_S - time.monotonic()))
            east.publish("far", 500)
        copied(east, offline, "far")
        eventually(lambda: source_states(offline) == {ANSWERS}, what="the source's answer")
        assert is_copy(offline, "dc-east.far")
        assert offline.records("headrace.findings") == []
    finally:
        road.end()


def end_of(cluster: Cluster, topic: str) -> int:
    """The end of partition 0, once its leader tells it."""
    found: list[int] = []

    def is_told() -> bool:
        try:
            found.append(cluster.end_offset(topic, 0))
        except ConnectionFailedError:
            return False
        return True

    eventually(is_told, timeout_s=60, what=f"the end of {topic}")
    return found[0]


def done_at_last(*arguments: str) -> None:
    """Give a command again and again until it succeeds: a broker that it asked may have been killed."""

    def is_done() -> bool:
        process = mirror_process(*arguments)
        try:
            process.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return process.returncode == 0

    eventually(is_done, timeout_s=200, what=" ".join(arguments))


def source_states(offline: Cluster) -> set[str]:
    """What the brokers say of their source; the command's code says whether all is in order."""
    asked = mirror_process("status", "--json", "--bootstrap", offline.bootstrap)
    return {source["state"] for source in json.loads(asked.communicate(timeout=100)[0])["sources"]}


def consumer(cluster: Cluster) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


def commit(cluster: Cluster, topic: str, offset: int) -> None:
    """Commit an offset, once somebody takes it."""

    def is_taken() -> bool:
        asking = consumer(cluster)
        try:
            asking.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        except KafkaException:
            return False
        finally:
            asking.close()
        return True

    eventually(is_taken, timeout_s=60, what="a commit")


def committed(cluster: Cluster, topic: str) -> int:
    asking = consumer(cluster)
    try:
        (found,) = asking.committed([TopicPartition(topic, 0)], 20)
    except KafkaException:
        return -1
    finally:
        asking.close()
    offset: int = found.offset
    return offset
