"""What the plays ask of an inventory: addresses of a datacenter's services, and what is wrong with the inventory.

Functions of Ansible's `groups` and `hostvars`; they look at variables and the roles' argument specs, never at a machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from ansible.inventory.manager import split_host_pattern

Groups = Mapping[str, list[str]]
HostVars = Mapping[str, Mapping[str, Any]]

SERVICE_GROUPS = ("zookeeper", "broker", "haproxy", "registry", "load", "audit")
NEEDED_GROUPS = ("live", "offline", "zookeeper", "broker", "registry", "load", "audit")
SERVICE_MANAGERS = ("supervisor", "systemd")
IDENTITIES = {"broker": "broker_id", "zookeeper": "zookeeper_id"}
FOLDERS = (
    "headrace_root",
    "headrace_bin_dir",
    "headrace_config_dir",
    "headrace_data_dir",
    "headrace_log_dir",
)
REPLICATION_FACTORS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)
# The services that the hosts of a group run, and those of its offline hosts alone; in the order in which they stop.
SERVICES = {
    "load": ("load",),
    "audit": ("counter",),
    "registry": ("registry",),
    "haproxy": ("haproxy",),
    "broker": ("broker",),
    "zookeeper": ("zookeeper",),
}
OFFLINE_SERVICES = {"audit": ("auditor",)}
EXECUTABLES = {"zookeeper": "java", "load": "java", "haproxy": "haproxy"}
# The role entry points whose argument specs bind a host of a group.
ENTRY_POINTS = {
    **{
        group: ((group, "main"),)
        for group in ("supervisor", "release", "zookeeper", "haproxy", "registry", "load")
    },
    "broker": (("broker", "main"), ("topics", "main")),
    "audit": (("audit", "counter"), ("audit", "auditor")),
}
# The names, in headrace_ports, of what each service listens on.
LISTENERS = {
    "zookeeper": ("zookeeper", "zookeeper_peer", "zookeeper_election"),
    "broker": ("broker", "metrics"),
    "haproxy": ("bootstrap",),
    "registry": ("registry",),
    "load": ("metrics",),
}


def in_datacenter(hosts: Iterable[str], hostvars: HostVars, datacenter: str) -> list[str]:
    """The hosts of that datacenter, in inventory order."""
    return [host for host in hosts if hostvars[host].get("headrace_datacenter") == datacenter]


def addresses(hosts: Iterable[str], hostvars: HostVars, datacenter: str, port: int) -> list[str]:
    """`address:port` of each of the hosts that is in that datacenter."""
    return [
        f"{hostvars[host]['headrace_address']}:{port}" for host in in_datacenter(hosts, hostvars, datacenter)
    ]


def datacenters(hosts: Iterable[str], hostvars: HostVars) -> list[str]:
    """The names of the datacenters that the hosts are in, in inventory order, each once."""
    return list(dict.fromkeys(str(hostvars[host]["headrace_datacenter"]) for host in hosts))


def listeners(
    hosts: Iterable[str], hostvars: HostVars, groups: Groups, ports: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Where the services of these hosts listen: service, address and port."""
    return [
        {
            "service": service_name(hostvars[host], group),
            "address": hostvars[host]["headrace_address"],
            "port": ports[name],
        }
        for host in hosts
        for group in LISTENERS
        if host in groups.get(group, [])
        for name in _port_names(group, host, hostvars, groups)
    ]


def service_name(variables: Mapping[str, Any], service: str) -> str:
    """The supervisor program or systemd unit of a host's service; brokers and ZooKeepers carry their identity."""
    name = f"{variables['headrace_service_prefix']}{service}"
    return f"{name}-{variables[IDENTITIES[service]]}" if service in IDENTITIES else name


def services(host: str, hostvars: HostVars, groups: Groups) -> list[str]:
    """The names of all services that a host runs, in the order in which they stop."""
    found = []
    for group, names in SERVICES.items():
        if host in groups.get(group, []):
            offline = OFFLINE_SERVICES.get(group, ()) if host in groups["offline"] else ()
            found += [service_name(hostvars[host], service) for service in offline + names]
    return found


def machine_services(machine: str, hostvars: HostVars, groups: Groups) -> list[str]:
    """The names of all services that the inventory has on a machine."""
    hosts = machine_hosts(machine, hostvars, groups)
    return [name for host in hosts for name in services(host, hostvars, groups)]


def machine_hosts(machine: str, hostvars: HostVars, groups: Groups) -> list[str]:
    """The inventory's hosts that are this machine: itself, unless `headrace_machine` names another."""
    return [host for host in groups["all"] if hostvars[host].get("headrace_machine", host) == machine]


