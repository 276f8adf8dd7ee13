#!/usr/bin/python
"""Looks whether a machine can take its services: programs installed, addresses its own, ports free. Changes nothing.

Services that run on the machine and that the inventory has no more are named in a warning: only a person knows whether their
data is still needed.

A port that is taken is fine while our own service manager runs on the machine: then the holder is most likely the service
itself, and the roll-out finds out when it asks the service.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.headrace_managers import supervisor_services, systemd_services

DOCUMENTATION = r"""
module: headrace_machine
short_description: Check that a machine can take its services
options:
  executables: {description: Programs that must be installed., type: list, elements: str, default: []}
  listeners:
    description: Where the machine's services will listen.
    type: list
    elements: dict
    default: []
    suboptions:
      service: {description: The service's name., type: str, required: true}
      address: {description: Its address., type: str, required: true}
      port: {description: Its port., type: int, required: true}
  services: {description: The services that the inventory has on the machine., type: list, elements: str, default: []}
  manager: {description: Who keeps the processes., type: str, required: true, choices: [supervisor, systemd]}
  socket: {description: Path of supervisor's socket., type: path}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Check the machine
  headrace_machine:
    executables: [java]
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
"""

# The longest path of a Unix socket that Linux takes, less the suffix supervisord (its pid) appends while it starts.
SOCKET_PATH_BYTES_MAX = 107 - len(".4194304")
# Debian keeps haproxy where only root's PATH looks.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def missing_executables(names: list[str]) -> list[str]:
    return [
        f"The program {name} is not installed on {socket.gethostname()}: {install_hint(name)}."
        for name in names
        if shutil.which(name, path=SEARCH_PATH) is None
    ]


def install_hint(name: str) -> str:
    package = {"java": "openjdk-17-jre-headless"}.get(name, name)
    return f"install it (apt-get install {package})"


def listener_problem(service: str, address: str, port: int) -> str | None:
    """A sentence when nobody could listen there now."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            reason = "something else listens there" if error.errno == 98 else error.strerror
            return f"{service} cannot listen at {address}:{port}: {reason}. Stop it or change the inventory."
    return None


def supervisor_answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError:
            return False
    return True


def ours_runs(arguments: dict[str, Any], service: str) -> bool:
    if arguments["manager"] == "supervisor":
        return supervisor_answers(arguments["socket"])
    return subprocess.run(["systemctl", "is-active", "--quiet", service], check=False).returncode == 0


def leftovers(arguments: dict[str, Any]) -> list[str]:
    """The services that the manager keeps here and that the inventory does not have."""
    if arguments["manager"] == "systemd":
        kept = systemd_services()
    else:
        kept = supervisor_services(arguments["socket"]) if supervisor_answers(arguments["socket"]) else []
    return sorted(set(kept) - set(arguments["services"]))


def leftover_sentence(name: str, manager: str, path: str | None) -> str:
    stop = {
        "supervisor": f"supervisorctl -s unix://{path} stop {name}",
        "systemd": f"systemctl disable --now {name}",
    }
    return (
        f"{name} runs on {socket.gethostname()} and no host of the inventory has it: "
        f"stop it there with `{stop[manager]}`, or put its host back into the inventory."
    )


def problems(arguments: dict[str, Any]) -> list[str]:
    found = missing_executables(arguments["executables"])
    path = arguments["socket"] or ""
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        found.append(
            f"supervisor's socket path {path} is longer than {SOCKET_PATH_BYTES_MAX} bytes: "
            "set headrace_root to a shorter folder."
        )
        return found
    for listener in arguments["listeners"]:
        if not ours_runs(arguments, listener["service"]):
            problem = listener_problem(listener["service"], listener["address"], listener["port"])
            found += [problem] if problem else []
    return found


def main() -> None:
    listener_options = {
        "service": {"type": "str", "required": True},
        "address": {"type": "str", "required": True},
        "port": {"type": "int", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "executables": {"type": "list", "elements": "str", "default": []},
            "listeners": {"type": "list", "elements": "dict", "default": [], "options": listener_options},
            "services": {"type": "list", "elements": "str", "default": []},
            "manager": {"type": "str", "required": True, "choices": ["supervisor", "systemd"]},
            "socket": {"type": "path"},
        },
        required_if=[("manager", "supervisor", ["socket"])],
        supports_check_mode=True,
    )
    found = problems(module.params)
    if found:
        module.fail_json(msg=" ".join(found), problems=found)
    left = leftovers(module.params)
    for name in left:
        module.warn(leftover_sentence(name, module.params["manager"], module.params["socket"]))
    module.exit_json(changed=False, problems=[], leftovers=left)


if __name__ == "__main__":
    main()
