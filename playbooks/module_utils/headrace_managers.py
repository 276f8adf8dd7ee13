"""Supervisor and systemd, as a roll-out needs them: one service's state, its process, start, restart and stop.

States: running (a process is there), failing (it ends again and again), stopped, missing (the manager does not know it). What a
roll-out starts comes back with the machine where the manager does (systemd), and what it stops does not.
"""

from __future__ import annotations

import glob
import os
import signal
import socket
import subprocess
import xmlrpc.client
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, ClassVar, Protocol

from ansible.module_utils.headrace_fingerprint import UnreadableError, environment
from ansible.module_utils.headrace_health import wait_until
from ansible.module_utils.headrace_machines import parent_of

FAULT_BAD_NAME = 10
FAULT_ALREADY_STARTED = 60
LOG_TAIL_LINES = 12
SCRUB = "-scrub"
"""What follows a broker's name in those of the units that scrub its logs."""
START = "start it with playbooks/site.yml, whose --limit has to name the machine as well, where there is one"


class ManagerError(Exception):
    """The service manager refuses or cannot be reached; the message is a sentence."""


class Manager(Protocol):
    def state(self) -> str: ...
    def process_id(self) -> int: ...
    def start(self) -> None: ...
    def restart(self) -> None: ...
    def reload(self, signal: str) -> None: ...
    def stop(self) -> None: ...
    def complaint(self) -> str | None: ...

    def comes_back(self) -> bool | None:
        """Whether it starts with the machine; None where nothing of the manager's does."""
        ...

    def enable(self) -> None:
        """Have it start with the machine."""
        ...

    def forget(self, definition: str) -> None:
        """Remove its definition, the file of that path, once it is stopped."""
        ...

    def log_tail(self, log: str) -> list[str]:
        """The last lines that it said; `log` is the file where the manager keeps them, if it keeps a file."""
        ...


def supervisor_rpc(path: str) -> Any:
    from supervisor.xmlrpc import SupervisorTransport

    transport = SupervisorTransport(None, None, f"unix://{path}")
    return xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport).supervisor


def supervisor_answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError:
            return False
    return True


def supervisor_processes(path: str) -> dict[str, int]:
    """The programs that a supervisord keeps running, or tries to, each with its process, 0 while it has none."""
    found = supervisor_rpc(path).getAllProcessInfo()
    return {info["name"]: int(info["pid"]) for info in found if info["statename"] in Supervisor.STATES}


def outlived(path: str) -> dict[int, str]:
    """Processes that a supervisord at this socket started and that run on without it, each with its program's name.

    Supervisor tells each program its name and the socket, in the environment, which what that program starts has as well.
    """
    found: dict[int, str] = {}
    if supervisor_answers(path):
        return found
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        # What another user runs is none that this supervisord started.
        with suppress(UnreadableError):
            variables = environment(pid)
            if variables.get("SUPERVISOR_SERVER_URL") == f"unix://{path}":
                found[pid] = variables.get("SUPERVISOR_PROCESS_NAME", "")
    return found


def first_of(found: Iterable[int]) -> list[int]:
    """Those of these processes that none of the others started."""
    return [pid for pid in found if parent_of(pid) not in found]


def outlived_problem(path: str) -> str | None:
    """What a supervisord that was killed has left running, in a sentence."""
    found = outlived(path)
    if not found:
        return None
    named = ", ".join(f"{found[pid]} (process {pid})" for pid in first_of(found))
    return (
        f"The supervisord of {path} is gone on {socket.gethostname()}, and what it had started runs on: {named}. "
        "Stop that with playbooks/down.yml, then roll out."
    )


