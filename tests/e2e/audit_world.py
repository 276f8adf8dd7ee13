"""A live and an offline cluster with a registry, joined by the mirror or by a copier that does what a test wants.

The copier keeps offsets: a message that is to be lost becomes noise (no event), one that is to be doubled takes the place of
noise that the test published before.
"""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from commands import headrace
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka import Producer as KafkaProducer
from fastavro import schemaless_reader
from load_driver import load
from load_helpers import create_topic
from processes import DevCluster
from registry_process import RegistryProcess
from zookeeper_process import ZooKeeperProcess

from headrace.events.avro_schemas import parsed_schema, schema_text
from headrace.load.tables import open_catalog
from headrace.producer import Producer

HEADRACE = str(Path(sys.executable).with_name("headrace"))
DATACENTER = "dc-east"
TOPIC = "pageviews"
PARTITIONS = 2
VIEW = {
    "address": "10.0.0.1",
    "path": "/",
    "status": 200,
    "logged_at": 1_400_000_000_000,
}
NOISE = b"no event"
COPIED_TOPICS = {TOPIC: PARTITIONS, f"{TOPIC}.rejected": 1, "headrace.monitoring": 1, "headrace.counts": 1}
Change = Callable[[list[Message]], list[bytes]]


def values_of(found: list[Message]) -> list[bytes]:
    return [message.value() or b"" for message in found]


