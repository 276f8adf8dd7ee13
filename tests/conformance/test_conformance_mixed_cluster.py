"""headrace and Apache Kafka 3.9 in one cluster, each as the other's controller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_oracle import KafkaBroker
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from processes import BrokerProcess, eventually
from zookeeper_process import ZooKeeperProcess

HEADRACE, KAFKA = 1, 2


class MixedCluster:
    """One broker of each kind on one ZooKeeper; headrace comes first and is controller."""

    def __init__(self, home: Path, jars: Path) -> None:
        self.home = home
        self.zookeeper = ZooKeeperProcess(home / "zookeeper")
        self.start_headrace()
        self.kafka = KafkaBroker(jars, home / "kafka", broker_id=KAFKA, zookeeper=self.zookeeper.address)
        self.znodes = KazooClient(self.zookeeper.address)
        self.znodes.start()
        eventually(lambda: self.sees(KAFKA) and self.sees(HEADRACE), timeout_s=90, what="one cluster")

    def start_headrace(self) -> None:
        self.headrace = BrokerProcess(
            self.home / "headrace",
            broker_id=HEADRACE,
            zookeeper=self.zookeeper.address,
            set={"zookeeper.session.timeout.ms": "3000"},
        )

    def address(self, broker: int) -> str:
        return self.headrace.bootstrap if broker == HEADRACE else self.kafka.bootstrap

    def admin(self, broker: int) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address(broker), "log_level": 0})

    def sees(self, broker: int) -> bool:
        try:
            return set(self.admin(broker).list_topics(timeout=2).brokers) == {HEADRACE, KAFKA}
        except Exception:
            return False

    def controller(self) -> int | None:
        try:
            return int(json.loads(self.znodes.get("/controller")[0])["brokerid"])
        except NoNodeError:
            return None

    def create(self, topic: str) -> None:
        admin = self.admin(HEADRACE)
        admin.create_topics([NewTopic(topic, 4, 1)], operation_timeout=20)[topic].result(30)

    def leaders(self, topic: str, through: int) -> dict[int, int]:
        found = self.admin(through).list_topics(topic, timeout=10).topics[topic].partitions
        return {p: m.leader for p, m in found.items()}

    def produce(self, topic: str, through: int) -> list[object]:
        """The delivery errors of one message to each of four partitions."""
        errors: list[object] = []
        settings = {"bootstrap.servers": self.address(through), "message.timeout.ms": 15_000, "log_level": 0}
        producer = Producer(settings)
        for partition in range(4):
            producer.produce(topic, b"x", partition=partition, on_delivery=lambda e, _: errors.append(e))
        producer.flush(20)
        return errors

    def end(self) -> None:
        self.kafka.end()
        self.headrace.end()
        self.znodes.stop()
        self.znodes.close()
        self.zookeeper.end()


@pytest.fixture
def mixed(kafka_jars: Path, tmp_path: Path) -> Iterator[MixedCluster]:
    cluster = MixedCluster(tmp_path, kafka_jars)
    yield cluster
    cluster.end()


def check(mixed: MixedCluster, topic: str) -> None:
    mixed.create(topic)
    # The client may ask the broker that did not create it and learns of it a little later.
    spread = [HEADRACE, HEADRACE, KAFKA, KAFKA]
    eventually(lambda: sorted(mixed.leaders(topic, HEADRACE).values()) == spread, what="leaders on both")
    leaders = mixed.leaders(topic, HEADRACE)
    eventually(lambda: mixed.leaders(topic, KAFKA) == leaders, what="the same metadata on both")
    for through in (HEADRACE, KAFKA):
        assert mixed.produce(topic, through) == [None] * 4


def test_either_kind_of_broker_follows_the_other_as_controller(mixed: MixedCluster) -> None:
    assert mixed.controller() == HEADRACE
    check(mixed, "under-headrace")
    mixed.headrace.kill()
    eventually(lambda: mixed.controller() == KAFKA, timeout_s=40, what="Kafka as controller")
    mixed.start_headrace()
    eventually(lambda: mixed.sees(KAFKA), what="headrace's return")
    check(mixed, "under-kafka")
    eventually(
        lambda: -1 not in mixed.leaders("under-headrace", KAFKA).values(), what="the old topic led again"
    )
    assert mixed.produce("under-headrace", HEADRACE) == [None] * 4
    assert mixed.headrace.stop() == 0
    assert "without the controller's consent" not in mixed.headrace.log.read_text()
