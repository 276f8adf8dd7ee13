#!/usr/bin/python
"""Starts, restarts and stops one service under supervisor or systemd, and waits until it serves.

Start and health wait are one module run, so that a throttled handler restarts one host, sees it well, and only then lets the
next one go. Invariants: `restarted` touches only a service that runs (systemd's try-restart), so a first roll-out starts
each service once; a service whose definition is newer than its process is restarted by `started` as well.
"""

from __future__ import annotations

import os
import subprocess
import xmlrpc.client
from typing import Any, Protocol

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.headrace_health import PROBES, complaint, wait_until

DOCUMENTATION = r"""
module: headrace_service
short_description: Run a service under supervisor or systemd and wait until it serves
options:
  name: {description: The program's or unit's name., type: str, required: true}
  manager: {description: Who keeps the process., type: str, required: true, choices: [supervisor, systemd]}
  state:
    description: What shall be; C(restarted) leaves a service alone that does not run.
    type: str
    default: started
    choices: [started, restarted, stopped]
  socket: {description: Path of supervisor's socket., type: path}
  health:
    description: How the service shows that it serves; without it a process that stays up is enough.
    type: dict
    suboptions:
      kind: {description: The protocol to ask in., type: str, required: true, choices: [tcp, kafka, zookeeper, http]}
      address: {description: Where to ask., type: str, required: true}
      port: {description: The port to ask., type: int, required: true}
      path: {description: The path of an HTTP request., type: str, default: /}
  timeout_s: {description: How long the service may take to serve., type: int, default: 60}
  log: {description: Where a person reads what the service says., type: str, required: true}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Run a broker
  headrace_service:
    name: dc-east-broker-1
    manager: supervisor
    socket: /srv/headrace/supervisor.sock
    health: {kind: kafka, address: 127.0.1.1, port: 9092}
    log: /srv/headrace/log/dc-east-broker-1.log
"""

RETURN = r"""
state:
  description: What was found before anything was done.
  type: str
  returned: always
"""

LOG_TAIL_LINES = 12
FAULT_BAD_NAME = 10


class ManagerError(Exception):
    """The service manager refuses or cannot be reached; the message is a sentence."""


class Manager(Protocol):
    """What the module needs of a service manager. States: running, stopped, changed (runs an old definition), missing."""

    def state(self) -> str: ...
    def start(self) -> None: ...
    def restart(self) -> None: ...
    def stop(self) -> None: ...
    def complaint(self) -> str | None: ...


class Supervisor:
    """One program of a supervisord, spoken to over its socket."""

    RUNNING = ("RUNNING", "STARTING", "BACKOFF")

    def __init__(self, name: str, socket: str) -> None:
        self.name = name
        self.socket = socket
        self.rpc: Any = None
        if os.path.exists(socket):
            from supervisor.xmlrpc import SupervisorTransport

            transport = SupervisorTransport(None, None, f"unix://{socket}")
            self.rpc = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport).supervisor

    def process_state(self) -> str | None:
        try:
            return str(self.rpc.getProcessInfo(self.name)["statename"])
        except xmlrpc.client.Fault as fault:
            if fault.faultCode == FAULT_BAD_NAME:
                return None
            raise ManagerError(f"supervisor says of {self.name}: {fault.faultString}.") from fault
        except OSError as error:
            raise ManagerError(f"supervisor does not answer at {self.socket}: {error}.") from error

    def definition_changed(self) -> bool:
        _, changed, _ = self.rpc.reloadConfig()[0]
        return self.name in changed

    def state(self) -> str:
        if self.rpc is None:
            return "missing"
        found = self.process_state()
        if found is None:
            return "missing"
        if found not in self.RUNNING:
            return "stopped"
        return "changed" if self.definition_changed() else "running"

    def start(self) -> None:
        if self.rpc is None:
            raise ManagerError(
                f"supervisor does not run: there is no {self.socket}. Roll out with playbooks/site.yml."
            )
        if self.process_state() is None or self.definition_changed():
            self.load_definition()
        if self.process_state() not in self.RUNNING:
            self.rpc.startProcess(self.name, False)

    def load_definition(self) -> None:
        """Make supervisor know the program, stopped, as its file describes it now."""
        self.rpc.reloadConfig()
        if self.process_state() is not None:
            self.rpc.stopProcessGroup(self.name, True)
            self.rpc.removeProcessGroup(self.name)
        try:
            self.rpc.addProcessGroup(self.name)
        except xmlrpc.client.Fault as fault:
            raise ManagerError(
                f"supervisor has no definition of {self.name}: {fault.faultString}."
            ) from fault

    def restart(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        self.rpc.stopProcess(self.name, True)

    def complaint(self) -> str | None:
        info = self.rpc.getProcessInfo(self.name)
        if info["statename"] == "RUNNING":
            return None
        return f"supervisor says {info['statename']}: {info['spawnerr'] or info['description']}"


class Systemd:
    """One systemd unit."""

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
        names = "LoadState,ActiveState,UnitFileState,NeedDaemonReload,Result"
        command = ["systemctl", "show", f"--property={names}", self.unit]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)

    def state(self) -> str:
        found = self.properties()
        if found.get("LoadState") != "loaded":
            return "missing"
        if found["ActiveState"] not in ("active", "activating", "reloading"):
            return "stopped"
        return "changed" if found["NeedDaemonReload"] == "yes" else "running"

    def reload_definitions(self) -> None:
        subprocess.run(["systemctl", "daemon-reload"], check=True)

    def start(self) -> None:
        changed = self.state() == "changed"
        self.reload_definitions()
        if self.properties().get("UnitFileState") != "enabled":
            self.systemctl("enable")
        self.systemctl("restart" if changed else "start")

    def restart(self) -> None:
        self.reload_definitions()
        self.systemctl("restart")

    def stop(self) -> None:
        self.systemctl("stop")

    def complaint(self) -> str | None:
        found = self.properties()
        if found.get("ActiveState") == "active":
            return None
        return f"systemd says {found.get('ActiveState')} ({found.get('Result')})"


