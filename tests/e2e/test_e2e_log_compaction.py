"""Compaction really happens in a running broker: committed offsets, and a compacted topic under a reader's eyes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from processes import DevCluster, eventually

COMMITS = 600
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "5000",
    "log.cleaner.backoff.ms": "1000",
}


def size_of(data: Path, partition: str) -> int:
    return sum(path.stat().st_size for path in (data / "broker-1" / "logs" / partition).glob("*.log"))


def test_committed_offsets_are_compacted_and_survive_a_killed_broker(
    dev_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    cluster = dev_cluster(data=data, set=SETTINGS)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    for number in range(1, COMMITS + 1):
        consumer.commit(
            offsets=[confluent_kafka.TopicPartition("t", 0, number, f"note {number}")], asynchronous=False
        )
    consumer.close()
    folder = "__consumer_offsets-0"
    eventually(lambda: "log compacted" in cluster.broker_log(), what="a compaction")
    eventually(lambda: size_of(data, folder) < 15_000, timeout_s=30, what="a small log")
    cluster.kill_broker()

    again = dev_cluster(data=data, listen=cluster.bootstrap, set=SETTINGS)
    reader = confluent_kafka.Consumer({"bootstrap.servers": again.bootstrap, "group.id": "g"})
    (found,) = reader.committed([confluent_kafka.TopicPartition("t", 0)], timeout=30)
    reader.close()
    assert (found.offset, found.metadata) == (COMMITS, f"note {COMMITS}")


def test_a_reader_goes_on_while_its_topic_is_compacted(
    dev_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    cluster = dev_cluster(data=data, set={**SETTINGS, "log.cleaner.backoff.ms": "3600000"})
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": "50000",
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "0",
    }
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("state", 1, 1, config=config)])["state"].result(20)
    # Not once an hour, but at once, and without a restart.
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in (("log.cleaner.backoff.ms", "1000"), ("log.cleaner.threads", "2"))
    ]
    broker = ConfigResource("BROKER", "1", incremental_configs=entries)
    for altered in admin.incremental_alter_configs([broker]).values():
        altered.result(20)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 2}
    )
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "r", "fetch.message.max.bytes": 3000}
    )
    reader.assign([confluent_kafka.TopicPartition("state", 0, 0)])
    state: dict[bytes | None, bytes | None] = {}
    expected: dict[bytes | None, bytes | None] = {}
    offsets: list[Any] = []
    deadline = time.monotonic() + 60
    for number in range(6000):
        key, value = b"%d" % (number % 50), b"%d" % number * 20
        producer.produce("state", value, key)
        expected[key] = value
        producer.poll(0)
        if number % 100 == 0:
            time.sleep(0.05)
            for message in reader.consume(100, 0.0):
                assert message.error() is None
                state[message.key()] = message.value()
                offsets.append(message.offset())
    assert producer.flush(20) == 0
    while state != expected:
        assert time.monotonic() < deadline
        for message in reader.consume(1000, 0.5):
            assert message.error() is None
            state[message.key()] = message.value()
            offsets.append(message.offset())
    reader.close()
    assert offsets == sorted(set(offsets))
    eventually(lambda: size_of(data, "state-0") < 200_000, timeout_s=30, what="a small log")
