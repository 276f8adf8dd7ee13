"""Copies of a source with transactions, Apache Kafka: their bytes, their readers, and a failover in the middle of one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from commands import Done, headrace
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kafka_oracle import KafkaBroker
from mirror_clusters import Cluster
from processes import eventually
from zookeeper_process import ZooKeeperProcess

from headrace.broker.wire.batches import iter_batches
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.config import parse_addresses

Answer = TypeVar("Answer")

TOPIC, COPY = "orders", "dc-east.orders"
SOURCE_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
UNFINISHED_MS = 600_000


@pytest.fixture(scope="module")
def source(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    home = tmp_path_factory.mktemp("source")
    kafka = KafkaBroker(
        kafka_jars, home, broker_id=1, zookeeper=zookeeper.under_chroot(home), set=SOURCE_SETTINGS
    )
    kafka.wait_until_serving()

    def names_brokers() -> bool:
        return bool(AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10).brokers)

    # A client that hears of no controller asks again after minutes only.
    eventually(names_brokers, what="Apache Kafka's controller")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
        made.result(60)
    yield kafka
    kafka.end()


@pytest.fixture(scope="module")
def copies(
    source: KafkaBroker, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Cluster]]:
    """A cluster by isolation level that it reads the source with."""
    found = {}
    for isolation in ("read_uncommitted", "read_committed"):
        settings = {
            "mirror.sources": "dc-east",
            "mirror.metadata.max.age.ms": "500",
            "mirror.dc-east.bootstrap.servers": source.bootstrap,
            "mirror.dc-east.topics": TOPIC,
            "mirror.dc-east.isolation": isolation,
        }
        found[isolation] = Cluster(tmp_path_factory.mktemp(isolation), zookeeper, 1, settings)
    yield found
    for cluster in found.values():
        for broker in cluster.brokers.values():
            broker.end()


class Writer:
    """Publishes to a topic, within transactions or without."""

    def __init__(self, bootstrap: str, topic: str, name: str = "") -> None:
        settings = {"bootstrap.servers": bootstrap, "log_level": 0}
        if name:
            settings |= {"transactional.id": name, "transaction.timeout.ms": UNFINISHED_MS}
        self._topic = topic
        self.producer = Producer(settings)
        if name:
            self.producer.init_transactions(60)

    def put(self, *values: str) -> None:
        failed: list[KafkaError] = []
        for value in values:
            self.producer.produce(
                self._topic, value, on_delivery=lambda error, _: failed.append(error) if error else None
            )
        assert self.producer.flush(60) == 0
        if failed:
            raise KafkaException(failed[0])


def asked(bootstrap: str, question: Callable[[ClusterClient], Awaitable[Answer]]) -> Answer:
    """What a cluster answers a reader that does not care for transactions."""

    async def work() -> Answer:
        async with ClusterClient(parse_addresses("bootstrap", bootstrap)) as client:
            return await question(client)

    return asyncio.run(work())


def batches(bootstrap: str, topic: str) -> list[bytes]:
    """Every batch up to the high watermark, but for its leader epoch."""

    async def read(client: ClusterClient) -> list[bytes]:
        found: list[bytes] = []
        offset = 0
        while records := bytes(await client.fetch(topic, 0, offset)):
            for position, header in iter_batches(records):
                end = position + header.size
                found.append(records[position : position + 12] + records[position + 16 : end])
                offset = header.next_offset
        return found

    return asked(bootstrap, read)


def committed(bootstrap: str, topic: str) -> list[str]:
    """What a reader of committed messages gets from the topic's start, until there is nothing more for it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"nothing more after {found}"
        error, value = message.error(), message.value()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        found.append((value or b"").decode())
    consumer.close()
    return found


def end_offset(bootstrap: str, topic: str) -> int:
    """The high watermark; -1 where there is no such topic."""
    return asked(bootstrap, lambda client: client.log_ends([(topic, 0)])).get(f"{topic}-0", -1)


def mirror(cluster: Cluster, *arguments: str) -> Done:
    return headrace("mirror", *arguments, "--bootstrap", cluster.bootstrap)


