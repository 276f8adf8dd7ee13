"""The small lab as tests use it: its playbooks, its hosts, its reboots, the traffic through it and what the audit says.

Owns what tests of tests/deploy/lab share. Invariants: only containers of the lab are touched, and traffic goes to their addresses
alone, at most PUBLISHED_A_SECOND events a second.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from watching import Watching

from lab.docker import Docker

CHECKOUT: Final = Path(__file__).resolve().parents[2]
PROGRAMS: Final = Path(sys.executable).parent
INVENTORY: Final = "inventory/docker-small"
BOOTSTRAP: Final = "10.77.1.100:9092"
REGISTRY: Final = "http://10.77.1.21:8081"
BROKERS: Final = {
    "dc-east": ["10.77.1.1", "10.77.1.2", "10.77.1.3"],
    "offline": ["10.77.9.1", "10.77.9.2", "10.77.9.3"],
}
OFFLINE: Final = ",".join(f"{address}:9092" for address in BROKERS["offline"])
PUBLISHED_A_SECOND: Final = 1000
EVENTS_MAX: Final = 10_000_000
REBOOT_S: Final = 90
# Spark takes its time to start beside thirteen hosts that start as well. What fails on purpose needs no support bundle.
PATIENCE: Final = ("-e", "service_timeout_s=300", "-e", "headrace_support_bundle=false")


def eventually(condition: Callable[[], bool], timeout_s: float = 180) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


@dataclass(frozen=True)
class Played:
    """How one playbook ended, and the module runs of each host."""

    returncode: int
    output: str
    seconds: float
    module_runs: Counter[str]

    def changed(self) -> dict[str, int]:
        """The hosts of the recap that something was changed on, with how much."""
        found = re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", self.output, re.MULTILINE)
        return {host: int(count) for host, count in found if count != "0"}


@dataclass
class Lab:
    """The containers of an inventory, which are up, and the inventory that is rolled out on them."""

    docker: Docker
    folder: Path
    hosts: list[str]
    inventory: str = INVENTORY
    first: Played | None = None
    """How the roll-out from nothing went."""
    acknowledged: int = 0
    """The events of the front ends of earlier modules."""

    def environment(self, module_runs: Path) -> dict[str, str]:
        return {
            **os.environ,
            "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_CALLBACK_PLUGINS": f"{CHECKOUT}/playbooks/callback_plugins:{CHECKOUT}/tests/deploy/callbacks",
            "LC_ALL": "C.UTF-8",
            "MODULE_RUNS": str(module_runs),
        }

    def start_play(self, playbook: str, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        command = [str(PROGRAMS / "ansible-playbook"), "-i", self.inventory]
        # One of the kit's own, or a test's by its whole path.
        command.append(str(CHECKOUT / "playbooks" / playbook))
        with log.open("wb") as sink:
            return subprocess.Popen(
                [*command, *PATIENCE, *arguments],
                cwd=CHECKOUT,
                env=self.environment(log.with_suffix(".runs")),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )

    def play(self, playbook: str, *arguments: str) -> Played:
        log = self.folder / f"play-{len(list(self.folder.glob('play-*.log')))}.log"
        since = time.monotonic()
        process = self.start_play(playbook, *arguments, log=log)
        try:
            process.wait()
        finally:
            kill_session(process)
        played = Played(process.returncode, log.read_text(), time.monotonic() - since, module_runs(log))
        print(
            f"{playbook} {' '.join(arguments)}: {played.seconds:.0f} s, {played.module_runs.total()} module runs"
        )
        return played

    def on(self, host: str, *command: str) -> str:
        """What the command printed on that host; it must succeed."""
        return self.docker.run("exec", host, *command)

    def asked(self, host: str, *command: str) -> subprocess.CompletedProcess[str]:
        return self.docker.ask("exec", host, *command)

    def services(self, host: str) -> list[str]:
        """The units of the pipeline on that host that are kept running, whether they are or not: none that a timer starts."""
        listing = self.on(
            host,
            "sh",
            "-c",
            "ls /etc/systemd/system | sed -n 's/^\\(headrace-.*[.]\\(service\\|timer\\)\\)$/\\1/p'",
        )
        units = {unit.rpartition(".")[::2] for unit in listing.split()}
        return sorted(name for name, kind in units if kind == "service" and (name, "timer") not in units)

    def is_active(self, host: str, service: str) -> bool:
        return self.asked(host, "systemctl", "is-active", "--quiet", service).returncode == 0

    def process_id(self, host: str, service: str) -> int:
        return int(self.on(host, "systemctl", "show", "--value", "--property=MainPID", service))

    def reboot(self, host: str) -> None:
        """Halt in order and boot again, until systemd has done all that it starts at boot."""
        self.docker.run("restart", "--time", str(REBOOT_S), host, timeout_s=REBOOT_S + 60)
        assert eventually(
            lambda: self.asked(host, "systemctl", "is-system-running").stdout.strip() == "running"
        )

    def roads(self, *arguments: str) -> None:
        subprocess.run([sys.executable, "-m", "lab", *arguments], cwd=CHECKOUT, check=True)

    def version(self) -> str:
        return self.on("dc-east-broker-1", "readlink", "/opt/headrace/current").rsplit("/", 1)[-1]

    def report(self) -> dict[str, Any]:
        """What the audit says, asked beside the tables."""
        program = f"/opt/headrace/releases/{self.version()}/bin/headrace"
        command = [
            program,
            "audit",
            "report",
            "--bootstrap",
            OFFLINE,
            "--warehouse",
            "/var/lib/headrace/warehouse",
        ]
        command += ["--state", "/var/lib/headrace/headrace-auditor", "--output", "/var/tmp/report", "--json"]
        asked = self.docker.ask("exec", "--user", "headrace", "offline-load-1", *command)
        assert asked.stdout, asked.stderr
        found: dict[str, Any] = json.loads(asked.stdout)
        return found

    def wait_until_complete(self, acknowledged: int) -> None:
        """Until the audit has so many events in all tiers, and those of earlier modules; none of them lost, none twice."""
        names = ("produced", "live", "offline", "warehouse", "lost", "duplicated")

        def is_complete() -> bool:
            report = self.report()
            totals = report["totals"]
            print({name: totals[name] for name in names})
            return bool(
                totals["produced"] >= self.acknowledged + acknowledged and report["verdict"] == "complete"
            )

        assert eventually(is_complete, timeout_s=400)
        totals = self.report()["totals"]
        assert (totals["lost"], totals["duplicated"]) == (0, 0)


def module_runs(log: Path) -> Counter[str]:
    """How many modules a play that writes to this log has begun to run on each host so far."""
    runs = log.with_suffix(".runs")
    return Counter(line.split()[0] for line in runs.read_text().splitlines()) if runs.exists() else Counter()


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """End a program with all that it started, at once; it leads a session of its own."""
    listing = subprocess.run(
        ["ps", "-e", "-o", "pid=,sess="], check=True, capture_output=True, text=True
    ).stdout
    # Ansible's workers lead sessions of their own as well, and are found by their parents.
    family = {
        int(pid) for pid, session in map(str.split, listing.splitlines()) if int(session) == process.pid
    }
    for pid in family | descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def descendants(ancestor: int) -> set[int]:
    listing = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid="], check=True, capture_output=True, text=True
    ).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, listing.splitlines())}
    family = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family


class Watch(Watching):
    """Knocks at every broker all the time, and keeps how many of a datacenter did not answer together at most."""

    def __init__(self) -> None:
        super().__init__(pause_s=0.1)
        self.down_together_max = dict.fromkeys(BROKERS, 0)

    def look(self) -> None:
        with ThreadPoolExecutor(sum(map(len, BROKERS.values()))) as threads:
            answers = {
                datacenter: threads.map(_answers, addresses) for datacenter, addresses in BROKERS.items()
            }
            for datacenter, each in answers.items():
                down = sum(not does for does in each)
                self.down_together_max[datacenter] = max(self.down_together_max[datacenter], down)


def _answers(address: str) -> bool:
    """Soon, so that a broker which is away for seconds is seen beside a host that says nothing: the kernel takes a knock."""
    try:
        with socket.create_connection((address, 9092), timeout=1):
            return True
    except OSError:
        return False


class Traffic:
    """A front end of dc-east: an idempotent producer with acks=all that starts from HAProxy's address."""

    def __init__(self, folder: Path) -> None:
        self.result = folder / "replay.json"
        self.log = folder / "replay.log"
        command = [str(PROGRAMS / "headrace"), "replay", "--json", "--progress", "--datacenter", "dc-east"]
        command += ["--log", str(CHECKOUT / "examples" / "access.log"), "--events", str(EVENTS_MAX)]
        command += ["--rate", str(PUBLISHED_A_SECOND), "--bootstrap", BOOTSTRAP, "--registry", REGISTRY]
        with self.result.open("wb") as stdout, self.log.open("wb") as stderr:
            self.process = subprocess.Popen(command, stdout=stdout, stderr=stderr, start_new_session=True)

    def published(self) -> int:
        """How many events it has handed to the client, as it last said."""
        found = re.findall(r"^(\d+) of \d+ events published$", self.log.read_text(), re.MULTILINE)
        return int(found[-1]) if found else 0

    def moves(self) -> bool:
        """Whether it goes on publishing."""
        before = self.published()
        return eventually(lambda: self.published() > before, timeout_s=60)

    def stop(self) -> dict[str, Any]:
        """End it in order; what it knows of each event that it published."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()
        found: dict[str, Any] = json.loads(self.result.read_text())
        return found
