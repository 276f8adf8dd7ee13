"""Three brokers that replicate, clients that note what they were told, and what must hold of that afterwards."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from forked_process import ForkedProcess
from kazoo.client import KazooClient
from processes import BrokerProcess, eventually, free_port
from zookeeper_process import ZooKeeperProcess

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli.cluster_admin import ClusterAdmin

BROKER_COUNT = 3
SESSION_TIMEOUT_MS = 3000
TOPIC, PARTITION_COUNT = "events", 3
IN_SYNC_SECONDS_MAX = 60.0
SETTINGS: Mapping[str, str] = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "replica.lag.time.max.ms": "3000",
    "auto.create.topics.enable": "false",
}


class ReplicaBroker(Protocol):
    """A broker's process."""

    @property
    def process(self) -> subprocess.Popen[Any] | ForkedProcess: ...

    def stop(self) -> int | None: ...

    def kill(self) -> None: ...

    def end(self) -> None: ...


class ReplicatedCluster:
    """Brokers 1 to 3 with addresses that they keep, all partitions on each; `hosts` are their addresses."""

    def __init__(
        self,
        home: Path,
        *,
        hosts: Sequence[str] = ("127.0.0.1",) * BROKER_COUNT,
        zookeeper_host: str = "127.0.0.1",
        inside: Sequence[Sequence[str]] = ((),) * BROKER_COUNT,
    ) -> None:
        self.home = home
        self.zookeeper = ZooKeeperProcess(home / "zookeeper", zookeeper_host)
        self.addresses = {number: (host, free_port()) for number, host in enumerate(hosts, start=1)}
        self.brokers: dict[int, ReplicaBroker] = {}
        # By broker, beside SETTINGS, from its next start on.
        self.own_settings: dict[int, Mapping[str, str]] = {}
        self._inside = inside
        self._znodes = KazooClient(self.zookeeper.address)
        self._znodes.start()
        try:
            self._begin()
        except BaseException:
            self.end()
            raise

    def _begin(self) -> None:
        for number in self.addresses:
            self.start(number)
        eventually(
            lambda: len(self._children("/brokers/ids")) == BROKER_COUNT, timeout_s=60, what="one cluster"
        )
        admin = self.admin()
        admin.create_topics([NewTopic(TOPIC, PARTITION_COUNT, BROKER_COUNT)], request_timeout=90)[
            TOPIC
        ].result(90)
        self.wait_until_in_sync()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses.values())

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def start(self, number: int) -> None:
        """Start a broker, the first time or again, on the data that it has."""
        host, port = self.addresses[number]
        self.brokers[number] = BrokerProcess(
            self.home / f"broker-{number}",
            broker_id=number,
            zookeeper=self.zookeeper.address,
            set={
                **SETTINGS,
                "listeners": f"PLAINTEXT://{host}:{port}",
                **self.own_settings.get(number, {}),
            },
            inside=self._inside[number - 1],
        )

    def pause(self, number: int, seconds: float) -> None:
        self.brokers[number].process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.brokers[number].process.send_signal(signal.SIGCONT)

    def state(self, partition: int) -> dict[str, Any]:
        """The partition's state as ZooKeeper has it."""
        path = f"/brokers/topics/{TOPIC}/partitions/{partition}/state"
        found: dict[str, Any] = json.loads(self._znodes.retry(self._znodes.get, path)[0])
        return found

    def _children(self, path: str) -> list[str]:
        found: list[str] = self._znodes.retry(self._znodes.get_children, path)
        return found

    def leader(self, partition: int = 0) -> int:
        return int(self.state(partition)["leader"])

    def leaders(self) -> set[int]:
        return {self.leader(partition) for partition in range(PARTITION_COUNT)}

    def is_in_sync(self) -> bool:
        return all(len(self.state(p)["isr"]) == BROKER_COUNT for p in range(PARTITION_COUNT))

    def wait_until_in_sync(self) -> None:
        eventually(self.is_in_sync, timeout_s=IN_SYNC_SECONDS_MAX, what="all replicas being in sync")

    def begin_move(self, replicas: list[int], through: int) -> None:
        """Ask that broker to have all partitions on these replicas."""
        host, port = self.addresses[through]
        with ClusterAdmin(Bootstrap(f"{host}:{port}")) as admin:
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

    def directory(self, number: int, partition: int) -> Path:
        return self.home / f"broker-{number}" / "logs" / f"{TOPIC}-{partition}"

    def batches(self, number: int, partition: int) -> bytes:
        """All of a replica's batches; where one segment ends and the next begins may differ from replica to replica."""
        files = sorted(self.directory(number, partition).glob("*.log"))
        return b"".join(file.read_bytes() for file in files)

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self._znodes.stop()
        self._znodes.close()
        self.zookeeper.end()


class Writer(threading.Thread):
    """An idempotent producer that numbers what it sends to each partition, until it is told to stop."""

    def __init__(self, cluster: ReplicatedCluster, rate: int = 400) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)
        self.failed: list[KafkaError] = []
        self._rate = rate
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )
        self.start()

    @property
    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def wait_for_more(self, count: int = 200, seconds: float = 60.0) -> None:
        """Returns when so many more are acknowledged."""
        wanted = self.acknowledged_count + count
        eventually(lambda: self.acknowledged_count >= wanted, timeout_s=seconds, what=f"{count} more writes")

    def run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            for partition in range(PARTITION_COUNT):
                self._producer.produce(
                    TOPIC, b"%d" % number, partition=partition, on_delivery=self._delivered
                )
            number += 1
            self._producer.poll(PARTITION_COUNT / self._rate)

    def stop(self) -> None:
        """Everything that was sent is acknowledged, or the test fails."""
        self._is_over.set()
        self.join()
        assert self._producer.flush(120) == 0, "not all was acknowledged"
        assert not self.failed, self.failed[:3]

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.acknowledged[partition][int(value)] = offset


