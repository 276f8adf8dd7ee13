"""The brokers that are measured: started as real processes on a free port, with the same settings for each."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench.machine import cpu_seconds
from bench.runs import HEADRACE
from headrace.broker.client.bootstrap import parse_bootstrap
from headrace.broker.wire.client.view import Address

STOP_SECONDS_MAX = 60
TOPIC_SECONDS_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A running broker, or a cluster: where it listens, the processes whose CPU and memory count, how long its start took."""

    name: str
    bootstrap: str
    process: psutil.Process
    start_seconds: float
    others: tuple[psutil.Process, ...] = ()
    """The other brokers of a cluster."""
    log_directories: tuple[Path, ...] = ()
    """Where its partitions lie, if the benchmark watches them go."""
    zookeeper: str = ""
    """HOST:PORT/CHROOT of a cluster's ZooKeeper."""
    second_bootstrap: str = ""
    """As `bootstrap`, of the second listeners, if there are any."""
    authority: str = ""
    """Where those are for TLS: the file with the certificates that its clients trust there."""

    def where(self, *, is_tls: bool) -> dict[str, str]:
        """What the generator is told of it."""
        if is_tls:
            return {"bootstrap": self.second_bootstrap, "authority": self.authority}
        return {"bootstrap": self.bootstrap}

    @property
    def processes(self) -> tuple[psutil.Process, ...]:
        """Of all its brokers, in the order of their ids, which begin with 1 in a cluster."""
        return self.process, *self.others

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Of all its brokers, in the same order."""
        return parse_bootstrap(self.bootstrap)

    @property
    def memory_mib(self) -> int:
        return sum(int(process.memory_info().rss) for process in self.processes) // 2**20

    @property
    def cpu_seconds(self) -> float:
        """Of all its brokers, so far."""
        return sum(map(cpu_seconds, self.processes))

    def admin(self) -> AdminClient:
        """A client whose errors come as exceptions alone, not also as lines on the terminal."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    def create_topic(
        self, name: str, partitions: int, replicas: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Create a topic with a replica of each partition on every broker, or with these replicas of each."""
        admin = self.admin()
        try:
            if replicas is None:
                topic = NewTopic(name, partitions, 1 + len(self.others))
            else:
                topic = NewTopic(name, partitions, replica_assignment=[list(each) for each in replicas])
            for created in admin.create_topics([topic], request_timeout=TOPIC_SECONDS_MAX).values():
                created.result(TOPIC_SECONDS_MAX)
        except (KafkaException, TimeoutError) as error:
            raise click.ClickException(f"topic {name} cannot be created: {error!r}") from error


@contextlib.contextmanager
def headrace(
    data: Path, settings: Mapping[str, str] | None = None, listen: str = "127.0.0.1:0"
) -> Iterator[Peer]:
    """One headrace broker under `headrace dev`; `settings` are added to its server.properties."""
    command = [sys.executable, "-m", "headrace.cli", "dev", "--listen", listen, "--data", str(data)]
    for key, value in (settings or {}).items():
        command += ["--set", f"{key}={value}"]
    data.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with (data / "dev.log").open("wb") as log:
        dev = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert dev.stdout is not None
        ready = dev.stdout.readline().split()
        start_seconds = time.monotonic() - began
        if not ready or ready[0] != "ready":
            raise click.ClickException(f"headrace dev did not start; see {data / 'dev.log'}.")
        yield Peer(
            name=HEADRACE,
            bootstrap=ready[1],
            process=_broker_of(dev.pid, ready[1]),
            start_seconds=round(start_seconds, 3),
        )
    finally:
        dev.send_signal(signal.SIGTERM)
        dev.wait(STOP_SECONDS_MAX)


def _broker_of(pid: int, bootstrap: str) -> psutil.Process:
    """The descendant of `pid` that listens on the bootstrap port."""
    port = int(bootstrap.rpartition(":")[2])
    for child in psutil.Process(pid).children(recursive=True):
        if any(
            socket.laddr.port == port
            for socket in child.net_connections("tcp")
            if socket.status == psutil.CONN_LISTEN
        ):
            return child
    raise click.ClickException(f"No process of headrace dev listens on port {port}.")
