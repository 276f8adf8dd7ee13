"""Programs of Apache Kafka's that copy a topic in transactions, what is killed meanwhile, and what must hold afterwards."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from commands import headrace
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from mixed_replicas import HEADRACE, KAFKA, MixedReplicas
from processes import eventually
from replicated_cluster import BROKER_COUNT, PARTITION_COUNT, SESSION_TIMEOUT_MS, TOPIC

OUTPUT = "copies"
SETTINGS: Mapping[str, str] = {
    "transaction.state.log.num.partitions": "3",
    # Those of copiers that are killed between two transactions.
    "group.min.session.timeout.ms": "1000",
}
COORDINATORS = "__transaction_state"
SECONDS_MAX = 240.0
FEED_SECONDS, FED_AT_ONCE = 0.1, 100
AWAY_SECONDS = {HEADRACE: (0.1, 6.0), KAFKA: (SESSION_TIMEOUT_MS / 1000 + 1.0, 6.0)}
"""How long who was killed stays away: Apache Kafka does not start before ZooKeeper has forgotten it."""


class CopierProcess:
    """A program that ends with 0 when it has copied all, or never; it may be killed and started again."""

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


def make_output(cluster: MixedReplicas) -> None:
    # It is to live until its answer is there.
    admin = cluster.admin()
    admin.create_topics([NewTopic(OUTPUT, PARTITION_COUNT, BROKER_COUNT)])[OUTPUT].result(60)


class Feeder:
    """Publishes numbers to each partition of the input, the partition's own as the key."""

    def __init__(self, cluster: MixedReplicas) -> None:
        self.count = 0
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    def feed(self, count: int) -> None:
        """So many more in each partition."""
        for number in range(self.count, self.count + count):
            for partition in range(PARTITION_COUNT):
                self._producer.produce(TOPIC, b"%d" % number, key=b"%d" % partition, partition=partition)
            self._producer.poll(0)
        self.count += count

    def finish(self) -> None:
        """All that was fed is there, and no more comes."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        assert self._producer.flush(120) == 0

    def start(self) -> None:
        """Go on until `finish`."""
        self._thread.start()

    def _go_on(self) -> None:
        while not self._is_over.wait(FEED_SECONDS):
            self.feed(FED_AT_ONCE)


def coordinators(cluster: MixedReplicas) -> list[int]:
    """The brokers that lead a partition of the coordinators' topic."""
    try:
        found = cluster.admin().list_topics(COORDINATORS, timeout=5).topics[COORDINATORS].partitions
    except Exception:
        return []
    return sorted({each.leader for each in found.values() if each.leader > 0})


def harm(cluster: MixedReplicas, copiers: Sequence[CopierProcess], seed: int, brokers_killed: int) -> None:
    """Kill copiers and brokers, coordinators above all, until so many brokers died. Fails where no copier has anything to do."""
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
            time.sleep(randoms.uniform(*AWAY_SECONDS[cluster.kinds[number]]))
            cluster.start(number)
            cluster.wait_until_in_sync()
        for copier in copiers:
            copier.revive()


def wait_until(are_done: Callable[[], bool], copiers: Sequence[CopierProcess]) -> None:
    """Keep the copiers alive until all is copied."""
    deadline = time.monotonic() + SECONDS_MAX
    while not are_done():
        told = [copier.log.read_text()[-1500:] for copier in copiers if not copier.is_done]
        assert time.monotonic() < deadline, told
        for copier in copiers:
            copier.revive()
        time.sleep(0.5)


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


def wait_until_none_hangs(bootstrap: str, topic: str) -> None:
    """`headrace transactions` finds none."""
    options = ("--topic", topic, "--max-transaction-timeout", "0", "--json", "--bootstrap", bootstrap)
    eventually(
        lambda: json.loads(headrace("transactions", "find-hanging", *options).stdout) == [],
        what="the end of all transactions",
    )
