#!/usr/bin/python
"""Prepares a host's system for its services, all in one module run: packages, settings of the kernel, limits, journal.

What is there already is left alone: a program that is installed by other means, and a setting that is higher than it must be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.headrace_packages import (
    INSTALL,
    PACKAGES,
    PROGRAMS,
    UnknownSystemError,
    family,
    os_release,
)
from ansible.module_utils.headrace_writing import FILE_OPTIONS, FilesError, differences, write

DOCUMENTATION = r"""
module: headrace_preparation
short_description: Prepare a host's system for its services
description:
  - Installs the packages of programs that are missing, on Debian and on Amazon Linux.
  - Writes files and puts settings of the kernel into effect; where a container may not, it says so and goes on.
options:
  needs: {description: What must be installed., type: list, elements: str, default: [], choices: [clock, haproxy, java, python]}
  python: {description: The Python that must be able to make virtual environments., type: str, default: python3}
  files: {description: Files to write; one below /etc/systemd/journald.conf.d has the journal read it., type: list,
          elements: dict, default: []}
  kernel:
    description: Settings of the kernel, which are raised to their value, or set to it where C(exactly) says so.
    type: list
    elements: dict
    default: []
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Prepare the host
  headrace_preparation:
    needs: [clock, java]
    kernel: [{name: vm.swappiness, value: 1, exactly: true, reason: "..."}]
"""

RETURN = r"""
packages:
  description: What was installed, or would be.
  type: list
  returned: always
"""

SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
SAID_CHARACTERS_MAX = 1500


class PreparationError(Exception):
    """Why the host cannot be prepared; the message is a sentence."""


def is_there(need: str, python: str) -> bool:
    if need == "python":
        program = shutil.which(python)
        makes_environments = [program or "", "-c", "import ensurepip, venv"]
        return (
            program is not None
            and subprocess.run(makes_environments, capture_output=True, check=False).returncode == 0
        )
    return any(shutil.which(name, path=SEARCH_PATH) for name in PROGRAMS[need])


def run(*command: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment
    )
    if result.returncode != 0:
        raise PreparationError(
            f"`{' '.join(command)}` failed: {result.stdout.strip()[-SAID_CHARACTERS_MAX:]}"
        )


def install(missing: list[str], system: str) -> None:
    if system == "debian":
        run("apt-get", "update", "-q")
    run(*INSTALL[system], *(PACKAGES[system][need] for need in missing))
    if "haproxy" in missing:
        # The package's own service is not the roll-out's, and would take its place at the next boot.
        run("systemctl", "disable", "--now", "haproxy")
    if "clock" in missing:
        run("systemctl", "enable", "--now", "chrony" if system == "debian" else "chronyd")


def setting_path(name: str) -> str:
    return os.path.join("/proc/sys", *name.split("."))


def is_set(setting: dict[str, Any], current: int) -> bool:
    wanted = int(setting["value"])
    return current == wanted if setting.get("exactly") else current >= wanted


def unset(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The settings that the kernel has otherwise, with what it has; one that it does not know is passed over."""
    found = []
    for setting in settings:
        try:
            with open(setting_path(setting["name"]), encoding="ascii") as file:
                current = int(file.read())
        except FileNotFoundError:
            continue
        if not is_set(setting, current):
            found.append({**setting, "current": current})
    return found


def put_into_effect(settings: list[dict[str, Any]]) -> list[str]:
    """Set them, and return a sentence for each that may not be set here, as in most containers."""
    sentences = []
    for setting in settings:
        try:
            with open(setting_path(setting["name"]), "w", encoding="ascii") as file:
                file.write(str(setting["value"]))
        except OSError as error:
            sentences.append(
                f"{setting['name']} is {setting['current']} and should be {setting['value']}, which cannot be set here "
                f"({error.strerror}): set it on the machine under this container, or machine_kernel to false."
            )
    return sentences


def may_be_set(setting: dict[str, Any]) -> bool:
    return os.access(setting_path(setting["name"]), os.W_OK)


def prepare(module: AnsibleModule) -> dict[str, Any]:
    arguments = module.params
    missing = [need for need in arguments["needs"] if not is_there(need, arguments["python"])]
    system = family(os_release()) if missing else ""
    packages = [PACKAGES[system][need] for need in missing]
    found = differences([], arguments["files"])
    settings = unset(arguments["kernel"])
    found += [shown("packages", "".join(f"{name}\n" for name in packages))] if packages else []
    found += [
        shown(each["name"], f"{each['value']}\n", f"{each['current']}\n")
        for each in settings
        if may_be_set(each)
    ]
    if not module.check_mode:
        if missing:
            install(missing, system)
        write([], arguments["files"], None)
        for sentence in put_into_effect(settings):
            module.warn(sentence)
        if any("/journald.conf.d/" in each["after_header"] for each in found):
            run("systemctl", "restart", "systemd-journald")
    return {"changed": bool(found), "diff": found, "packages": packages}


def shown(header: str, after: str, before: str = "") -> dict[str, str]:
    return {"before": before, "after": after, "before_header": header, "after_header": header}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "needs": {
                "type": "list",
                "elements": "str",
                "default": [],
                "choices": ["clock", "haproxy", "java", "python"],
            },
            "python": {"type": "str", "default": "python3"},
            "files": {"type": "list", "elements": "dict", "default": [], "options": FILE_OPTIONS},
            "kernel": {"type": "list", "elements": "dict", "default": []},
        },
        supports_check_mode=True,
    )
    try:
        result = prepare(module)
    except (PreparationError, UnknownSystemError, FilesError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
