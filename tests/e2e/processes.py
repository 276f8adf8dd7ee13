"""Real headrace processes for tests: `headrace dev`, and single brokers beside it."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil
from forked_process import ForkedProcess

from headrace.broker.dev import brokers_known_to, development_defaults

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 40
FIXED_PORTS = range(12_000, 32_000)
"""Below those that Linux gives to clients and to servers that ask for any."""


class ForegroundProcess:
    """A headrace process that announces itself with one `ready …` line on standard output."""

    def __init__(self, arguments: list[str], log: Path, inside: Sequence[str] = ()) -> None:
        """`inside`: a command that runs another one, such as `ip netns exec NAME`."""
        self.log = log
        self._arguments = arguments
        self._inside = inside
        self.process: subprocess.Popen[str] | ForkedProcess
        log.parent.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Start it, the first time or again, and wait until it is ready."""
        with self.log.open("ab") as stderr:
            self.process = self._started(stderr)
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline().split()
        if self.ready[:1] != ["ready"]:
            self.process.wait(START_TIMEOUT_S)
            raise AssertionError(f"{self._arguments} did not start: {self.log.read_text()[-3000:]}")

    def _started(self, stderr: IO[bytes]) -> subprocess.Popen[str] | ForkedProcess:
        return subprocess.Popen(
            [*self._inside, sys.executable, "-m", *self._arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    @property
    def bootstrap(self) -> str:
        """HOST:PORT,HOST:PORT of what it serves."""
        return self.ready[1]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        pairs = (address.rpartition(":") for address in self.bootstrap.split(","))
        return [(host, int(port)) for host, _, port in pairs]

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Whatever state it is in, it is gone afterwards."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self.kill()


class DevProcess(ForegroundProcess):
    """`headrace dev` on free ports. `data` holds zookeeper/ and broker-N/ with its server.properties and broker.log."""

    def __init__(
        self,
        data: Path,
        *,
        brokers: int = 1,
        set: Mapping[str, str] | None = None,
        listen: str = "127.0.0.1:0",
        zookeeper: str | None = None,
    ) -> None:
        self.data = data
        arguments = [
            "headrace.broker.dev",
            "--brokers",
            str(brokers),
            "--listen",
            listen,
            "--data",
            str(data),
        ]
        if zookeeper is not None:
            arguments += ["--zookeeper", zookeeper]
        for key, value in (set or {}).items():
            arguments += ["--set", f"{key}={value}"]
        super().__init__(arguments, data / "dev.log")

    @property
    def zookeeper(self) -> str:
        """HOST:PORT of the ZooKeeper."""
        return self.ready[3]

    def broker_process(self, number: int = 1) -> psutil.Process:
        """The process of broker `number`, counted from 1."""
        config = str(self.data / f"broker-{number}" / "server.properties")
        return next(p for p in psutil.Process(self.process.pid).children() if config in p.cmdline())

    def broker_log(self, number: int = 1) -> str:
        return (self.data / f"broker-{number}" / "broker.log").read_text()

    def kill_broker(self, number: int = 1) -> int:
        """SIGKILL one broker; `headrace dev` ends the others and itself with the exit code that is returned."""
        self.broker_process(number).kill()
        return self.wait()


class BrokerProcess(ForegroundProcess):
    """`headrace broker` with a `server.properties` of its own, for tests that stop and start single brokers.

    A fork, but for one inside another command.
    """

    def __init__(
        self,
        home: Path,
        *,
        broker_id: int,
        zookeeper: str,
        set: Mapping[str, str] | None = None,
        inside: Sequence[str] = (),
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        properties = {
            "broker.id": str(broker_id),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(home / "logs"),
            "zookeeper.connect": zookeeper,
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(set or {}),
        }
        config = home / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        super().__init__(["headrace.broker.command", "--config", str(config)], home / "broker.log", inside)

    def _started(self, stderr: IO[bytes]) -> subprocess.Popen[str] | ForkedProcess:
        if self._inside:
            return super()._started(stderr)
        module, *arguments = self._arguments
        return ForkedProcess(module, arguments, stderr)


class DevCluster:
    """Brokers as `headrace dev --zookeeper PLACE` runs them, without it. `data` holds what a DevProcess's does."""

    def __init__(
        self,
        data: Path,
        *,
        zookeeper: str,
        brokers: int = 1,
        set: Mapping[str, str] | None = None,
        listen: str = "127.0.0.1:0",
    ) -> None:
        self.data = data
        self.zookeeper = zookeeper
        self.members: list[BrokerProcess] = []
        listener = {"listeners": f"PLAINTEXT://{listen}"}
        settings = development_defaults(brokers) | listener | dict(set or {})
        try:
            for number in range(1, brokers + 1):
                home = data / f"broker-{number}"
                self.members.append(BrokerProcess(home, broker_id=number, zookeeper=zookeeper, set=settings))
            self._wait_until_one()
        except BaseException:
            self.end()
            raise

    def _wait_until_one(self) -> None:
        eventually(
            lambda: all(brokers_known_to(each.bootstrap) == len(self.members) for each in self.members),
            what="one cluster",
        )

    def start(self) -> None:
        """Start them again, all of which have ended."""
        for member in self.members:
            member.start()
        self._wait_until_one()

    @property
    def bootstrap(self) -> str:
        """HOST:PORT,HOST:PORT of the brokers."""
        return ",".join(member.bootstrap for member in self.members)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [address for member in self.members for address in member.addresses]

    def broker_process(self, number: int = 1) -> psutil.Process:
        """The process of broker `number`, counted from 1."""
        return psutil.Process(self.members[number - 1].process.pid)

    def broker_log(self, number: int = 1) -> str:
        return self.members[number - 1].log.read_text()

    def kill_broker(self, number: int = 1) -> None:
        """SIGKILL one broker; the others go on."""
        self.members[number - 1].kill()

    def stop(self) -> int:
        """SIGTERM to all; 0 where all of them end with that."""
        for member in self.members:
            member.process.terminate()
        return max(abs(member.wait()) for member in self.members)

    def end(self) -> None:
        """Whatever state they are in, they are gone afterwards."""
        for member in self.members:
            if member.process.poll() is None:
                member.process.terminate()
        for member in self.members:
            member.end()


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens at now, and that the system gives to nobody while a restarting server is away from it."""
    while True:
        port = secrets.choice(FIXED_PORTS)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind((host, port))
            return port


def eventually(
    condition: Callable[[], object],
    *,
    timeout_s: float = 60.0,
    what: str = "the condition",
    every_s: float = 0.05,
) -> None:
    """Wait until `condition()` is true, and look again every so often; fails the test when it does not become so."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true in {timeout_s} s"
        time.sleep(every_s)
