#!/usr/bin/python
"""Looks whether a machine can take its services, and changes nothing: all of it is one module run.

Services that run on the machine and that the inventory has no more are named in a warning: only a person knows whether their
data is still needed. What the role `machine` would install is missed only where it may not (`packages`). A drained host is named
as well, and neither its ports nor, where all hosts of the machine are drained, the clock is in the way of anything.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from typing import Any

from ansible.module_utils import headrace_machines as machines
from ansible.module_utils import headrace_marks as marks
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.headrace_definitions import rolled_out_problem
from ansible.module_utils.headrace_managers import kept, orphan_sentence, outlived_problem

DOCUMENTATION = r"""
module: headrace_machine
short_description: Check that a machine can take its services
options:
  executables: {description: Programs that must be installed., type: list, elements: str, default: []}
  python: {description: The Python that a release is installed with; none where none is., type: str}
  python_wanted: {description: "The version and the processor, as machine, that the release is for.", type: dict, default: {}}
  packages: {description: Whether the roll-out installs the system's packages itself., type: bool, default: false}
  listeners:
    description: Where the machine's services will listen.
    type: list
    elements: dict
    default: []
    suboptions:
      service: {description: The service's name., type: str, required: true}
      host: {description: The host of the inventory that has it., type: str, required: true}
      address: {description: Its address., type: str, required: true}
      port: {description: Its port., type: int, required: true}
  needs: {description: "What all services need together: memory_mb, disk by folder, open_files, jars.", type: dict, default: {}}
  clock: {description: Whether its clock must be synchronised., type: bool, default: false}
  hosts: {description: The inventory's hosts that are this machine., type: list, elements: str, default: []}
  config_dir: {description: Where marks of drained hosts are., type: path, required: true}
  services: {description: The services that the inventory has on the machine., type: list, elements: str, default: []}
  datacenters: {description: "The datacenter of each of these services, by name.", type: dict, default: {}}
  definitions: {description: "The path of a service's definition, with {} for its name.", type: str, required: true}
  data_dir: {description: The folder that has a folder for the data of each service., type: path, required: true}
  manager: {description: Who keeps the processes., type: str, required: true, choices: [supervisor, systemd]}
  socket: {description: Path of supervisor's socket., type: path}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Check the machine
  headrace_machine:
    executables: [java]
    config_dir: /etc/headrace
    data_dir: /var/lib/headrace
    definitions: /etc/systemd/system/{}.service
    manager: systemd
    listeners:
      - {service: broker, address: 10.0.1.10, port: 9092}
"""

RETURN = r"""
problems:
  description: One sentence for each thing that is in the way.
  type: list
  returned: always
leftovers:
  description: The services that run and that the inventory has no more.
  type: list
  returned: always
drained:
  description: A sentence for each host that is drained.
  type: dict
  returned: always
away:
  description: Whether all hosts that are this machine are drained.
  type: bool
  returned: always
clock_s:
  description: The time that the machine's clock shows, in seconds since 1970.
  type: float
  returned: always
"""

# The longest path of a Unix socket that Linux takes, less the suffix supervisord (its pid) appends while it starts.
SOCKET_PATH_BYTES_MAX = 107 - len(".4194304")


def programs(arguments: dict[str, Any]) -> list[str | None]:
    """What is wrong with programs; one that the roll-out will install is not missed."""
    missing = {name: machines.program_problem(name) for name in arguments["executables"]}
    found = [problem for problem in missing.values() if not arguments["packages"]]
    if missing.get("java", "") is None:
        found.append(machines.java_problem())
    if arguments["python"] is not None:
        found.append(
            machines.python_problem(
                arguments["python"], arguments["python_wanted"], installs=arguments["packages"]
            )
        )
    return found


def room(arguments: dict[str, Any]) -> list[str | None]:
    needs = arguments["needs"]
    found = [machines.memory_problem(needs.get("memory_mb", 0))]
    found += machines.disk_problems(needs.get("disk", {}))
    if needs.get("open_files"):
        limit = machines.open_files_max(arguments["manager"])
        found += [machines.open_files_problem(need, limit) for need in needs["open_files"]]
    return found + [machines.jars_problem(folder) for folder in needs.get("jars", [])]


def problems(arguments: dict[str, Any], running: dict[str, int], drained: Collection[str]) -> list[str]:
    """One sentence for each thing that is in the way; of a drained host's services nothing is."""
    path = arguments["socket"] or ""
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        return [
            f"supervisor's socket path {path} is longer than {SOCKET_PATH_BYTES_MAX} bytes: "
            "set headrace_root to a shorter folder."
        ]
    found = programs(arguments) + room(arguments)
    outlived = outlived_problem(path) if arguments["manager"] == "supervisor" else None
    found.append(outlived)
    found += [
        rolled_out_problem(name, arguments["definitions"].format(name), datacenter, arguments["data_dir"])
        for name, datacenter in arguments["datacenters"].items()
    ]
    for listener in arguments["listeners"]:
        # What runs on without its supervisord holds its ports, too.
        if outlived or listener["host"] in drained:
            continue
        service = listener["service"]
        found.append(
            machines.listener_problem(service, listener["address"], listener["port"], running.get(service, 0))
        )
    if arguments["clock"] and not arguments["packages"] and not is_away(arguments["hosts"], drained):
        found.append(machines.clock_problem())
    return [problem for problem in found if problem is not None]


def is_away(hosts: Collection[str], drained: Collection[str]) -> bool:
    """Whether nothing but drained hosts is here."""
    return bool(hosts) and set(hosts) <= set(drained)


def argument_spec() -> dict[str, Any]:
    listener_options = {
        "service": {"type": "str", "required": True},
        "host": {"type": "str", "required": True},
        "address": {"type": "str", "required": True},
        "port": {"type": "int", "required": True},
    }
    return {
        "executables": {"type": "list", "elements": "str", "default": []},
        "python": {"type": "str"},
        "python_wanted": {"type": "dict", "default": {}},
        "packages": {"type": "bool", "default": False},
        "listeners": {"type": "list", "elements": "dict", "default": [], "options": listener_options},
        "needs": {"type": "dict", "default": {}},
        "clock": {"type": "bool", "default": False},
        "hosts": {"type": "list", "elements": "str", "default": []},
        "config_dir": {"type": "path", "required": True},
        "services": {"type": "list", "elements": "str", "default": []},
        "datacenters": {"type": "dict", "default": {}},
        "definitions": {"type": "str", "required": True},
        "data_dir": {"type": "path", "required": True},
        "manager": {"type": "str", "required": True, "choices": ["supervisor", "systemd"]},
        "socket": {"type": "path"},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec=argument_spec(),
        required_if=[("manager", "supervisor", ["socket"])],
        supports_check_mode=True,
    )
    clock_s = time.time()
    running = kept(module.params["manager"], module.params["socket"])
    try:
        drained = {mark.host: marks.sentence(mark) for mark in marks.read_all(module.params["config_dir"])}
    except marks.MarkError as error:
        module.fail_json(msg=str(error))
    for sentence in drained.values():
        module.warn(sentence)
    found = problems(module.params, running, drained)
    if found:
        module.fail_json(msg="\n".join(found), problems=found, clock_s=clock_s)
    left = sorted(set(running) - set(module.params["services"]))
    for name in left:
        module.warn(orphan_sentence(name, module.params["manager"], module.params["socket"]))
    away = is_away(module.params["hosts"], drained)
    module.exit_json(changed=False, problems=[], leftovers=left, drained=drained, away=away, clock_s=clock_s)


if __name__ == "__main__":
    main()