def executables(hosts: Iterable[str], groups: Groups) -> list[str]:
    """The programs, beside the release's own, that the services of these hosts need."""
    names = list(hosts)
    return sorted(
        {program for group, program in EXECUTABLES.items() if set(names) & set(groups.get(group, []))}
    )


def argument_spec(groups: Groups, host: str, roles_directory: str) -> dict[str, Any]:
    """The options of every role that the host gets, from the roles' own specs."""
    options: dict[str, Any] = {}
    for group, entry_points in ENTRY_POINTS.items():
        if host in groups.get(group, []):
            for role, entry_point in entry_points:
                path = Path(roles_directory, role, "meta", "argument_specs.yml")
                options |= yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"][entry_point][
                    "options"
                ]
    return options


def mirror_properties(
    hosts: Iterable[str], hostvars: HostVars, topics: Iterable[str], port: int
) -> dict[str, str]:
    """What an offline broker's server.properties says of its sources; `hosts` are the brokers of all live datacenters."""
    brokers = list(hosts)
    sources = datacenters(brokers, hostvars)
    # A class instead of a backslash: in a properties file a backslash would itself have to be escaped.
    pattern = "|".join(topic.replace(".", "[.]") for topic in topics)
    properties = {"mirror.sources": ",".join(sources)}
    for name in sources:
        properties[f"mirror.{name}.bootstrap.servers"] = ",".join(addresses(brokers, hostvars, name, port))
        properties[f"mirror.{name}.topics"] = pattern
    return properties


def _port_names(group: str, host: str, hostvars: HostVars, groups: Groups) -> tuple[str, ...]:
    if group != "zookeeper":
        return LISTENERS[group]
    ensemble = in_datacenter(groups["zookeeper"], hostvars, hostvars[host]["headrace_datacenter"])
    return LISTENERS[group] if len(ensemble) > 1 else LISTENERS[group][:1]