@pytest.mark.long
def test_copies_end_where_they_are_told_to_and_a_failover_ends_what_is_cut(
    source: KafkaBroker, copies: dict[str, Cluster]
) -> None:
    uncommitted, stable = copies["read_uncommitted"], copies["read_committed"]
    first, second, third = (Writer(source.bootstrap, TOPIC, name) for name in ("first", "second", "third"))
    first.producer.begin_transaction()
    first.put("a1", "a2")
    second.producer.begin_transaction()
    second.put("never 1", "never 2")
    first.producer.commit_transaction(60)
    second.producer.abort_transaction(60)
    _wait_for_markers(source, 4 + 2)
    bare = Writer(source.bootstrap, TOPIC)
    bare.put("b1")
    whole_before, open_offset = batches(source.bootstrap, TOPIC), 7
    third.producer.begin_transaction()
    third.put("c1", "c2")
    bare.put("d1")
    first.producer.begin_transaction()
    first.put("e1")
    first.producer.commit_transaction(60)
    end = open_offset + 5
    _wait_for_markers(source, end)

    eventually(lambda: _end(uncommitted) == end, timeout_s=60, what="the copy up to the high watermark")
    eventually(lambda: _end(stable) == open_offset, timeout_s=60, what="the copy up to the stable offset")
    assert batches(uncommitted.bootstrap, COPY) == batches(source.bootstrap, TOPIC)
    assert batches(stable.bootstrap, COPY) == whole_before
    for bootstrap, topic in _all(source, copies):
        assert committed(bootstrap, topic) == ["a1", "a2", "b1"], bootstrap
    assert _end(stable) == open_offset, "nothing came while it was read"

    third.producer.commit_transaction(60)
    end += 1
    for cluster in copies.values():
        eventually(lambda c=cluster: _end(c) == end, timeout_s=60, what="the whole copy")  # type: ignore[misc]
        assert batches(cluster.bootstrap, COPY) == batches(source.bootstrap, TOPIC)
    for bootstrap, topic in _all(source, copies):
        assert committed(bootstrap, topic) == ["a1", "a2", "b1", "c1", "c2", "d1", "e1"], bootstrap

    second.producer.begin_transaction()
    second.put("never 3", "never 4", "never 5")
    bare.put("f1")
    eventually(lambda: _end(uncommitted) == end + 4, timeout_s=60, what="the begin of a transaction")
    source.kill()
    said = mirror(uncommitted, "failover", COPY, "--dry-run")
    assert said.returncode == 0, said.stderr
    assert f"is cut in the middle: 3 messages from offset {end} on." in said.stdout, said.stdout
    assert "1 transaction would be aborted." in said.stdout
    assert _end(uncommitted) == end + 4
    # As an order that was broken off between its two steps leaves it.
    _end_copy(uncommitted)
    eventually(lambda: _takes(uncommitted, "g1"), what="the end of the copy")
    assert committed(uncommitted.bootstrap, COPY)[-1] == "e1", "readers wait behind the open transaction"
    for count in (1, 0):
        done = mirror(uncommitted, "failover", COPY)
        assert done.returncode == 0, done.stderr
        assert ("1 transaction is aborted." in done.stdout) is bool(count), done.stdout
        assert _end(uncommitted) == end + 6, "four copied ones, one of here, one marker"
    assert committed(uncommitted.bootstrap, COPY)[-3:] == ["e1", "f1", "g1"]
    uncommitted.kill_and_start(0)
    assert committed(uncommitted.bootstrap, COPY)[-3:] == ["e1", "f1", "g1"]

    done = mirror(stable, "failover", COPY)
    assert (done.returncode, "transaction" in done.stdout) == (0, False), done.stdout
    eventually(lambda: _takes(stable, "h1"), what="the end of the other copy")
    assert committed(stable.bootstrap, COPY)[-2:] == ["e1", "h1"]


def _wait_for_markers(source: KafkaBroker, end: int) -> None:
    """A commit is answered before its markers are written."""
    eventually(lambda: end_offset(source.bootstrap, TOPIC) == end, timeout_s=60, what="the source's markers")


def _end_copy(cluster: Cluster) -> None:
    entry = ConfigEntry("headrace.mirror.clusters", "", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", COPY, incremental_configs=[entry])
    cluster.admin.incremental_alter_configs([resource])[resource].result(20)


def _end(cluster: Cluster) -> int:
    return end_offset(cluster.bootstrap, COPY)


def _takes(cluster: Cluster, value: str) -> bool:
    try:
        Writer(cluster.bootstrap, COPY).put(value)
    except KafkaException:
        return False
    return True


def _all(source: KafkaBroker, copies: dict[str, Cluster]) -> list[tuple[str, str]]:
    return [(source.bootstrap, TOPIC), *((cluster.bootstrap, COPY) for cluster in copies.values())]