def stop_outlived(path: str, timeout_s: float, name: str | None = None) -> None:
    """Stop what a supervisord has left running, or one program of it, as supervisor does: what is too slow is killed."""

    def left() -> list[int]:
        return [pid for pid, program in outlived(path).items() if name in (None, program)]

    def signalled(pids: Iterable[int], number: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    signalled(first_of(left()), signal.SIGTERM)
    if wait_until(lambda: "it still stops" if left() else None, timeout_s):
        signalled(left(), signal.SIGKILL)


def systemd_services() -> list[str]:
    """The units of a pipeline that systemd keeps running, or tries to; a scrub is part of its broker."""
    command = [
        "systemctl",
        "list-units",
        "--type=service",
        "--state=active,activating",
        "--plain",
        "--no-legend",
    ]
    result = subprocess.run([*command, "headrace-*"], capture_output=True, text=True, check=False)
    names = [line.split()[0].removesuffix(".service") for line in result.stdout.splitlines() if line.strip()]
    return [name for name in names if not name.endswith(SCRUB)]


class Supervisor:
    """One program of a supervisord, spoken to over its socket."""

    STATES: ClassVar = {"RUNNING": "running", "STARTING": "running", "BACKOFF": "failing"}

    def __init__(self, name: str, socket: str) -> None:
        self.name = name
        self.socket = socket
        self.rpc: Any = supervisor_rpc(socket) if os.path.exists(socket) else None

    def info(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.rpc.getProcessInfo(self.name)
            return found
        except xmlrpc.client.Fault as fault:
            if fault.faultCode == FAULT_BAD_NAME:
                return None
            raise ManagerError(f"supervisor says of {self.name}: {fault.faultString}.") from fault
        except ConnectionRefusedError as error:
            raise ManagerError(
                f"supervisor does not run, though {self.socket} is there, as after a boot or where it was killed: {START}."
            ) from error
        except OSError as error:
            raise ManagerError(f"supervisor does not answer at {self.socket}: {error}.") from error

    def state(self) -> str:
        found = None if self.rpc is None else self.info()
        return "missing" if found is None else self.STATES.get(found["statename"], "stopped")

    def process_id(self) -> int:
        found = self.info()
        return 0 if found is None else int(found["pid"])

    def definition_changed(self) -> bool:
        _, changed, _ = self.rpc.reloadConfig()[0]
        return self.name in changed

    def start(self) -> None:
        if self.rpc is None:
            raise ManagerError(f"supervisor does not run: there is no {self.socket}: {START}.")
        if self.definition_changed() or self.info() is None:
            self.load_definition()
        try:
            self.rpc.startProcess(self.name, False)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode != FAULT_ALREADY_STARTED:
                raise
            raise ManagerError(
                "another run started it meanwhile: wait for its end, then run this one again."
            ) from fault

    def load_definition(self) -> None:
        """Make supervisor know the program, stopped, as its file describes it now."""
        if self.info() is not None:
            self.rpc.stopProcessGroup(self.name, True)
            self.rpc.removeProcessGroup(self.name)
        try:
            self.rpc.addProcessGroup(self.name)
        except xmlrpc.client.Fault as fault:
            raise ManagerError(
                f"supervisor has no definition of {self.name}: {fault.faultString}."
            ) from fault

    def restart(self) -> None:
        # Definitions that supervisor cannot read are found before the process stops.
        self.rpc.reloadConfig()
        self.stop()
        self.start()

    def reload(self, signal: str) -> None:
        self.rpc.signalProcess(self.name, signal)

    def stop(self) -> None:
        self.rpc.stopProcess(self.name, True)

    def comes_back(self) -> bool | None:
        return None

    def enable(self) -> None:
        """A supervisord starts nothing by itself, and nothing starts it."""

    def forget(self, definition: str) -> None:
        if os.path.exists(definition):
            os.unlink(definition)
        if self.rpc is not None and self.info() is not None:
            self.rpc.removeProcessGroup(self.name)

    def log_tail(self, log: str) -> list[str]:
        try:
            with open(log, encoding="utf-8", errors="replace") as file:
                return file.read().splitlines()[-LOG_TAIL_LINES:]
        except OSError:
            return []

    def complaint(self) -> str | None:
        info = self.rpc.getProcessInfo(self.name)
        if info["statename"] == "RUNNING":
            return None
        return f"supervisor says {info['statename']}: {info['spawnerr'] or info['description']}"


class Outlived(Supervisor):
    """One program of a supervisord that is gone: it may run on, and can only be stopped."""

    def __init__(self, name: str, socket: str, timeout_s: float) -> None:
        super().__init__(name, socket)
        self.rpc = None
        self.timeout_s = timeout_s

    def state(self) -> str:
        return "running" if self.name in outlived(self.socket).values() else "missing"

    def stop(self) -> None:
        stop_outlived(self.socket, self.timeout_s, self.name)


class Systemd:
    """One systemd unit."""

    STATES: ClassVar = {"active": "running", "reloading": "running", "activating": "failing"}

    def __init__(self, name: str) -> None:
        self.unit = f"{name}.service"

    def systemctl(self, *arguments: str) -> None:
        result = subprocess.run(
            ["systemctl", *arguments, self.unit], capture_output=True, text=True, check=False
        )
        if result.returncode != 0:
            raise ManagerError(
                f"`systemctl {' '.join(arguments)} {self.unit}` failed: {result.stderr.strip()}"
            )

    def properties(self) -> dict[str, str]:
        names = "LoadState,ActiveState,UnitFileState,MainPID,Result"
        command = ["systemctl", "show", f"--property={names}", self.unit]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)

    def state(self) -> str:
        found = self.properties()
        if found.get("LoadState") != "loaded":
            return "missing"
        return self.STATES.get(found["ActiveState"], "stopped")

    def process_id(self) -> int:
        return int(self.properties().get("MainPID") or 0)

    def start(self) -> None:
        self.load_definition()
        self.systemctl("start")

    def load_definition(self) -> None:
        subprocess.run(["systemctl", "daemon-reload"], check=True)
        if not self.comes_back():
            self.enable()

    def comes_back(self) -> bool | None:
        return self.properties().get("UnitFileState") == "enabled"

    def enable(self) -> None:
        self.systemctl("enable")

    def restart(self) -> None:
        self.load_definition()
        self.systemctl("restart")

    def reload(self, signal: str) -> None:
        """The unit has the signal."""
        self.systemctl("reload")

    def stop(self) -> None:
        self.systemctl("disable", "--now")

    def forget(self, definition: str) -> None:
        folder = os.path.dirname(definition)
        # Links that outlived their unit's file are no more found by `systemctl disable`.
        links = glob.glob(os.path.join(folder, "*.*", self.unit))
        scrub = glob.glob(f"{glob.escape(definition.removesuffix('.service'))}{SCRUB}.*")
        for path in [definition, *links, *scrub]:
            if os.path.lexists(path):
                os.unlink(path)
        subprocess.run(["systemctl", "daemon-reload"], check=True)
        # A unit that failed is otherwise listed until the next boot.
        subprocess.run(["systemctl", "reset-failed", self.unit], capture_output=True, check=False)

    def log_tail(self, log: str) -> list[str]:
        command = [
            "journalctl",
            f"--unit={self.unit}",
            f"--lines={LOG_TAIL_LINES}",
            "--no-pager",
            "--output=cat",
        ]
        try:
            result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError:
            return []
        return [line for line in result.stdout.splitlines() if line != "-- No entries --"]

    def complaint(self) -> str | None:
        found = self.properties()
        if found.get("ActiveState") == "active":
            return None
        return f"systemd says {found.get('ActiveState')} ({found.get('Result')})"


def kept(manager: str, path: str) -> dict[str, int]:
    """The services that the manager keeps on this machine, each with its process; `path` is supervisor's socket."""
    if manager == "systemd":
        return {name: Systemd(name).process_id() for name in systemd_services()}
    return supervisor_processes(path) if supervisor_answers(path) else {}


def orphan_sentence(name: str, manager: str, path: str | None) -> str:
    """What is to be said of a service that runs and that no host of the inventory has."""
    stop = {
        "supervisor": f"supervisorctl -s unix://{path} stop {name}",
        "systemd": f"systemctl disable --now {name}",
    }
    return (
        f"{name} runs on {socket.gethostname()} and no host of the inventory has it: "
        f"stop it there with `{stop[manager]}`, or put its host back into the inventory."
    )
