"""Variables of single hosts: values that nothing can be rolled out with."""

from __future__ import annotations

import re
from typing import Any

from headrace_inventory.addresses import IDENTITIES, Groups, HostVars, service_hosts

FOLDERS = (
    "headrace_root",
    "headrace_bin_dir",
    "headrace_config_dir",
    "headrace_data_dir",
    "headrace_log_dir",
)
# Terraform's rule as well (terraform/pipeline/variables.tf): a prefix of topics, a part of host and file names.
DATACENTER = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
# What a broker.id may be at most (reserved.broker.max.id) is looked at with its other properties.
IDENTITY_RANGES = {"broker_id": (0, 2**31 - 1), "zookeeper_id": (1, 255)}


def folders(groups: Groups, hostvars: HostVars) -> list[str]:
    """Blanks and quotes: neither Ansible's interpreter nor a service manager's command line takes them in a path."""
    found = {
        (name, str(hostvars[host].get(name, ""))): None for host in service_hosts(groups) for name in FOLDERS
    }
    return [
        f"{name} is {folder!r}: a path with blanks or quotes cannot be rolled out, so use (or move the checkout to) another."
        for name, folder in found
        if any(character.isspace() or character in "'\"" for character in folder)
    ]


def identities(groups: Groups, hostvars: HostVars) -> list[str]:
    problems = []
    for group, identity in IDENTITIES.items():
        taken: dict[tuple[str, str], list[str]] = {}
        for host in groups[group]:
            key = (str(hostvars[host]["headrace_datacenter"]), str(hostvars[host][identity]))
            taken.setdefault(key, []).append(host)
        problems += [
            f"{' and '.join(hosts)} in datacenter {name} have the same {identity} {value}: each needs its own."
            for (name, value), hosts in taken.items()
            if len(hosts) > 1
        ]
    return problems


def identity_ranges(groups: Groups, hostvars: HostVars) -> list[str]:
    """What a server does not start with."""
    problems = []
    for group, identity in IDENTITIES.items():
        low, high = IDENTITY_RANGES[identity]
        for host in groups[group]:
            value = hostvars[host][identity]
            number = whole_number(value)
            if number is None or not low <= number <= high:
                problems.append(
                    f"Host {host} has the {identity} {value}: it must be a whole number from {low} to {high}."
                )
    return problems


def whole_number(value: Any) -> int | None:
    text = str(value)
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def datacenter_names(groups: Groups, hostvars: HostVars) -> list[str]:
    hosts: dict[str, str] = {}
    for host in service_hosts(groups):
        hosts.setdefault(str(hostvars[host]["headrace_datacenter"]), host)
    return [
        f"Host {host} has the headrace_datacenter {name!r}, which cannot begin topics' names and files' names: "
        "name it with lower-case letters, digits and hyphens, beginning with a letter and ending with a letter or digit."
        for name, host in hosts.items()
        if DATACENTER.fullmatch(name) is None
    ]
