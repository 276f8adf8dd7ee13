"""headrace and Apache Kafka 3.9 in one cluster, each as the other's controller, leader and follower."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_oracle import KafkaBroker
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from processes import BrokerProcess, eventually
from raw_client import API_VERSIONS, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, RawClient
from sessions import Session
from test_conformance_quotas import ALTER_QUOTAS, alteration, asked
from zookeeper_process import ZooKeeperProcess

from headrace.broker.errors import ErrorCode
from headrace.broker.wire.api import k21_delete_records
from headrace.broker.wire.batches import iter_batches

pytestmark = pytest.mark.acceptance

HEADRACE, KAFKA, SECOND = 1, 2, 3
DELETE_RECORDS = k21_delete_records.API.key
RACKS = {HEADRACE: "rack-1", KAFKA: "rack-2"}
RACK_AWARE = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


class MixedCluster:
    """One broker of each kind on one ZooKeeper; headrace comes first and is controller."""

    def __init__(self, home: Path, jars: Path) -> None:
        self.home = home
        self.zookeeper = ZooKeeperProcess(home / "zookeeper")
        self.start_headrace()
        self.kafka = KafkaBroker(
            jars,
            home / "kafka",
            broker_id=KAFKA,
            zookeeper=self.zookeeper.address,
            set={"broker.rack": RACKS[KAFKA], **RACK_AWARE},
        )
        self.znodes = KazooClient(self.zookeeper.address)
        self.znodes.start()
        eventually(lambda: self.sees(KAFKA) and self.sees(HEADRACE), timeout_s=90, what="one cluster")

    def start_headrace(self) -> None:
        self.headrace = BrokerProcess(
            self.home / "headrace",
            broker_id=HEADRACE,
            zookeeper=self.zookeeper.address,
            set={
                "zookeeper.session.timeout.ms": "3000",
                "replica.lag.time.max.ms": "4000",
                "broker.rack": RACKS[HEADRACE],
                **RACK_AWARE,
            },
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

    def create_replicated(self, topic: str, *partitions: list[int]) -> None:
        """By its znode, as every controller takes it."""
        assignment = {
            "version": 3,
            "topic_id": base64.urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode(),
            "partitions": {str(number): replicas for number, replicas in enumerate(partitions)},
            "adding_replicas": {},
            "removing_replicas": {},
        }
        self.znodes.create(f"/brokers/topics/{topic}", json.dumps(assignment).encode())

    def in_sync(self, topic: str) -> dict[int, list[int]]:
        """The ISR of each partition, as ZooKeeper has it."""
        found = {}
        for partition in self.znodes.get_children(f"/brokers/topics/{topic}/partitions"):
            state = self.znodes.get(f"/brokers/topics/{topic}/partitions/{partition}/state")[0]
            found[int(partition)] = sorted(json.loads(state)["isr"])
        return found

    def replicas(self, topic: str, partition: int) -> tuple[bytes, bytes]:
        """The log of each kind, as it lies on the disk."""
        folder = f"logs/{topic}-{partition}/00000000000000000000.log"
        return (self.home / "headrace" / folder).read_bytes(), (self.home / "kafka" / folder).read_bytes()

    def is_replicated(self, topic: str, batches: int) -> bool:
        """Whether both are in sync, and have the same, so many batches."""
        if self.in_sync(topic) != {0: [HEADRACE, KAFKA], 1: [HEADRACE, KAFKA]}:
            return False
        both = [self.replicas(topic, partition) for partition in range(2)]
        return all(ours == theirs and len(list(iter_batches(ours))) == batches for ours, theirs in both)

    def leaders(self, topic: str, through: int) -> dict[int, int]:
        found = self.admin(through).list_topics(topic, timeout=10).topics[topic].partitions
        return {p: m.leader for p, m in found.items()}

    def produce(self, topic: str, through: int, partitions: int = 4) -> list[object]:
        """The delivery errors of one message to each partition, acknowledged by all that are in sync."""
        errors: list[object] = []
        settings = {"bootstrap.servers": self.address(through), "message.timeout.ms": 15_000, "log_level": 0}
        producer = Producer(settings)
        for partition in range(partitions):
            producer.produce(topic, b"x", partition=partition, on_delivery=lambda e, _: errors.append(e))
        producer.flush(20)
        return errors

    def ask(self, broker: int, key: int, version: int, message: dict[str, Any]) -> dict[str, Any]:
        """What one of them answers to a raw request."""
        host, port = self.address(broker).rsplit(":", 1)
        client = RawClient(SimpleNamespace(addresses=[(host, int(port))]))  # type: ignore[arg-type]
        try:
            return client.ask(key, version, message)
        finally:
            client.socket.close()

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


def check_lag(mixed: MixedCluster, topic: str) -> None:
    """A leader of headrace's has Kafka's controller take a follower out that lags, and in again."""
    second = BrokerProcess(mixed.home / "second", broker_id=SECOND, zookeeper=mixed.zookeeper.address)
    try:
        mixed.create_replicated(topic, [HEADRACE, SECOND])
        eventually(lambda: mixed.leaders(topic, HEADRACE) == {0: HEADRACE}, what="headrace as leader")
        assert mixed.produce(topic, HEADRACE, 1) == [None]
        second.process.send_signal(signal.SIGSTOP)
        # Acknowledged by all in sync, which is the leader alone in the end.
        assert mixed.produce(topic, HEADRACE, 1) == [None]
        assert mixed.in_sync(topic) == {0: [HEADRACE]}
        second.process.send_signal(signal.SIGCONT)
        eventually(lambda: mixed.in_sync(topic) == {0: [HEADRACE, SECOND]}, what="the follower in sync again")
        assert mixed.controller() == KAFKA
        # Nobody could lead it when both stop.
        admin = mixed.admin(HEADRACE)
        admin.delete_topics([topic], operation_timeout=20)[topic].result(30)
    finally:
        second.process.send_signal(signal.SIGCONT)
        second.end()


@pytest.mark.long
def test_either_kind_of_broker_follows_the_other_as_controller(mixed: MixedCluster) -> None:
    assert mixed.controller() == HEADRACE
    check(mixed, "under-headrace")
    mixed.headrace.kill()
    eventually(lambda: mixed.controller() == KAFKA, timeout_s=40, what="Kafka as controller")
    mixed.start_headrace()
    eventually(lambda: mixed.sees(KAFKA), what="headrace's return")
    check(mixed, "under-kafka")
    check_lag(mixed, "lagging")
    eventually(
        lambda: -1 not in mixed.leaders("under-headrace", KAFKA).values(), what="the old topic led again"
    )
    assert mixed.produce("under-headrace", HEADRACE) == [None] * 4
    assert mixed.headrace.stop() == 0
    assert "without the controller's consent" not in mixed.headrace.log.read_text()


@pytest.mark.long
def test_a_quota_that_is_set_through_either_kind_of_broker_holds_on_both(mixed: MixedCluster) -> None:
    sessions = {
        broker: Session((host, int(port)))
        for broker in (HEADRACE, KAFKA)
        for host, _, port in [mixed.address(broker).rpartition(":")]
    }
    for setter in (HEADRACE, KAFKA):
        for percentage, throttle_ms in ((0.0, 1000), (None, 0)):
            entry = alteration({"client-id": "mixed"}, {"request_percentage": percentage})
            sessions[setter].look(ALTER_QUOTAS, 1, {"entries": [entry], "validate_only": False})
            for told in sessions.values():
                eventually(partial(is_throttled_for, told, "mixed", throttle_ms), what="the quota on both")


def is_throttled_for(session: Session, client: str, throttle_ms: int) -> bool:
    return bool(asked(session, client, API_VERSIONS, 2, {})["throttle_time_ms"] == throttle_ms)


def test_either_kind_of_broker_replicates_what_the_other_leads(mixed: MixedCluster) -> None:
    topic, two = "both", [None] * 2
    mixed.create_replicated(topic, [HEADRACE, KAFKA], [KAFKA, HEADRACE])
    eventually(lambda: mixed.leaders(topic, KAFKA) == {0: HEADRACE, 1: KAFKA}, what="a leader of each kind")
    for _ in range(3):
        assert mixed.produce(topic, HEADRACE, 2) == two
    eventually(lambda: mixed.is_replicated(topic, 3), timeout_s=30, what="the same on both")
    by_headrace = told_by_leader_and_follower(mixed, topic, 0, HEADRACE, KAFKA)
    assert by_headrace == told_by_leader_and_follower(mixed, topic, 1, KAFKA, HEADRACE)
    assert by_headrace["sent to the follower's rack"] == (ErrorCode.NONE, "follower", False)
    assert by_headrace["read from the follower"] == (ErrorCode.NONE, None, True)
    assert by_headrace["records deleted"] == (ErrorCode.NONE, 1)
    mixed.headrace.kill()
    eventually(
        lambda: set(mixed.leaders(topic, KAFKA).values()) == {KAFKA}, timeout_s=40, what="Kafka as leader"
    )
    assert mixed.produce(topic, KAFKA, 2) == two
    mixed.start_headrace()
    eventually(lambda: mixed.is_replicated(topic, 4), timeout_s=40, what="headrace's return")
    mixed.kafka.end()
    eventually(
        lambda: set(mixed.leaders(topic, HEADRACE).values()) == {HEADRACE},
        timeout_s=40,
        what="headrace as leader",
    )
    assert mixed.produce(topic, HEADRACE, 2) == two
    mixed.kafka.start()
    eventually(lambda: mixed.is_replicated(topic, 5), timeout_s=60, what="Kafka's return")
    assert mixed.produce(topic, HEADRACE, 2) == two
    eventually(lambda: mixed.is_replicated(topic, 6), timeout_s=30, what="the same once more")


def told_by_leader_and_follower(
    mixed: MixedCluster, topic: str, partition: int, leader: int, follower: int
) -> dict[str, object]:
    """What a partition's leader and its follower answer to consumers and brokers of all kinds."""

    def fetch(
        broker: int, version: int, *, replica: int = -1, rack: str = "", **fields: int
    ) -> tuple[Any, ...]:
        """Error, which replica to read from rather, and whether records came."""
        wanted = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20} | fields
        message: dict[str, Any] = {
            "replica_id": replica,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "topics": [{"topic": topic, "partitions": [wanted]}],
        }
        if version >= 11:
            message["rack_id"] = rack
        (found,) = mixed.ask(broker, FETCH, version, message)["responses"][0]["partitions"]
        rather = {leader: "leader", follower: "follower"}.get(found["preferred_read_replica"])
        return found["error_code"], rather, bool(found["records"])

    def end(broker: int, replica: int) -> tuple[int, int]:
        wanted = {"partition_index": partition, "timestamp": -1}
        message = {"replica_id": replica, "topics": [{"name": topic, "partitions": [wanted]}]}
        (found,) = mixed.ask(broker, LIST_OFFSETS, 7, message)["topics"][0]["partitions"]
        return found["error_code"], found["offset"]

    def epoch_end(broker: int, epoch: int) -> tuple[int, int]:
        wanted = {"partition": partition, "current_leader_epoch": epoch, "leader_epoch": 0}
        message = {"replica_id": 9, "topics": [{"topic": topic, "partitions": [wanted]}]}
        answer = mixed.ask(broker, OFFSET_FOR_LEADER_EPOCH, 4, message)
        (found,) = answer["topics"][0]["partitions"]
        return found["error_code"], found["end_offset"]

    def deleted(offset: int) -> tuple[int, int]:
        wanted = {"partition_index": partition, "offset": offset}
        message = {"topics": [{"name": topic, "partitions": [wanted]}], "timeout_ms": 20_000}
        (found,) = mixed.ask(leader, DELETE_RECORDS, 2, message)["topics"][0]["partitions"]
        return found["error_code"], found["low_watermark"]

    # A follower learns with its next fetch what is committed.
    eventually(lambda: fetch(follower, 11)[2], what="committed records on the follower")
    told: dict[str, object] = {
        "sent to the follower's rack": fetch(leader, 11, rack=RACKS[follower]),
        "read in the leader's rack": fetch(leader, 11, rack=RACKS[leader]),
        "read in another rack": fetch(leader, 12, rack="elsewhere"),
        "read from the follower": fetch(follower, 11, rack=RACKS[follower]),
        "read from the follower's end": fetch(follower, 11, fetch_offset=3),
        "read beyond the follower's end": fetch(follower, 11, fetch_offset=4),
        "asked of the follower by who knows of none": fetch(follower, 10),
        "records deleted": deleted(1),
        "deleted above the watermark": deleted(4),
    }
    for broker, name in ((leader, "leader"), (follower, "follower")):
        for epoch in (-1, 0, 7):
            told[f"epoch {epoch} of the {name}"] = fetch(
                broker, 11, current_leader_epoch=epoch, fetch_offset=1
            )
            told[f"a stranger to the {name} in epoch {epoch}"] = fetch(
                broker, 12, replica=9, current_leader_epoch=epoch
            )
            told[f"the {name}'s end of epoch 0 in epoch {epoch}"] = epoch_end(broker, epoch)
        for replica in (-1, -2, 9):
            told[f"the {name}'s end for {replica}"] = end(broker, replica)
    return told
