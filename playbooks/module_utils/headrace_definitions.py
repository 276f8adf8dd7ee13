"""What must not change of a service that was rolled out, as its definition here tells: its datacenter and the folder of its data.

Of a service that was never rolled out here there is no definition, and nothing is wrong. Only the standard library is needed, in
Python 3.9.
"""

from __future__ import annotations

import os
import re

from ansible.module_utils.headrace_machines import name as machine_name

DATA_DIR = re.compile(r"^(?:WorkingDirectory|directory)=(.+)$", re.MULTILINE)
# As in `Description=Broker 1 of dc-east`; what serves all datacenters has none. Supervisor has it in the service's name.
DATACENTER = re.compile(r"^Description=.* of (\S+)$", re.MULTILINE)


def rolled_out_problem(service: str, path: str, datacenter: str, data_dir: str) -> str | None:
    """What a roll-out would take the service away from, in a sentence."""
    try:
        with open(path, encoding="utf-8") as file:
            definition = file.read()
    except OSError:
        return None
    return renamed_problem(service, definition, datacenter) or moved_problem(service, definition, data_dir)


def renamed_problem(service: str, definition: str, datacenter: str) -> str | None:
    found = DATACENTER.search(definition)
    if found is None or found[1] == datacenter:
        return None
    return (
        f"{service} on {machine_name()} was rolled out for {found[1]}, and headrace_datacenter is {datacenter}: the name is "
        f"in copies of topics, rows and counts, and never changes. Say {found[1]} again, or remove the host's data and "
        "configuration first (playbooks/down.yml)."
    )


def moved_problem(service: str, definition: str, data_dir: str) -> str | None:
    found = DATA_DIR.search(definition)
    if found is None:
        return None
    before, wanted = (os.path.join(folder, service) for folder in (found[1], data_dir))
    if has_files(wanted) or not has_files(before):
        return None
    return (
        f"{service} on {machine_name()} has its data in {before}, and headrace_data_dir is {data_dir}, without them: "
        f"say {found[1]} again, or stop it (playbooks/down.yml) and move that folder to {wanted} first."
    )


def has_files(folder: str) -> bool:
    """A folder of HAProxy has a socket alone, which is no data."""
    return os.path.isdir(folder) and any(entry.is_file() for entry in os.scandir(folder))
