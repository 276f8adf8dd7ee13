"""The local roll-out as the demo sees it: where its clients go, its playbooks, whether it runs.

Owns how Ansible is called and how its output is cut down to one line a play. It must not know what an event is.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

CHECKOUT: Final = Path(__file__).resolve().parents[1]
BOOTSTRAP_PORT: Final = 9092
REGISTRY_PORT: Final = 8081
_PLAY: Final = re.compile(r"PLAY \[(.+?)\] \*+")
_FAILURE: Final = re.compile(r"fatal: \[([^\]]+)\].*? => (\{.*\})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Datacenter:
    """Where a datacenter's clients go: `HOST:PORT,...` to start from, and the URL of its registry."""

    name: str
    bootstrap: str
    registry_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The datacenters of an inventory."""

    live: tuple[Datacenter, ...]
    offline: Datacenter


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One inventory rolled out under one folder of this machine."""

    inventory: Path = CHECKOUT / "inventory" / "local"
    root: Path = CHECKOUT / "var" / "local"
    ansible_log: Path = CHECKOUT / "var" / "demo" / "ansible.log"

    @property
    def data_directory(self) -> Path:
        return self.root / "data"

    @property
    def log_directory(self) -> Path:
        return self.root / "log"

    @property
    def warehouse(self) -> Path:
        return self.data_directory / "warehouse"

    def runs(self) -> bool:
        """Whether the supervisor of this roll-out answers."""
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.root / "supervisor.sock"))
            except OSError:
                return False
        return True

    def topology(self) -> Topology:
        """Read the inventory through Ansible.

        Raises:
            click.ClickException: Ansible cannot read it.
        """
        command = [program("ansible-inventory"), "-i", str(self.inventory), "--list"]
        result = subprocess.run(
            command, capture_output=True, text=True, check=False, env=ansible_environment()
        )
        if result.returncode != 0:
            raise click.ClickException(f"Ansible cannot read {self.inventory}: {result.stderr.strip()}")
        return topology_of(json.loads(result.stdout))

    def play(self, playbook: str, say: Callable[[str, float], None], *settings: str) -> None:
        """Run one playbook with extra variables; `say` gets each finished play's name and how long it took in seconds.

        Raises:
            click.ClickException: a play failed; the message has each host's sentence and the log's path.
        """
        command = [
            program("ansible-playbook"),
            "-i",
            str(self.inventory),
            str(CHECKOUT / "playbooks" / playbook),
        ]
        for setting in (
            json.dumps({"headrace_root": str(self.root), "headrace_support_bundle": False}),
            *settings,
        ):
            command += ["-e", setting]
        self.ansible_log.parent.mkdir(parents=True, exist_ok=True)
        # A session of its own: Ctrl-C reaches the demo alone, which then decides what ends and in which order.
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=CHECKOUT,
            env=ansible_environment(),
            start_new_session=True,
        )
        try:
            failures = self._follow(process, say)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if process.returncode != 0:
            reasons = "\n".join(failures) or "it names no host"
            raise click.ClickException(
                f"{playbook} failed: {reasons}\nAll of its output is in {self.ansible_log}."
            )

    def _follow(self, process: subprocess.Popen[str], say: Callable[[str, float], None]) -> list[str]:
        assert process.stdout is not None
        failures: list[str] = []
        play, since = "", time.monotonic()
        with self.ansible_log.open("a", encoding="utf-8") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                started = _PLAY.match(line)
                if line.startswith("skipping: no hosts matched"):
                    play = ""
                elif started or line.startswith("PLAY RECAP"):
                    if play and not failures:
                        say(play, time.monotonic() - since)
                    play, since = started[1] if started else "", time.monotonic()
                failures += failure_sentences(line)
        process.wait()
        return failures


def program(name: str) -> str:
    """The path of a program of this virtual environment."""
    return str(Path(sys.executable).parent / name)


def ansible_environment() -> dict[str, str]:
    """The environment in which Ansible finds the checkout's settings, and a locale that it accepts."""
    return {
        **os.environ,
        "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_NOCOLOR": "1",
    }


def topology_of(listing: Mapping[str, Any]) -> Topology:
    """The datacenters in what `ansible-inventory --list` printed."""
    variables = listing["_meta"]["hostvars"]

    def addresses(group: str, name: str, port: int) -> list[str]:
        hosts = listing.get(group, {}).get("hosts", [])
        return [f"{variables[host]['headrace_address']}:{port}" for host in hosts if named(host) == name]

    def named(host: str) -> str:
        return str(variables[host]["headrace_datacenter"])

    def datacenter(name: str) -> Datacenter:
        bootstrap = addresses("haproxy", name, BOOTSTRAP_PORT) or addresses("broker", name, BOOTSTRAP_PORT)
        registry = addresses("registry", name, REGISTRY_PORT)[0]
        return Datacenter(name=name, bootstrap=",".join(bootstrap), registry_url=f"http://{registry}")

    loads = [named(host) for host in listing["load"]["hosts"]]
    names = dict.fromkeys(named(host) for host in listing["broker"]["hosts"])
    live = tuple(datacenter(name) for name in names if name != loads[0])
    return Topology(live=live, offline=datacenter(loads[0]))


def failure_sentences(line: str) -> list[str]:
    """What one line of Ansible's output says of a failed host: nothing, or a sentence."""
    found = _FAILURE.match(line)
    if found is None:
        return []
    try:
        message = str(json.loads(found[2]).get("msg", found[2]))
    except json.JSONDecodeError:
        message = found[2]
    return [f"{found[1]}: {message.removeprefix('Task failed: ').removeprefix('Module failed: ')}"]