def inventory_problems(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each thing wrong with the inventory; the first kind found hides those that depend on it."""
    checks: tuple[Callable[[Groups, HostVars], list[str]], ...] = (
        _missing_groups,
        _unknown_service_managers,
        _missing_variables,
        _folders,
        _tiers,
        _datacenters_whole,
        _identities,
        _shared_addresses,
        _idle_hosts,
        _machines,
        _replicas,
    )
    for check in checks:
        problems = check(groups, hostvars)
        if problems:
            return problems
    return []


def limit_problems(limit: str, groups: Groups) -> list[str]:
    """One sentence for each name of `--limit` that the inventory does not have; Ansible goes on with the others."""
    names = [*groups, *groups["all"], "localhost"]
    parts = [part.lstrip("!&") for part in split_host_pattern(limit)]
    return [
        f"--limit names {part}, which is neither a host nor a group of the inventory."
        for part in parts
        if part[:1] not in ("~", "@")
        and not any(fnmatchcase(name, re.sub(r"\[[-\d:]+\]$", "", part)) for name in names)
    ]


def _service_hosts(groups: Groups) -> list[str]:
    return list(dict.fromkeys(host for group in SERVICE_GROUPS for host in groups.get(group, [])))


def _missing_groups(groups: Groups, hostvars: HostVars) -> list[str]:
    sentences = {
        "live": "The inventory has no live datacenter: put at least one datacenter's group under the group live.",
        "offline": "The inventory has no offline datacenter: put one datacenter's group under the group offline.",
    }
    missing = [name for name in NEEDED_GROUPS if not groups.get(name)]
    return [
        sentences.get(
            name,
            f"The inventory's group {name} is missing or empty: every pipeline needs at least one such host.",
        )
        for name in missing
    ]


def _idle_hosts(groups: Groups, hostvars: HostVars) -> list[str]:
    """Hosts of a datacenter that no play would ever touch: most often their group's name is misspelt."""
    busy = set(_service_hosts(groups))
    return [
        f"Host {host} is in none of the groups {', '.join(SERVICE_GROUPS)}: put it in one, or take it out of its datacenter."
        for host in dict.fromkeys([*groups["live"], *groups["offline"]])
        if host not in busy
    ]


def _unknown_service_managers(groups: Groups, hostvars: HostVars) -> list[str]:
    managers = {
        host: str(hostvars[host].get("headrace_service_manager", "")) for host in _service_hosts(groups)
    }
    unknown = Counter(manager for manager in managers.values() if manager not in SERVICE_MANAGERS)
    return [
        f"headrace_service_manager is {manager!r} on {count} hosts: it must be supervisor or systemd."
        for manager, count in unknown.items()
    ]


def _missing_variables(groups: Groups, hostvars: HostVars) -> list[str]:
    needed = {host: ["headrace_datacenter", "headrace_address"] for host in _service_hosts(groups)}
    for group, identity in IDENTITIES.items():
        for host in groups[group]:
            needed[host].append(identity)
    return [
        f"Host {host} has no {name}: set it in the inventory."
        for host, names in needed.items()
        for name in names
        if hostvars[host].get(name) in (None, "")
    ]


def _folders(groups: Groups, hostvars: HostVars) -> list[str]:
    """Blanks and quotes: neither Ansible's interpreter nor a service manager's command line takes them in a path."""
    found = {
        (name, str(hostvars[host].get(name, ""))): None for host in _service_hosts(groups) for name in FOLDERS
    }
    return [
        f"{name} is {folder!r}: a path with blanks or quotes cannot be rolled out, so use (or move the checkout to) another."
        for name, folder in found
        if any(character.isspace() or character in "'\"" for character in folder)
    ]


def _tiers(groups: Groups, hostvars: HostVars) -> list[str]:
    hosts = _service_hosts(groups)
    live, offline = ([host for host in hosts if host in groups[tier]] for tier in ("live", "offline"))
    problems = [
        f"Host {host} is in neither the group live nor the group offline."
        for host in hosts
        if host not in live and host not in offline
    ]
    offline_names = datacenters(offline, hostvars)
    if len(offline_names) > 1:
        problems.append(
            f"The inventory has {len(offline_names)} offline datacenters ({', '.join(offline_names)}): it must have one."
        )
    both = sorted(set(datacenters(live, hostvars)) & set(offline_names))
    problems += [
        f"Datacenter {name} is both live and offline: give one of the two another name." for name in both
    ]
    return problems


def _datacenters_whole(groups: Groups, hostvars: HostVars) -> list[str]:
    problems = []
    hosts = _service_hosts(groups)
    for name in datacenters(hosts, hostvars):
        count = {group: len(in_datacenter(groups.get(group, []), hostvars, name)) for group in SERVICE_GROUPS}
        for group in ("zookeeper", "broker", "registry", "audit"):
            if count[group] == 0:
                problems.append(f"Datacenter {name} has no {group} host: add one to the group {group}.")
        if count["zookeeper"] and count["zookeeper"] % 2 == 0:
            problems.append(
                f"Datacenter {name} has {count['zookeeper']} ZooKeeper hosts: an even ensemble survives no more failures "
                "than one host fewer, so use an odd count."
            )
    problems += [
        f"Host {host} of the group load is not in the offline datacenter."
        for host in groups["load"]
        if host not in groups["offline"]
    ]
    return problems


def _identities(groups: Groups, hostvars: HostVars) -> list[str]:
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


def _shared_addresses(groups: Groups, hostvars: HostVars) -> list[str]:
    problems = []
    for group in LISTENERS:
        taken: dict[str, list[str]] = {}
        for host in groups.get(group, []):
            taken.setdefault(str(hostvars[host]["headrace_address"]), []).append(host)
        problems += [
            f"{' and '.join(hosts)} of the group {group} have the same headrace_address {address}: each needs its own."
            for address, hosts in taken.items()
            if len(hosts) > 1
        ]
    return problems


def _machines(groups: Groups, hostvars: HostVars) -> list[str]:
    """Machines that would be passed over: their services start nowhere, or unchecked."""
    problems = []
    for host in _service_hosts(groups):
        machine = hostvars[host].get("headrace_machine", host)
        needed = ["machine"]
        if hostvars[host]["headrace_service_manager"] == "supervisor":
            needed.append("supervisor")
        problems += [
            f"Host {host} runs on {machine}, which is not in the group {group}: add it there."
            for group in needed
            if machine not in groups.get(group, [])
        ]
    return problems


def _replicas(groups: Groups, hostvars: HostVars) -> list[str]:
    """Properties that ask for more replicas than there are brokers: no topic could be made."""
    problems: dict[str, None] = {}
    for host in groups["broker"]:
        datacenter = str(hostvars[host]["headrace_datacenter"])
        count = len(in_datacenter(groups["broker"], hostvars, datacenter))
        for name in REPLICATION_FACTORS:
            factor = str(dict(hostvars[host].get("broker_properties") or {}).get(name, ""))
            if factor.isdecimal() and int(factor) > count:
                problems[
                    f"broker_properties of datacenter {datacenter} say {name} {factor}, and it has {count} brokers: "
                    "say less, or leave it out."
                ] = None
    return list(problems)


class FilterModule:
    """Makes the functions known to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "headrace_addresses": addresses,
            "headrace_argument_spec": argument_spec,
            "headrace_datacenters": datacenters,
            "headrace_executables": executables,
            "headrace_in_datacenter": in_datacenter,
            "headrace_inventory_problems": inventory_problems,
            "headrace_limit_problems": limit_problems,
            "headrace_listeners": listeners,
            "headrace_machine_hosts": machine_hosts,
            "headrace_machine_services": machine_services,
            "headrace_mirror_properties": mirror_properties,
            "headrace_services": services,
        }
