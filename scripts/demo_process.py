"""One demo as a process of its own on loopback addresses of its own: follow it, kill its parts, see how it ends.

Owns what tests and `make chaos` share. Invariants: never two such demos on a machine at once; whatever happens, nothing of
it runs afterwards; only processes that this demo's own supervisor names are ever killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

CHECKOUT: Final = Path(__file__).resolve().parents[1]
PROGRAMS: Final = Path(sys.executable).parent
LOCK: Final = Path(tempfile.gettempdir()) / f"headrace-rollouts-{os.getuid()}.lock"
DATACENTERS: Final = ("dc-east", "dc-west")
SERVICES: Final = frozenset(
    f"{datacenter}-{service}"
    for datacenter, services in {
        "dc-east": ("zookeeper-1", "broker-1", "broker-2", "haproxy", "registry", "counter"),
        "dc-west": ("zookeeper-1", "broker-1", "broker-2", "haproxy", "registry", "counter"),
        "offline": (
            "zookeeper-1",
            "broker-1",
            "broker-2",
            "broker-3",
            "registry",
            "counter",
            "load",
            "auditor",
        ),
    }.items()
    for service in services
)
_PUBLISHED: Final = re.compile(r"^(\d+) of \d+ events published$", re.MULTILINE)


class BusyError(Exception):
    """Another test run has a pipeline on this machine; the message says what to do."""


@contextlib.contextmanager
def alone_on_this_machine() -> Iterator[None]:
    """Hold the right to roll out for a test; raises BusyError when somebody else has it."""
    with LOCK.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                "Another test or `make chaos` has a pipeline on this machine: wait for its end, then run this again."
            ) from None
        yield


def copy_of_local(directory: Path, network: int) -> Path:
    """Write inventory/local to a folder, with 127.`network`.x instead of 127.0.x; returns the inventory's path."""
    inventory = directory / "inventory"
    shutil.copytree(CHECKOUT / "inventory" / "local", inventory)
    hosts = inventory / "hosts.yml"
    text = hosts.read_text(encoding="utf-8")
    hosts.write_text(text.replace("127.0.", f"127.{network}."), encoding="utf-8")
    return inventory


def processes(root: Path) -> dict[str, int]:
    """Each running service's process id, as the supervisor under that folder says."""
    config = root / "supervisor" / "supervisord.conf"
    result = subprocess.run(
        [PROGRAMS / "supervisorctl", "-c", config, "status"], capture_output=True, text=True, check=False
    )
    return {
        name: int(pid)
        for name, pid in re.findall(r"^(\S+)\s+RUNNING\s+pid (\d+)", result.stdout, re.MULTILINE)
    }


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.2)
    return condition()


class DemoProcess:
    """A running `make demo`, less the set-up of the checkout."""

    def __init__(self, directory: Path, *, inventory: Path, environment: Mapping[str, str]) -> None:
        self.root = directory / "var"
        self.output = directory / "demo"
        self.screen = directory / "screen.txt"
        self.events = int(environment["DEMO_EVENTS"])
        command = [sys.executable, "-m", "demo", "--inventory", str(inventory)]
        command += ["--root", str(self.root), "--output", str(self.output)]
        with self.screen.open("wb") as screen:
            self._process = subprocess.Popen(
                command,
                cwd=CHECKOUT,
                env={**os.environ, **environment},
                stdout=screen,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> DemoProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def published(self, datacenter: str) -> int:
        """How many events that replay has handed to its client, as it last said."""
        with contextlib.suppress(FileNotFoundError):
            text = (self.output / f"replay-{datacenter}.log").read_text(encoding="utf-8")
            if found := _PUBLISHED.findall(text):
                return int(found[-1])
        return 0

    def wait_until_published(self, share: float, seconds: float = 300.0) -> None:
        """Return when every replay is past that share of its events; fails when the demo ends before."""

        def is_past() -> bool:
            done = min(self.published(datacenter) for datacenter in DATACENTERS)
            return done >= share * self.events or self._process.poll() is not None

        assert eventually(is_past, seconds), self.text()[-3000:]
        assert self._process.poll() is None, self.text()[-3000:]

    def kill(self, service: str) -> int:
        """Kill a service's process with SIGKILL; returns its pid."""
        pid = processes(self.root)[service]
        os.kill(pid, signal.SIGKILL)
        return pid

    def lose(self, service: str) -> None:
        """Kill a service's process with SIGKILL for good, and delete its data: as if its host had burnt."""
        pid = processes(self.root)[service]
        # A stopped process takes no notice of the supervisor's wish to end it, which keeps the supervisor from starting another.
        os.kill(pid, signal.SIGSTOP)
        config = self.root / "supervisor" / "supervisord.conf"
        stopping = subprocess.Popen(
            [PROGRAMS / "supervisorctl", "-c", config, "stop", service], stdout=subprocess.DEVNULL
        )
        assert eventually(lambda: service not in processes(self.root)), f"{service} is not being stopped"
        os.kill(pid, signal.SIGKILL)
        stopping.wait()
        shutil.rmtree(self.root / "data" / service)

    def is_back(self, service: str, killed: int, seconds: float = 60.0) -> bool:
        """Whether the service runs again, as another process, within that time."""
        return eventually(lambda: processes(self.root).get(service, killed) != killed, seconds)

    def replay_pid(self, datacenter: str) -> int:
        """The process that publishes to that datacenter: a child of the demo's."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                arguments = path.read_bytes().split(b"\0")
                parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
                if (
                    parent == self._process.pid
                    and b"replay" in arguments
                    and datacenter.encode() in arguments
                ):
                    return int(path.parent.name)
        raise AssertionError(f"no replay to {datacenter} runs: {self.text()[-3000:]}")

    def wait(self, seconds: float = 600.0) -> int:
        """The demo's exit code."""
        return self._process.wait(seconds)

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.output / "report.json").read_text(encoding="utf-8"))
        return found

    def text(self) -> str:
        return self.screen.read_text(encoding="utf-8", errors="replace")
