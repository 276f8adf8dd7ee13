"""Programs of Apache Kafka's that copy a topic in transactions, what is killed meanwhile, and what must hold afterwards."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from mixed_replicas import MixedReplicas
from processes import eventually
from replicated_cluster import BROKER_COUNT, PARTITION_COUNT, TOPIC

OUTPUT = "copies"
SETTINGS: Mapping[str, str] = {
    "transaction.state.log.num.partitions": "3",
    # Those of copiers that are killed between two transactions.
    "group.min.session.timeout.ms": "1000",
}
COORDINATORS = "__transaction_state"
SECONDS_MAX = 240.0


class CopierProcess:
    """A program that ends by itself, with 0, when it has copied all; it may be killed and started again."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = command
        self.log = log
        self.lives = 0
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
        self.lives += 1

    @property
    def is_done(self) -> bool:
        return self.process.poll() == 0

    def revive(self) -> None:
        """Start it again if it has ended otherwise: some errors are fatal to a producer."""
        if self.process.poll() not in (None, 0):
            self.start()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


def fill(cluster: MixedReplicas, count: int) -> None:
    """Make the output topic, and publish so many numbers to each partition of the input."""
    admin = cluster.admin()
    admin.create_topics([NewTopic(OUTPUT, PARTITION_COUNT, BROKER_COUNT)])[OUTPUT].result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(count):
        for partition in range(PARTITION_COUNT):
            producer.produce(TOPIC, b"%d" % number, key=b"%d" % partition, partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def coordinators(cluster: MixedReplicas) -> list[int]:
    """The brokers that lead a partition of the coordinators' topic."""
    try:
        found = cluster.admin().list_topics(COORDINATORS, timeout=5).topics[COORDINATORS].partitions
    except Exception:
        return []
    return sorted({each.leader for each in found.values() if each.leader > 0})


def harm(cluster: MixedReplicas, copiers: Sequence[CopierProcess], seed: int, brokers_killed: int) -> None:
    """Kill copiers and brokers, coordinators above all, until so many brokers died; then wait for the copiers' ends.

    Fails where the copiers ended before that.
    """
    randoms = random.Random(seed)
    while brokers_killed:
        assert not all(copier.is_done for copier in copiers), "give them more to copy"
        time.sleep(randoms.uniform(0.3, 2.0))
        if randoms.random() < 0.4:
            copier = randoms.choice(copiers)
            if not copier.is_done:
                copier.kill()
                time.sleep(randoms.uniform(0.0, 0.5))
                copier.start()
        else:
            victims = coordinators(cluster) if randoms.random() < 0.7 else []
            number = randoms.choice(victims or list(cluster.addresses))
            cluster.brokers[number].kill()
            brokers_killed -= 1
            time.sleep(randoms.uniform(0.1, 6.0))
            cluster.start(number)
            cluster.wait_until_in_sync()
        for copier in copiers:
            copier.revive()
    deadline = time.monotonic() + SECONDS_MAX
    while not all(copier.is_done for copier in copiers):
        assert time.monotonic() < deadline, [
            copier.log.read_text()[-1500:] for copier in copiers if not copier.is_done
        ]
        for copier in copiers:
            copier.revive()
        time.sleep(0.2)


def committed(bootstrap: str, topic: str, partition: int) -> list[str]:
    """All values that a reader of committed messages gets."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "check",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[str] = []
    while True:
        message = consumer.poll(60)
        assert message is not None, f"{topic}-{partition} cannot be read beyond {len(values)}"
        error = message.error()
        if error is None:
            values.append((message.value() or b"").decode())
        elif error.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return values


def has_no_open_transaction(bootstrap: str, topic: str, headrace: Callable[..., object]) -> None:
    """Every replica's leader says so, as `headrace transactions` shows."""

    def open_ones() -> list[object]:
        done = headrace(
            "transactions",
            "find-hanging",
            "--topic",
            topic,
            "--max-transaction-timeout",
            "0",
            "--json",
            "--bootstrap",
            bootstrap,
        )
        return list(json.loads(done.stdout))  # type: ignore[attr-defined]

    eventually(lambda: open_ones() == [], what="no hanging transaction")