def act(manager: Manager, wanted: str, check_mode: bool) -> tuple[bool, str]:
    """Bring the service to the wanted state; returns whether that changed anything, and the state found."""
    found = manager.state()
    running = found in ("running", "changed")
    changed = {
        "started": found != "running",
        "restarted": running,
        "stopped": running,
    }[wanted]
    if changed and not check_mode:
        {"started": manager.start, "restarted": manager.restart, "stopped": manager.stop}[wanted]()
    return changed, found


def log_tail(log: str) -> str:
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()[-LOG_TAIL_LINES:]
    except OSError:
        return ""
    return " Its last lines:\n" + "".join(lines) if lines else " It is empty."


def wait_until_well(manager: Manager, health: dict[str, Any] | None, timeout_s: int) -> str | None:
    """None once the process is up and answers; otherwise what is wrong when time has run out."""

    def ask() -> str | None:
        process = manager.complaint()
        if process is not None or health is None:
            return process
        answer = complaint(health["kind"], health["address"], health["port"], health["path"])
        return answer and f"{health['kind']} at {health['address']}:{health['port']}: {answer}"

    return wait_until(ask, timeout_s)


def main() -> None:
    health_options = {
        "kind": {"type": "str", "required": True, "choices": sorted(PROBES)},
        "address": {"type": "str", "required": True},
        "port": {"type": "int", "required": True},
        "path": {"type": "str", "default": "/"},
    }
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "manager": {"type": "str", "required": True, "choices": ["supervisor", "systemd"]},
            "state": {"type": "str", "default": "started", "choices": ["started", "restarted", "stopped"]},
            "socket": {"type": "path"},
            "health": {"type": "dict", "options": health_options},
            "timeout_s": {"type": "int", "default": 60},
            "log": {"type": "str", "required": True},
        },
        required_if=[("manager", "supervisor", ["socket"])],
        supports_check_mode=True,
    )
    arguments = module.params
    name, wanted = arguments["name"], arguments["state"]
    manager: Manager = (
        Supervisor(name, arguments["socket"]) if arguments["manager"] == "supervisor" else Systemd(name)
    )
    try:
        changed, found = act(manager, wanted, module.check_mode)
        must_serve = not module.check_mode and (wanted == "started" or (wanted == "restarted" and changed))
        wrong = wait_until_well(manager, arguments["health"], arguments["timeout_s"]) if must_serve else None
    except (ManagerError, xmlrpc.client.Fault, OSError, subprocess.CalledProcessError) as error:
        module.fail_json(msg=f"{name}: {error}")
    if wrong is not None:
        log = arguments["log"]
        module.fail_json(
            msg=f"{name} does not serve after {arguments['timeout_s']} s: {wrong}. Its log is {log}.{log_tail(log)}"
        )
    module.exit_json(changed=changed, state=found)


if __name__ == "__main__":
    main()
