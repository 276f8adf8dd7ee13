"""Kafka Connect in distributed mode, exactly once: each line of a file is in its topic once, in order, whatever is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transactional_copiers
from mixed_replicas import HEADRACE, MixedReplicas
from processes import eventually, free_port
from transactional_copiers import committed, coordinators

from bench.apache_kafka import find_connect_jars

pytestmark = pytest.mark.long
LINES = "lines"
COPIED_SECONDS_MAX = 90.0
WORKER = {
    "group.id": "connect",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "exactly.once.source.support": "enabled",
    "plugin.discovery": "service_load",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "scheduled.rebalance.max.delay.ms": "1000",
    **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")},
}
SOURCE = {
    "connector.class": "FileStreamSource",
    "topic": LINES,
    "exactly.once.support": "required",
    "topic.creation.default.partitions": "1",
    "topic.creation.default.replication.factor": "3",
}


class Worker:
    """One of Connect's processes; it keeps its address."""

    def __init__(self, jars: Path, bootstrap: str, home: Path, number: int) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._config, self.log = home / f"worker-{number}.properties", home / f"worker-{number}.log"
        said = {**WORKER, "bootstrap.servers": bootstrap, "listeners": f"http://{self.address}"}
        self._config.write_text("".join(f"{key}={value}\n" for key, value in said.items()))
        self._libraries = f"{find_connect_jars()}/*:{jars}/*"
        self.start()

    def start(self) -> None:
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", self._libraries, main]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, str(self._config)], stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def asked(self, path: str, body: object = None) -> Any:
        """What it answers to GET, or to PUT of a body; None while it cannot."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            data,
            {"Content-Type": "application/json"},
            method="PUT" if data else "GET",
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except OSError:
            return None


class Lines:
    """The file that the source reads, and how much of it is in the topic."""

    def __init__(self, path: Path, bootstrap: str) -> None:
        self.path, self._bootstrap = path, bootstrap
        self.all: list[str] = []

    def add(self, count: int) -> None:
        new = [str(number) for number in range(len(self.all), len(self.all) + count)]
        self.all += new
        with self.path.open("a") as file:
            file.write("".join(f"{line}\n" for line in new))

    def are_copied(self) -> bool:
        return committed(self._bootstrap, LINES, 0) == self.all

    def wait(self) -> None:
        eventually(
            self.are_copied, timeout_s=COPIED_SECONDS_MAX, what="the copy of all lines, once", every_s=1.0
        )


@pytest.fixture
def cluster(kafka_jars: Path, tmp_path: Path) -> Iterator[MixedReplicas]:
    kinds = dict.fromkeys((1, 2, 3), HEADRACE)
    made = MixedReplicas(tmp_path, kafka_jars, kinds, transactional_copiers.SETTINGS)
    yield made
    made.end()


@pytest.fixture
def workers(kafka_jars: Path, cluster: MixedReplicas) -> Iterator[list[Worker]]:
    made = [Worker(kafka_jars, cluster.bootstrap, cluster.home, number) for number in range(2)]
    yield made
    for each in made:
        each.kill()


def owner(workers: list[Worker]) -> Worker | None:
    """The one that runs the source's only task, by what they all know."""
    for each in workers:
        status = each.asked("/connectors/source/status")
        for task in status["tasks"] if status else ():
            if task["state"] == "RUNNING":
                return next(worker for worker in workers if worker.address == task["worker_id"])
    return None


def other(workers: list[Worker], one: Worker) -> Worker:
    return next(worker for worker in workers if worker is not one)


def test_connects_source_copies_once_whatever_is_killed(
    cluster: MixedReplicas, workers: list[Worker]
) -> None:
    lines = Lines(cluster.home / "lines.txt", cluster.bootstrap)
    lines.add(100)
    wanted = {**SOURCE, "file": str(lines.path)}
    eventually(lambda: workers[0].asked("/connectors/source/config", wanted), what="the connector")
    eventually(lambda: owner(workers), what="its task")
    lines.wait()

    zombie = owner(workers)
    assert zombie is not None
    zombie.process.send_signal(signal.SIGSTOP)
    lines.add(100)
    lines.wait()
    zombie.process.send_signal(signal.SIGCONT)
    lines.add(100)
    lines.wait()

    heir = other(workers, zombie)
    heir.kill()
    lines.add(100)
    number = coordinators(cluster)[0]
    cluster.brokers[number].kill()
    lines.add(100)
    lines.wait()
    cluster.start(number)
    heir.start()
    lines.add(100)
    lines.wait()
    eventually(lambda: heir.asked("/connectors/source/status"), what="the worker's second life")
