"""headrace and Apache Kafka 3.9 as replicas of the same partitions: either leads, follows, coordinates and is controller."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from kafka_oracle import KafkaProcess, check_replicas
from processes import eventually
from replicated_cluster import PARTITION_COUNT, SETTINGS, TOPIC, GroupReader, ReplicatedCluster, Writer, check

from headrace.cli.cluster_admin import ClusterAdmin

HEADRACE, KAFKA = "headrace", "kafka"
Start = Callable[[Mapping[int, str]], "MixedReplicas"]


class MixedReplicas(ReplicatedCluster):
    """Each broker is of the kind that `kinds` says when it is started; its data stays what it is."""

    def __init__(self, home: Path, jars: Path, kinds: Mapping[int, str]) -> None:
        self._jars = jars
        self.kinds = dict(kinds)
        super().__init__(home)

    def start(self, number: int) -> None:
        if self.kinds[number] == HEADRACE:
            super().start(number)
            return
        host, port = self.addresses[number]
        home = self.home / f"broker-{number}"
        home.mkdir(exist_ok=True)
        properties = {
            **SETTINGS,
            "broker.id": number,
            "listeners": f"PLAINTEXT://{host}:{port}",
            "log.dirs": home / "logs",
            "zookeeper.connect": self.zookeeper.address,
        }
        config = home / "kafka.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        broker = KafkaProcess(self._jars, config, bootstrap=f"{host}:{port}", log=home / "kafka.log")
        self.brokers[number] = broker
        broker.wait_until_serving()

    def swap(self, number: int, kind: str) -> None:
        """Stop a broker in order, and start the other kind on its data."""
        self.brokers[number].stop()
        self.kinds[number] = kind
        self.start(number)
        self.wait_until_in_sync()

    def begin_move(self, replicas: list[int], through: int) -> None:
        """Ask that broker to have all partitions on these replicas."""
        host, port = self.addresses[through]
        with ClusterAdmin(f"{host}:{port}") as admin:
            assert admin.reassign({(TOPIC, p): replicas for p in range(PARTITION_COUNT)}) == {}

    def has_moved(self, replicas: list[int]) -> bool:
        """Whether they are there, all in sync, and no move is under way."""
        topic = json.loads(self._znodes.retry(self._znodes.get, f"/brokers/topics/{TOPIC}")[0])
        if topic["adding_replicas"] or topic["removing_replicas"]:
            return False
        states = [self.state(p) for p in range(PARTITION_COUNT)]
        return all(found == replicas for found in topic["partitions"].values()) and all(
            set(s["isr"]) == set(replicas) and s["leader"] in replicas for s in states
        )

    def controller(self) -> int:
        if self._znodes.exists("/controller") is None:
            return -1
        return int(json.loads(self._znodes.retry(self._znodes.get, "/controller")[0])["brokerid"])

    def check_replicas(self) -> None:
        """Kafka's own tool finds them the same."""
        check_replicas(self._jars, self.bootstrap, TOPIC, PARTITION_COUNT, self.home / "replicas.txt")


@pytest.fixture
def replicas(kafka_jars: Path, tmp_path: Path) -> Iterator[Start]:
    started: list[MixedReplicas] = []

    def start(kinds: Mapping[int, str]) -> MixedReplicas:
        started.append(MixedReplicas(tmp_path, kafka_jars, kinds))
        return started[-1]

    yield start
    for cluster in started:
        cluster.end()


# In short: either kind replicates what the other leads in test_conformance_mixed_cluster.py.
@pytest.mark.long
@pytest.mark.parametrize("kinds", [{1: HEADRACE, 2: KAFKA, 3: HEADRACE}, {1: KAFKA, 2: HEADRACE, 3: KAFKA}])
def test_leaders_of_either_kind_die_and_nothing_acknowledged_is_lost(
    replicas: Start, kinds: Mapping[int, str]
) -> None:
    cluster = replicas(kinds)
    writer, reader = Writer(cluster), GroupReader(cluster)
    writer.wait_for_more()
    led = {cluster.leader(partition): partition for partition in range(PARTITION_COUNT)}
    for leader, partition in led.items():
        cluster.brokers[leader].kill()
        eventually(lambda p=partition, n=leader: cluster.leader(p) != n, what="another leader")  # type: ignore[misc]
        writer.wait_for_more()
        cluster.start(leader)
        cluster.wait_until_in_sync()
    check(cluster, writer, reader)
    cluster.check_replicas()


@pytest.mark.long
def test_a_rolling_swap_to_apache_kafka_and_back_under_load(replicas: Start) -> None:
    cluster = replicas({1: HEADRACE, 2: HEADRACE, 3: HEADRACE})
    writer, reader = Writer(cluster), GroupReader(cluster)
    for kind in (KAFKA, HEADRACE):
        for number in cluster.addresses:
            cluster.swap(number, kind)
            writer.wait_for_more()
    check(cluster, writer, reader)
    cluster.check_replicas()


@pytest.mark.long
def test_partitions_move_among_three_brokers_of_both_kinds_under_load(replicas: Start) -> None:
    """Each pair in turn has them; once the controller dies in the middle, and one of the other kind goes on."""
    cluster = replicas({1: HEADRACE, 2: KAFKA, 3: HEADRACE})
    writer, reader = Writer(cluster), GroupReader(cluster)
    for through, wanted in enumerate(([1, 2], [2, 3], [3, 1]), start=1):
        cluster.begin_move(wanted, through)
        eventually(lambda w=wanted: cluster.has_moved(w), what=f"replicas on {wanted}")  # type: ignore[misc]
        writer.wait_for_more()
    controller = cluster.controller()
    cluster.begin_move([1, 2, 3], controller)
    cluster.brokers[controller].kill()
    eventually(lambda: cluster.controller() not in (-1, controller), what="another controller")
    writer.wait_for_more()
    cluster.start(controller)
    eventually(lambda: cluster.has_moved([1, 2, 3]), what="replicas on all")
    check(cluster, writer, reader)
    cluster.check_replicas()
