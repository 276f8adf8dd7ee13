"""One broker on one `server.properties`, run by headrace or by Apache Kafka in turn, and what its files hold."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kafka_oracle import KafkaProcess
from kazoo.client import KazooClient
from processes import ForegroundProcess, eventually, free_port
from zookeeper_process import ZooKeeperProcess

BROKER_ID = 4


class SwappedBroker:
    """The broker, its ZooKeeper and its files; `start(engine)` runs it, `stop` and `kill` end it."""

    def __init__(self, home: Path, jars: Path) -> None:
        self._jars = jars
        self._home = home
        self.zookeeper = ZooKeeperProcess(home / "zookeeper")
        self._znodes = KazooClient(self.zookeeper.address)
        self._znodes.start()
        self.directories = [home / "disk-1", home / "disk-2"]
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self._config = home / "server.properties"
        properties = {
            "broker.id": str(BROKER_ID),
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": ",".join(map(str, self.directories)),
            "zookeeper.connect": self.zookeeper.address,
            # A busy machine stops a broker for seconds, and none shall lose what it leads for that.
            "zookeeper.session.timeout.ms": "10000",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.backoff.ms": "200",
            "log.cleaner.dedupe.buffer.size": "2000000",
            "log.message.timestamp.after.max.ms": str(2**62),
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self._process: ForegroundProcess | KafkaProcess | None = None

    def start(self, engine: str) -> None:
        if engine == "headrace":
            arguments = ["headrace.broker.command", "--config", str(self._config)]
            self._process = ForegroundProcess(arguments, self._home / "headrace.log")
            assert self._process.bootstrap == self.bootstrap
        else:
            log = self._home / "kafka.log"
            self._process = KafkaProcess(self._jars, self._config, bootstrap=self.bootstrap, log=log)
            self._process.wait_until_serving()

    def stop(self) -> None:
        """A clean stop."""
        assert self._process is not None
        self._process.stop()
        assert self._process.process.returncode in (0, 143)

    def kill(self) -> None:
        """SIGKILL, and wait until ZooKeeper has forgotten the broker, as a supervisor's restarts do."""
        assert self._process is not None
        self._process.process.kill()
        self._process.process.wait()
        eventually(lambda: not self._znodes.exists(f"/brokers/ids/{BROKER_ID}"), what="the session's end")

    def end(self) -> None:
        if self._process is not None:
            self._process.end()
        self._znodes.stop()
        self._znodes.close()
        self.zookeeper.end()

    def files(self, suffix: str) -> list[Path]:
        """All segment files of a kind, in both directories."""
        return sorted(p for directory in self.directories for p in directory.glob(f"*-*/*{suffix}"))

    def clean_offset(self, topic: str) -> int:
        """Up to where the cleaner went; -1 when it never did."""
        for directory in self.directories:
            path = directory / "cleaner-offset-checkpoint"
            lines = path.read_text().splitlines() if path.exists() else []
            for line in lines:
                if line.startswith(f"{topic} 0 "):
                    return int(line.split()[2])
        return -1


def fingerprints(broker: SwappedBroker) -> dict[Path, tuple[int, str]]:
    """Size and SHA-256 of every segment."""
    return {path: _fingerprint(path.read_bytes()) for path in broker.files(".log")}


def _fingerprint(data: bytes) -> tuple[int, str]:
    return len(data), hashlib.sha256(data).hexdigest()


def differing(before: dict[Path, tuple[int, str]]) -> list[str]:
    """The segments that do not begin with what they held before."""
    return [
        path.name
        for path, (size, digest) in before.items()
        if not path.exists() or _fingerprint(path.read_bytes()[:size]) != (size, digest)
    ]
