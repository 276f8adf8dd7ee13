"""Variables of single hosts: values that nothing can be rolled out with."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Any

from headrace_inventory.addresses import IDENTITIES, Groups, HostVars, service_hosts

ADDRESSES = ("headrace_address", "headrace_metrics_address")
HOST_NAME = re.compile(r"\w([\w.-]*\w)?", re.ASCII)
# What looks like an address is none of a host's names.
NUMBERS = re.compile(r"[\d.]+")
USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
FOLDERS = (
    "headrace_root",
    "headrace_bin_dir",
    "headrace_config_dir",
    "headrace_data_dir",
    "headrace_log_dir",
    "headrace_warehouse",
)
# Terraform's rule as well (terraform/pipeline/variables.tf): a prefix of topics, a part of host and file names.
DATACENTER = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
# What a broker.id may be at most (reserved.broker.max.id) is looked at with its other properties.
PORT_MAX = 65_535
# What nothing runs with where it is none.
COUNTS = (
    "audit_silent_after_seconds",
    "broker_connections_max",
    "broker_scrub_mib_per_second",
    "haproxy_connections_max",
    "load_tasks",
    "load_timeout_s",
    "look_timeout_s",
    "machine_journal_mb",
    "release_keep",
    "support_seconds_max",
    "zookeeper_connections_max",
    "zookeeper_heap_mb",
)
# Lines of configuration files that follow from what the plays ask as well.
FOLLOWING = {
    "mirror_member_properties": {
        "bootstrap.servers": "mirror_member_bootstrap_servers",
        "headrace.metrics.listener": "mirror_member_metrics_port",
        "mirror.member.id": "mirror_member_id",
        "mirror.sources": "mirror_member_sources",
        "zookeeper.connect": "mirror_member_zookeeper_connect",
    },
    "broker_properties": {
        "broker.id": "broker_id",
        "headrace.metrics.listener": "headrace_metrics_address",
        "max.connections": "broker_connections_max",
        "zookeeper.connect": "the hosts of the group zookeeper",
    },
    "zookeeper_properties": {
        "clientPort": "headrace_security",
        "clientPortAddress": "headrace_address",
        "dataDir": "headrace_data_dir",
        "dynamicConfigFile": "the hosts of the group zookeeper",
        "maxCnxns": "zookeeper_connections_max",
        "secureClientPort": "headrace_security",
        "secureClientPortAddress": "headrace_address",
    },
}
IDENTITY_RANGES = {"broker_id": (0, 2**31 - 1), "zookeeper_id": (1, 255)}


def addresses(groups: Groups, hostvars: HostVars) -> list[str]:
    """What no service can listen on, or no other host can reach."""
    problems: dict[str, None] = {}
    for host in service_hosts(groups):
        for name in ADDRESSES:
            value = hostvars[host].get(name)
            if value is not None and not is_address(str(value)):
                problems[
                    f"Host {host} has the {name} {value!r}: it must be the IPv4 address, or a name, of that host alone, "
                    "without a port."
                ] = None
        bootstrap = hostvars[host].get("headrace_publish_address")
        if bootstrap is not None and not is_place(str(bootstrap)):
            problems[
                f"Datacenter {hostvars[host]['headrace_datacenter']} has the headrace_publish_address {bootstrap!r}: it must be "
                "HOST:PORT of its load balancer."
            ] = None
    return list(problems)


def is_address(text: str) -> bool:
    if NUMBERS.fullmatch(text) is None:
        return HOST_NAME.fullmatch(text) is not None
    try:
        return not ip_address(text).is_unspecified
    except ValueError:
        return False


def is_place(text: str) -> bool:
    address, _, port = text.rpartition(":")
    return is_address(address) and port.isdecimal() and 1 <= int(port) <= PORT_MAX


def folders(groups: Groups, hostvars: HostVars) -> list[str]:
    """What neither Ansible's interpreter nor a service manager's command line takes as a path, or finds from everywhere."""
    found = {
        (name, str(hostvars[host].get(name) or "")): None
        for host in service_hosts(groups)
        for name in FOLDERS
    }
    return [
        f"{name} is {folder!r}: {problem}" for name, folder in found if (problem := folder_problem(folder))
    ]


def folder_problem(folder: str) -> str | None:
    if any(character.isspace() or character in "'\"" for character in folder):
        return "a path with blanks or quotes cannot be rolled out, so use (or move the checkout to) another."
    if folder and not folder.startswith("/") and "://" not in folder:
        return "it must begin with /, or be the address of an object store, such as s3://BUCKET/FOLDER, for tables."
    return None


def users(groups: Groups, hostvars: HostVars) -> list[str]:
    """Who may run the services: a user of their own, whom the roll-out makes."""
    found = {
        str(user): host for host in service_hosts(groups) if (user := hostvars[host].get("headrace_user"))
    }
    return [
        f"Host {host} has the headrace_user {user!r}: it must be a user of the services' own, with a name of lower-case "
        "letters, digits, _ and -, and not root."
        for user, host in found.items()
        if USER.fullmatch(user) is None or user == "root"
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


def counts(groups: Groups, hostvars: HostVars) -> list[str]:
    """Numbers that are none; what is no number at all is told before."""
    found = {
        (name, number): host
        for host in reversed(groups["all"])
        for name in COUNTS
        if (number := whole_number(hostvars[host].get(name))) is not None and number < 1
    }
    return [
        f"Host {host} has the {name} {number}: it must be at least 1."
        for (name, number), host in found.items()
    ]


def following_properties(groups: Groups, hostvars: HostVars) -> list[str]:
    """Lines in place of those that every service, gate and client goes by."""
    found = {
        (variable, key, source): host
        for variable, following in FOLLOWING.items()
        for host in reversed(groups["all"])
        for key, source in following.items()
        if key in (hostvars[host].get(variable) or {})
    }
    return [
        f"Host {host} has in {variable} the key {key}, which follows from {source}: take it out there, and change that."
        for (variable, key, source), host in found.items()
    ]


def patterns(groups: Groups, hostvars: HostVars) -> list[str]:
    """Regular expressions of audit_modes that are none."""
    found: dict[str, str] = {}
    for host in groups["audit"]:
        for each in hostvars[host].get("audit_modes") or []:
            try:
                re.compile(each["topics"])
            except re.error as error:
                found.setdefault(f"{each['topics']!r}, which is no regular expression: {error}", host)
    return [f"Host {host} has in audit_modes the topics {problem}." for problem, host in found.items()]
