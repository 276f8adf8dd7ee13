"""Live and offline clusters of single brokers that keep their addresses, and a comparison of whole logs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from processes import BrokerProcess, eventually, free_port
from zookeeper_process import ZooKeeperProcess

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.wire import partitions
from headrace.broker.wire.batches import check_crc, iter_batches
from headrace.load.log_client import LogClient
from headrace.mirror.lineage import INTERNAL


class Cluster:
    """Brokers that are killed and started again under the same address."""

    def __init__(
        self, home: Path, zookeeper: ZooKeeperProcess, brokers: int, settings: dict[str, str] | None = None
    ) -> None:
        self.home = home
        self.zookeeper = zookeeper.under_chroot(home)
        self.ports = [free_port() for _ in range(brokers)]
        self.metrics_ports = [free_port() for _ in range(brokers)]
        self.settings = settings or {}
        self.brokers: dict[int, BrokerProcess] = {}
        for number in range(brokers):
            self.start(number)

    def start(self, number: int) -> None:
        self.brokers[number] = BrokerProcess(
            self.home / f"broker-{number}",
            broker_id=number,
            zookeeper=self.zookeeper,
            set={
                "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[number]}",
                "headrace.metrics.listener": f"127.0.0.1:{self.metrics_ports[number]}",
                "zookeeper.session.timeout.ms": "3000",
                "offsets.topic.num.partitions": "2",
                **self.settings,
            },
        )

    def kill_and_start(self, number: int) -> None:
        self.brokers[number].kill()
        self.start(number)

    def mirror(self, sources: dict[str, Cluster]) -> None:
        """Start the brokers again with these clusters as their sources, by the name that each is given here."""
        self.settings |= {"mirror.sources": ",".join(sources), "mirror.metadata.max.age.ms": "500"}
        for name, source in sources.items():
            self.settings[f"mirror.{name}.bootstrap.servers"] = source.bootstrap
        for number in self.brokers:
            self.kill_and_start(number)

    @property
    def topics(self) -> set[str]:
        """All names but those of the topics that brokers keep for themselves."""
        names = self.admin.list_topics(timeout=10).topics
        return {name for name in names if not name.startswith("__") and name not in INTERNAL}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, topic: str, partitions: int, **config: str) -> None:
        new = NewTopic(topic, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
        try:
            self.admin.create_topics([new])[topic].result(20)
        except KafkaException as error:
            if error.args[0].name() != "NOT_CONTROLLER":
                raise
            # librdkafka goes on asking the broker that was controller until its next periodic refresh.
            del self.admin
            self.admin.create_topics([new])[topic].result(20)

    def publish(
        self, topic: str, count: int, partition: int = -1, size: int = 100, timestamp_ms: int = 0
    ) -> None:
        """`timestamp_ms` 0: now."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 2, "batch.num.messages": 50, "log_level": 0}
        )
        for number in range(count):
            where: dict[str, Any] = {} if partition < 0 else {"partition": partition}
            producer.produce(topic, (b"%d-" % number).ljust(size, b"x"), timestamp=timestamp_ms, **where)
            producer.poll(0)
        assert producer.flush(60) == 0

    def log_start(self, topic: str) -> int:
        """The log start offset of a topic's only partition."""
        client = LogClient(Bootstrap(self.bootstrap))
        try:
            place = partitions.TopicPartition(topic, 0)
            return client.log_offsets([place])[place].start
        finally:
            client.close()

    def batches(self, topic: str) -> dict[int, list[tuple[int, int, int]]]:
        """Partition → (base offset, last offset, checksum) of every batch, each checksum verified."""
        client = LogClient(Bootstrap(self.bootstrap))
        found: dict[int, list[tuple[int, int, int]]] = {}
        for place in client.partitions(lambda name: name == topic):
            limits = client.log_offsets([place])[place]
            offset, found[place.partition] = limits.start, []
            while offset < limits.end:
                records = client.fetch(place, offset, size_max=2**22, wait_ms=100).records
                if not records:
                    # A copy that is restored gets shorter while it is read.
                    limits = client.log_offsets([place])[place]
                for position, header in iter_batches(records):
                    assert check_crc(records, position, header)
                    found[place.partition].append((header.base_offset, header.last_offset, header.crc))
                    offset = header.next_offset
        client.close()
        return found

    def end_offset(self, topic: str, partition: int) -> int:
        client = LogClient(Bootstrap(self.bootstrap))
        try:
            place = partitions.TopicPartition(topic, partition)
            end: int = client.log_offsets([place])[place].end
            return end
        finally:
            client.close()

    def records(self, topic: str) -> list[Any]:
        """The JSON values of a small topic."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "test", "log_level": 0})
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found, deadline = [], time.monotonic() + 2
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(json.loads(message.value() or b""))
        consumer.close()
        return found

    def metrics(self) -> str:
        """The metrics pages of all brokers."""
        pages = []
        for port in self.metrics_ports:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                pages.append(page.read().decode())
        return "\n".join(pages)

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.end()


def copied(live: Cluster, offline: Cluster, topic: str, source: str = "dc-east") -> None:
    """Wait until the copy has the source's end, then compare every batch."""
    wanted = live.batches(topic)

    def is_there() -> bool:
        try:
            return offline.batches(f"{source}.{topic}") == wanted
        except Exception:
            return False

    eventually(is_there, timeout_s=40, what=f"the copy of {topic}")


def is_copy(cluster: Cluster, topic: str) -> bool:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = cluster.admin.describe_configs([resource])[resource].result(20)
    mark = found.get("headrace.mirror.clusters")
    return mark is not None and bool(mark.value)


def mirror_process(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headrace.cli", "mirror", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def mirror(*arguments: str) -> str:
    """What `headrace mirror` says; it has to succeed."""
    process = mirror_process(*arguments)
    told, problem = process.communicate(timeout=100)
    assert process.returncode == 0, problem
    return told


def flip(live: Cluster, topic: str, offset: int) -> None:
    """Flip a bit of the batch at `offset` in the segment of the live cluster."""
    (path,) = live.home.glob(f"broker-*/logs/{topic}-0/*.log")
    data = path.read_bytes()
    position = next(p + header.size - 1 for p, header in iter_batches(data) if header.base_offset == offset)
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes([data[position] ^ 1]))
