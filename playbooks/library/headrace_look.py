#!/usr/bin/python
"""Looks how a machine and its services are, or asks a program of the release, and changes nothing; all in one module run."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import time
import xmlrpc.client
from contextlib import suppress
from typing import Any

from ansible.module_utils import headrace_fingerprint as fingerprint
from ansible.module_utils import headrace_kept as keeping
from ansible.module_utils import headrace_machines as machines
from ansible.module_utils import headrace_marks as marks
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.headrace_health import complaint
from ansible.module_utils.headrace_managers import (
    Manager,
    ManagerError,
    Supervisor,
    Systemd,
    kept,
    orphan_sentence,
)
from ansible.module_utils.headrace_redaction import redacted
from ansible.module_utils.headrace_served_certificates import served_until

DOCUMENTATION = r"""
module: headrace_look
short_description: Look how a machine and its services are
description:
  - Tells of each service whether it runs, since when, from which release, whether it answers, and for how long its
    certificate still holds; of each folder how full its disk is; and what commands print.
  - A host that does not answer is no failure; the result has a sentence C(unanswered) instead.
options:
  services:
    description:
      - The services to look at, each with its name, its host, and probes (kind, address, port, path).
      - C(certified) says whether what it shows is a certificate of its own.
    type: list
    elements: dict
    default: []
  wanted: {description: The services that the inventory has on the machine., type: list, elements: str, default: []}
  manager: {description: Who keeps the processes., type: str, choices: [supervisor, systemd]}
  socket: {description: Path of supervisor's socket., type: path}
  folders: {description: "Folders whose disks are looked at, and whose brokers' scrubs.", type: list, elements: path, default: []}
  config_dir:
    description: The folder of configuration, where marks of drained hosts are, and what services ran before a change.
    type: path
  clock: {description: Whether the clock must be synchronised., type: bool, default: false}
  commands: {description: "Commands to run, each with a name and a list argv.", type: list, elements: dict, default: []}
  timeout_s: {description: How long each command may take., type: int, default: 60}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Look at the machine
  headrace_look:
    manager: systemd
    services:
      - name: headrace-broker-1
        host: dc-east-broker-1
        certified: true
        probes: [{kind: kafka, address: 10.0.1.1, port: 9092, path: ""}]
"""

RETURN = r"""
services:
  description: What was found of each service.
  type: list
  returned: always
disks:
  description: Each disk's folder, its free and its whole size in MB.
  type: list
  returned: always
drained:
  description: The hosts of the machine that are drained, each with a sentence.
  type: list
  returned: always
unsettled:
  description: The services that run a change which has not passed its gates.
  type: list
  returned: always
orphans:
  description: A sentence for each service that runs and that the inventory has no more.
  type: list
  returned: always
complaints:
  description: A sentence for each thing of the machine itself that is not well.
  type: list
  returned: always
answers:
  description: What each command printed, with its exit code.
  type: list
  returned: always
"""

ANSWER_CHARACTERS_MAX = 20_000
TLS_PROBES = ("kafka_tls", "zookeeper_tls", "https")


def look_at(service: dict[str, Any], manager: Manager) -> dict[str, Any]:
    """What there is to say of one service; a complaint is None when it is well."""
    found: dict[str, Any] = {"name": service["name"], "host": service["host"], "release": "", "since_s": None}
    found["state"] = manager.state()
    found["restarts"] = restarts(manager)
    found["complaint"] = None if found["state"] == "running" else found["state"]
    if found["state"] != "running":
        return found
    pid = manager.process_id()
    found["since_s"] = running_s(pid)
    found["release"] = fingerprint.running(pid).rpartition("\n")[2] if pid else ""
    for probe in service["probes"]:
        said = complaint(probe["kind"], probe["address"], probe["port"], probe["path"])
        if said is not None:
            place = f"{probe['address']}:{probe['port']}{probe['path']}"
            found["complaint"] = f"{probe['kind']} at {place}: {said}"
            break
    found["certificate_left_s"] = certificate_left_s(service["probes"]) if service["certified"] else None
    return found


def certificate_left_s(probes: list[dict[str, Any]]) -> int | None:
    """For how long the certificate still holds that is shown first, below zero once it has expired; None: there is none."""
    for probe in probes:
        until = served_until(probe["address"], probe["port"]) if probe["kind"] in TLS_PROBES else None
        if until is not None:
            return round(until - time.time())
    return None


def restarts(manager: Manager) -> int | None:
    """How often systemd brought the service back since somebody started it; supervisor does not count."""
    if not isinstance(manager, Systemd):
        return None
    command = ["systemctl", "show", "--value", "--property=NRestarts", manager.unit]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return int(said) if said.isdigit() else None


def running_s(pid: int) -> int | None:
    """For how long the process has been there."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime", encoding="ascii") as file:
            up_s = float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return max(0, round(up_s - ticks / os.sysconf("SC_CLK_TCK")))