class GroupReader(threading.Thread):
    """A member of a group that reads all partitions and commits what it read, until it is told to stop."""

    def __init__(self, cluster: ReplicatedCluster) -> None:
        super().__init__(daemon=True)
        self.read: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._is_over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "session.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC])
        self.start()

    def run(self) -> None:
        while not self._is_over.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                value = message.value()
                self.read[message.partition() or 0].append((message.offset() or 0, int(value or b"-1")))
        self._consumer.close()

    def stop_at(self, ends: dict[int, int]) -> None:
        """Stop once everything before these offsets was read."""
        eventually(
            lambda: all(self.read[p] and self.read[p][-1][0] >= end - 1 for p, end in ends.items()),
            timeout_s=60,
            what="the group reading to the end",
        )
        self._is_over.set()
        self.join()


@contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """A disk of its own for what is in that directory."""
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """No byte fits it for that time."""
    filling = disk / "filling"
    dd = subprocess.run(["dd", "if=/dev/zero", f"of={filling}", "bs=64k"], capture_output=True, check=False)
    assert b"No space left" in dd.stderr
    yield
    filling.unlink()


def check(cluster: ReplicatedCluster, writer: Writer, reader: GroupReader) -> None:
    """Stop the clients and look: nothing acknowledged is lost, doubled or out of order, and all replicas hold the same."""
    writer.stop()
    cluster.wait_until_in_sync()
    logs = {partition: _log(cluster, partition) for partition in range(PARTITION_COUNT)}
    for partition, log in logs.items():
        values = [value for _, value in log]
        assert values == sorted(set(values)), f"partition {partition} has messages twice or out of order"
        assert {value: offset for offset, value in log} == writer.acknowledged[partition], (
            f"partition {partition} holds something else than was acknowledged"
        )
    reader.stop_at({partition: log[-1][0] + 1 for partition, log in logs.items()})
    for partition, log in logs.items():
        held = dict(log)
        read = reader.read[partition]
        assert all(held[offset] == value for offset, value in read), "the group read what is not there"
        assert {offset for offset, _ in read} == held.keys(), "the group passed something over"
        eventually(
            lambda partition=partition: (
                len(  # type: ignore[misc]
                    {cluster.batches(number, partition) for number in cluster.addresses}
                )
                == 1
            ),
            what=f"all replicas of partition {partition} holding the same bytes",
        )


def _log(cluster: ReplicatedCluster, partition: int) -> list[tuple[int, int]]:
    """(offset, value) of all that consumers may read."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "check", "log_level": 0})
    place = TopicPartition(TOPIC, partition, 0)
    try:
        _, end = consumer.get_watermark_offsets(place, timeout=20)
        consumer.assign([place])
        found: list[tuple[int, int]] = []
        deadline = time.monotonic() + 30
        while not found or found[-1][0] < end - 1:
            messages = consumer.consume(10_000, timeout=0.2)
            late = time.monotonic() > deadline
            assert messages or not late, f"partition {partition} cannot be read beyond {found[-1:]} of {end}"
            found += [(m.offset() or 0, int(m.value() or b"-1")) for m in messages if m.error() is None]
        return found
    except KafkaException as error:
        raise AssertionError(f"partition {partition} cannot be read: {error}") from error
    finally:
        consumer.close()


class NetworkNamespaces:
    """A bridge with addresses of its own and a network namespace a broker; gone when it is left. Needs root."""

    BRIDGE, NETWORK = "headrace0", "198.18.77"
    CLIENT, ZOOKEEPER = f"{NETWORK}.1", f"{NETWORK}.2"

    def __init__(self) -> None:
        self.hosts = [f"{self.NETWORK}.{10 + n}" for n in range(1, BROKER_COUNT + 1)]
        self.names = [f"headrace-{n}" for n in range(1, BROKER_COUNT + 1)]

    @property
    def inside(self) -> list[list[str]]:
        return [["ip", "netns", "exec", name] for name in self.names]

    def __enter__(self) -> NetworkNamespaces:
        self._remove()
        _ip(f"link add {self.BRIDGE} type bridge")
        for address in (self.CLIENT, self.ZOOKEEPER):
            _ip(f"address add {address}/24 dev {self.BRIDGE}")
        _ip(f"link set {self.BRIDGE} up")
        for number, (name, host) in enumerate(zip(self.names, self.hosts, strict=True), start=1):
            _ip(f"netns add {name}")
            _ip(f"link add hr{number} type veth peer name eth0 netns {name}")
            _ip(f"link set hr{number} master {self.BRIDGE} up")
            for command in (f"address add {host}/24 dev eth0", "link set eth0 up", "link set lo up"):
                _ip(f"-n {name} {command}")
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def cut(self, number: int) -> None:
        """Broker `number` reaches clients, but neither ZooKeeper nor the other brokers."""
        for address in self._far(number):
            _ip(f"-n {self.names[number - 1]} route add blackhole {address}/32")

    def heal(self, number: int) -> None:
        for address in self._far(number):
            _ip(f"-n {self.names[number - 1]} route del blackhole {address}/32")

    def _far(self, number: int) -> list[str]:
        own = self.hosts[number - 1]
        return [self.ZOOKEEPER, *(host for host in self.hosts if host != own)]

    def _remove(self) -> None:
        """What there is of it, also of an earlier run that was killed."""
        there = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        for name in self.names:
            if re.search(rf"^{name}\b", there, re.MULTILINE):
                _ip(f"netns del {name}")
        if Path(f"/sys/class/net/{self.BRIDGE}").exists():
            _ip(f"link del {self.BRIDGE}")


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True)
