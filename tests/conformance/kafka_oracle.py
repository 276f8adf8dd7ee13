"""Apache Kafka 3.9 in ZooKeeper mode, the oracle: a broker process of it, and its command line tools."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import class_archives
from processes import eventually, free_port

from bench import apache_kafka


class KafkaProcess:
    """A process of kafka.Kafka with a given `server.properties`; it may be started again."""

    def __init__(self, jars: Path, config: Path, *, bootstrap: str, log: Path) -> None:
        self._jars = jars
        self._config = config
        self.bootstrap = bootstrap
        self.log = log
        self.start()

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)

    def start(self) -> None:
        with self.log.open("ab") as log:
            archive = class_archives.options(class_archives.kafka_archive(self._jars))
            command = apache_kafka.command(self._jars, self._config, (*class_archives.KAFKA_JVM, *archive))
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def wait_until_serving(self) -> None:
        def serves() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            with socket.socket() as sock:
                return sock.connect_ex(self.address) == 0

        eventually(serves, timeout_s=90, what="Apache Kafka's start")

    def stop(self) -> None:
        """SIGTERM, and wait for its clean end."""
        self.process.terminate()
        self.process.wait(60)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Whatever state it is in, it is gone afterwards."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class KafkaBroker(KafkaProcess):
    """Apache Kafka with a `server.properties` of its own below `home`; it keeps its port and data over restarts."""

    def __init__(
        self, jars: Path, home: Path, *, broker_id: int, zookeeper: str, set: Mapping[str, str] | None = None
    ):
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        bootstrap = f"127.0.0.1:{free_port()}"
        config = home / "server.properties"
        properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{bootstrap}",
            "log.dirs": str(home / "logs"),
            "zookeeper.connect": zookeeper,
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(set or {}),
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        super().__init__(jars, config, bootstrap=bootstrap, log=home / "kafka.log")


def run_tool(
    jars: Path, *arguments: str, timeout_s: int = 120, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """One of Kafka's command line tools, by its class name."""
    return subprocess.run(
        tool_command(jars, *arguments),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        input=stdin,
    )


def check_replicas(jars: Path, bootstrap: str, topic: str, partition_count: int, report: Path) -> None:
    """Kafka's ReplicaVerificationTool reads all replicas of a topic up to their ends and finds them the same.

    It never ends by itself; `report` holds what it said.
    """
    tool = "org.apache.kafka.tools.ReplicaVerificationTool"
    options = ("--topics-include", topic, "--time", "-2", "--report-interval-ms", "500")
    wanted = re.compile(
        rf"max lag is 0 for partition {topic}-\d+ at offset \d+ among {partition_count} partitions"
    )
    with report.open("w") as output:
        command = tool_command(jars, tool, "--broker-list", bootstrap, *options)
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            eventually(
                lambda: process.poll() is not None or wanted.search(report.read_text()),
                what="the tool's report",
            )
            assert process.poll() is None, report.read_text()
        finally:
            process.kill()
            process.wait()
    assert "match" not in report.read_text(), report.read_text()


def tool_command(jars: Path, *arguments: str) -> list[str]:
    """The command line of one of them."""
    return [
        "java",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *class_archives.options(class_archives.kafka_archive(jars)),
        "-cp",
        f"{jars}/*",
        *arguments,
    ]