def looked_at(service: dict[str, Any], manager: str, socket: str) -> dict[str, Any]:
    keeper: Manager = (
        Supervisor(service["name"], socket) if manager == "supervisor" else Systemd(service["name"])
    )
    try:
        return look_at(service, keeper)
    except (ManagerError, fingerprint.UnreadableError, xmlrpc.client.Fault, OSError) as error:
        return {
            "name": service["name"],
            "host": service["host"],
            "state": "unknown",
            "release": "",
            "since_s": None,
            "restarts": None,
            "complaint": str(error),
        }


def disks(folders: list[str]) -> list[dict[str, Any]]:
    """The disks under the folders that are there, each once."""
    found: dict[int, dict[str, Any]] = {}
    for folder in folders:
        if os.path.isdir(folder):
            usage = shutil.disk_usage(folder)
            entry = {"folder": folder, "free_mb": usage.free >> 20, "whole_mb": usage.total >> 20}
            found.setdefault(os.stat(folder).st_dev, entry)
    return list(found.values())


def rotten_logs(folders: list[str]) -> list[str]:
    """A sentence for each log in which the last scrub of a broker found rotten bytes."""
    outcomes = [path for folder in folders for path in glob.glob(os.path.join(folder, "*", "scrub-outcome"))]
    logs = [
        os.path.join(os.path.dirname(path), name) for path in sorted(outcomes) for name in rotten_names(path)
    ]
    return [
        f"{log} on {machines.name()} has rotten bytes: make that replica anew (docs/alerts.md, HeadraceReplicaRotten)."
        for log in logs
        if os.path.isdir(log)
    ]


def rotten_names(path: str) -> list[str]:
    """The logs that an outcome names; none where it is replaced meanwhile, or cannot be understood."""
    with suppress(OSError, ValueError, LookupError, TypeError), open(path, encoding="utf-8") as file:
        return sorted(json.load(file)["rotten_places"])
    return []


def drained_hosts(config_dir: str | None) -> tuple[list[dict[str, str]], list[str]]:
    """The marks of drained hosts, and a sentence for one that cannot be read."""
    try:
        found = marks.read_all(config_dir) if config_dir else []
    except marks.MarkError as error:
        return [], [str(error)]
    return [{"host": mark.host, "sentence": marks.sentence(mark)} for mark in found], []


def unsettled(services: list[dict[str, Any]], config_dir: str | None) -> list[str]:
    """The services whose change was interrupted, or is under way."""
    if not config_dir:
        return []
    return [
        each["name"] for each in services if keeping.is_kept(os.path.join(config_dir, each["name"], "kept"))
    ]


def orphans(wanted: list[str], manager: str | None, socket: str) -> list[str]:
    """A sentence for each service that the manager keeps and that is not wanted; none where it cannot be asked."""
    if manager is None:
        return []
    with suppress(xmlrpc.client.Fault, OSError):
        return [
            orphan_sentence(name, manager, socket)
            for name in sorted(set(kept(manager, socket)) - set(wanted))
        ]
    return []


def answer(command: dict[str, Any], timeout_s: int) -> dict[str, Any]:
    """What a command came to, without secrets; `code` is None where it did not end or could not be run."""
    code: int | None = None
    try:
        done = subprocess.run(
            command["argv"], capture_output=True, text=True, timeout=timeout_s, check=False, errors="replace"
        )
        code, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        said = f"it did not end within {timeout_s} s"
    except OSError as error:
        said = f"{command['argv'][0]} cannot be run: {error.strerror}"
    return {"name": command["name"], "code": code, "said": redacted(said.strip()[-ANSWER_CHARACTERS_MAX:])}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "services": {"type": "list", "elements": "dict", "default": []},
            "wanted": {"type": "list", "elements": "str", "default": []},
            "manager": {"type": "str", "choices": ["supervisor", "systemd"]},
            "socket": {"type": "path"},
            "folders": {"type": "list", "elements": "path", "default": []},
            "config_dir": {"type": "path"},
            "clock": {"type": "bool", "default": False},
            "commands": {"type": "list", "elements": "dict", "default": []},
            "timeout_s": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    asked = module.params
    drained, complaints = drained_hosts(asked["config_dir"])
    clock = machines.clock_problem() if asked["clock"] else None
    module.exit_json(
        changed=False,
        services=[looked_at(each, asked["manager"], asked["socket"]) for each in asked["services"]],
        disks=disks(asked["folders"]),
        drained=drained,
        unsettled=unsettled(asked["services"], asked["config_dir"]),
        orphans=orphans(asked["wanted"], asked["manager"], asked["socket"]),
        complaints=[*complaints, *([clock] if clock else []), *rotten_logs(asked["folders"])],
        answers=[answer(each, asked["timeout_s"]) for each in asked["commands"]],
    )


if __name__ == "__main__":
    main()