class AuditWorld:
    """One live datacenter `dc-east` and the offline one on free ports; with `mirror` the brokers copy by themselves."""

    def __init__(self, home: Path, zookeeper: ZooKeeperProcess, *, mirror: bool = False) -> None:
        self.home = home
        self.offline_behind_ms = 0
        """By how much the clock of the offline broker is behind."""
        self.warehouse = home / "warehouse"
        open_catalog(str(self.warehouse))  # as a load does when it starts
        self.live = DevCluster(
            home / "live",
            set={"log.cleaner.backoff.ms": "500"},
            zookeeper=zookeeper.under_chroot(home / "live"),
        )
        self.registry = RegistryProcess(home / "registry.log", self.live.bootstrap)
        settings = {
            "mirror.sources": DATACENTER,
            f"mirror.{DATACENTER}.bootstrap.servers": self.live.bootstrap,
            f"mirror.{DATACENTER}.topics": "pageviews.*|headrace.*",
        }
        for topic, partitions in COPIED_TOPICS.items():
            create_topic(self.live.bootstrap, topic, partitions)
        self.offline = DevCluster(
            home / "offline",
            set=settings if mirror else {},
            zookeeper=zookeeper.under_chroot(home / "offline"),
        )
        create_topic(self.offline.bootstrap, "headrace.counts", 1)
        if not mirror:
            create_topic(self.offline.bootstrap, "headrace.arrivals", 1)
            for topic, partitions in COPIED_TOPICS.items():
                create_topic(self.offline.bootstrap, f"{DATACENTER}.{topic}", partitions)

    def end(self) -> None:
        for process in (self.registry, self.live, self.offline):
            process.end()

    def producer(self, **settings: Any) -> Producer:
        schemas = {
            TOPIC: schema_text("page_view"),
            f"{TOPIC}.rejected": schema_text("rejected_line"),
        }
        return Producer(
            bootstrap=self.live.bootstrap,
            registry_url=self.registry.url,
            server="web-1",
            service="shop",
            datacenter=DATACENTER,
            **{"window_size_ms": 1000, "schemas": schemas, **settings},
        )

    def publish(self, count: int) -> str:
        """Publish events by a producer of their own that closes; returns its name."""
        with self.producer() as producer:
            for _ in range(count):
                producer.send(TOPIC, VIEW)
        return producer.producer_id

    def count(self, tier: str, pattern: str | None = None, modes: str = "") -> None:
        """Let the counter of a tier catch up."""
        run("count", "--once", *self._counted(tier, pattern), "--modes", modes)

    def _counted(self, tier: str, pattern: str | None = None) -> list[str]:
        live = tier == "live"
        names = [TOPIC, f"{TOPIC}.rejected"] if pattern is None else [pattern]
        topics = names if live else [f"{DATACENTER}.{name}" for name in names]
        bootstrap = (self.live if live else self.offline).bootstrap
        datacenter = DATACENTER if live else "offline"
        return [
            "--bootstrap",
            bootstrap,
            "--datacenter",
            datacenter,
            "--tier",
            tier,
            "--topics",
            ",".join(topics),
        ]

    def counter(
        self, tier: str, log: Path, pattern: str | None = None, options: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start the continuous counter of a tier."""
        with log.open("ab") as stderr:
            return subprocess.Popen(
                [HEADRACE, "audit", "count", *self._counted(tier, pattern), *options], stderr=stderr
            )

    def noise(self, count: int) -> None:
        """Publish values that are no events to each partition of the live log."""
        sink = KafkaProducer({"bootstrap.servers": self.live.bootstrap})
        for partition in range(PARTITIONS):
            for _ in range(count):
                sink.produce(TOPIC, NOISE, partition=partition)
        assert sink.flush(30) == 0

    def copy(self, change: Change = values_of) -> None:
        """Copy everything from live to offline, which has nothing yet, or only the beginning; then the counts."""
        for topic, partitions in COPIED_TOPICS.items():
            for partition in range(partitions):
                found = messages(self.live.bootstrap, topic, partition)
                values = change(found) if topic == TOPIC else values_of(found)
                assert len(values) == len(found)
                self._append(topic, partition, values)

    def _append(self, topic: str, partition: int, values: list[bytes]) -> None:
        target = f"{DATACENTER}.{topic}"
        sink = KafkaProducer({"bootstrap.servers": self.offline.bootstrap, "linger.ms": 5})
        first = end_offset(self.offline.bootstrap, target, partition)
        for value in values[first:]:
            sink.produce(target, value, partition=partition)
        assert sink.flush(30) == 0
        if topic == TOPIC and len(values) > first:
            now_ms = time.time_ns() // 1_000_000 - self.offline_behind_ms
            arrival = struct.pack(">qqqb", first, len(values) - 1, now_ms, 0)
            sink.produce("headrace.arrivals", arrival, key=f"{target}-{partition}".encode(), partition=0)
            assert sink.flush(30) == 0

    def load(self, wanted: str = TOPIC, warehouse: Path | None = None) -> None:
        """Load what the offline cluster has of a topic, in this process, into the first warehouse unless told otherwise."""
        catalog = open_catalog(str(warehouse or self.warehouse))
        load(self.offline.bootstrap, self.registry.url, catalog, f"{DATACENTER}.{wanted}")

    def report(self, *arguments: str) -> dict[str, Any]:
        """Return report.json; its exit code is checked against the verdict."""
        output = self.home / "report"
        command = ["audit", "report", "--bootstrap", self.offline.bootstrap]
        command += ["--warehouse", str(self.warehouse), "--output", str(output), *arguments]
        done = headrace(*command)
        assert done.returncode in (0, 1), done.stderr[-3000:]
        assert (output / "report.json").exists(), done.stderr[-3000:]
        report: dict[str, Any] = json.loads((output / "report.json").read_text(encoding="utf-8"))
        assert done.returncode == (0 if report["open_verdict"] == "complete" else 1)
        return report


def run_script(
    name: str, world: AuditWorld, home: Path, code: int = 0, /, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Commands of docs/events-and-audit.md."""
    environment = {
        "HOME": "/nonexistent",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LIVE": world.live.bootstrap,
        "OFFLINE": world.offline.bootstrap,
        "WAREHOUSE": str(world.warehouse),
        **variables,
    }
    command = ["bash", str(Path(__file__).with_name(name))]
    done = subprocess.run(command, cwd=home, env=environment, check=False, timeout=120, capture_output=True)
    assert done.returncode == code, done.stderr
    return done


def run(*arguments: str) -> None:
    done = headrace("audit", *arguments)
    assert done.returncode == 0, done.stderr[-3000:]


def sequence_of(value: bytes) -> int:
    """Return the sequence of a page view; -1 for noise."""
    if value == NOISE:
        return -1
    record: Any = schemaless_reader(io.BytesIO(value[5:]), parsed_schema("page_view"), None)
    header: Mapping[str, int] = record["header"]
    return header["sequence"]


def messages(bootstrap: str, topic: str, partition: int) -> list[Message]:
    """Return all messages of a partition, in order."""
    end = end_offset(bootstrap, topic, partition)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "audit-world", "enable.auto.commit": False}
    )
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while len(found) < end:
            found += [
                message
                for message in consumer.consume(min(500, end - len(found)), 5.0)
                if message.error() is None
            ]
    finally:
        consumer.close()
    return found


def end_offset(bootstrap: str, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "audit-world"})
    try:
        end: int = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
        return end
    finally:
        consumer.close()
