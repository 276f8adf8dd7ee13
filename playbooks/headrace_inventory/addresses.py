"""Where the services of an inventory are: hosts, names, addresses, ports, and what each host gets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Groups = Mapping[str, list[str]]
HostVars = Mapping[str, Mapping[str, Any]]

SERVICE_GROUPS = ("zookeeper", "broker", "haproxy", "registry", "load", "audit")
MEMBERS = "mirror_member"
"""The group of a mirror's members beside a cluster of another engine, in an inventory of their own."""

IDENTITIES = {"broker": "broker_id", "zookeeper": "zookeeper_id"}
# By kind of service, what its name ends in.
NUMBERS = {**IDENTITIES, "mirror": "mirror_member_id"}
# The services that the hosts of a group run, and those of its offline hosts alone; in the order in which they stop.
SERVICES = {
    MEMBERS: ("mirror",),
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
        for group in ("supervisor", "zookeeper", "haproxy", "registry", "load", MEMBERS)
    },
    "release": (("release", "main"), ("machine", "main")),
    "broker": (("broker", "main"), ("topics", "main")),
    "audit": (("audit", "counter"), ("audit", "auditor")),
}
# The names, in headrace_ports, of what each service listens on beside the ways in which it is asked.
AGGREGATE = "-aggregate"
"""What follows a datacenter's name in that of the source by which its topics are brought into those of all."""

LISTENERS = {
    "mirror": ("metrics",),
    "zookeeper": ("zookeeper_peer", "zookeeper_election"),
    "broker": ("metrics",),
    "haproxy": ("haproxy_metrics",),
    "registry": (),
    "load": ("metrics",),
    "counter": ("counter_metrics",),
    "auditor": ("auditor_metrics",),
}
# Those that are asked in the ways of headrace_security, each at a port of its own, or, over TLS, all at one.
SECURED_LISTENERS = {
    "broker": "broker",
    "haproxy": "bootstrap",
    "zookeeper": "zookeeper",
    "registry": "registry",
}
SHARED_TLS_PORTS = ("zookeeper", "registry")


def service_hosts(groups: Groups) -> list[str]:
    """The hosts that run any service, in inventory order, each once."""
    return list(dict.fromkeys([*pipeline_hosts(groups), *groups.get(MEMBERS, [])]))


def pipeline_hosts(groups: Groups) -> list[str]:
    """Those that run a service of a datacenter's, in inventory order, each once."""
    return list(dict.fromkeys(host for group in SERVICE_GROUPS for host in groups.get(group, [])))


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
    """Where the services of these hosts listen: service, host, address and port."""
    return [
        {
            "service": service_name(hostvars[host], kind),
            "host": host,
            "address": address_of(name, hostvars[host]),
            "port": port_of(kind, name, hostvars[host], ports),
        }
        for host in hosts
        for kind in kinds_of(host, groups)
        for name in port_names(kind, host, hostvars, groups)
    ]


def service_name(variables: Mapping[str, Any], service: str) -> str:
    """The supervisor program or systemd unit of a host's service; some carry their number."""
    name = f"{variables['headrace_service_prefix']}{service}"
    return f"{name}-{variables[NUMBERS[service]]}" if service in NUMBERS else name


def program(host: str, hostvars: HostVars, by_current: bool) -> str:
    """The host's own `headrace`: that of the release which it shall run, or of the one that `current` names."""
    variables = hostvars[host]
    home = variables.get("release_home", "/opt/headrace")
    return f"{home}/current/bin/headrace" if by_current else f"{variables['headrace_bin_dir']}/headrace"


def kinds_of(host: str, groups: Groups) -> list[str]:
    """The kinds of services that a host runs, in the order in which they stop."""
    found: list[str] = []
    for group, kinds in SERVICES.items():
        if host in groups.get(group, []):
            offline = OFFLINE_SERVICES.get(group, ()) if host in groups.get("offline", []) else ()
            found += offline + kinds
    return found


def services(host: str, hostvars: HostVars, groups: Groups) -> list[str]:
    """The names of all services that a host runs, in the order in which they stop."""
    return [service_name(hostvars[host], kind) for kind in kinds_of(host, groups)]


def machine_services(machine: str, hostvars: HostVars, groups: Groups) -> list[str]:
    """The names of all services that the inventory has on a machine."""
    hosts = machine_hosts(machine, hostvars, groups)
    return [name for host in hosts for name in services(host, hostvars, groups)]


def service_datacenters(machine: str, hostvars: HostVars, groups: Groups) -> dict[str, str]:
    """The datacenter of each service that the inventory has on a machine, by the service's name."""
    return {
        name: str(hostvars[host]["headrace_datacenter"])
        for host in machine_hosts(machine, hostvars, groups)
        for name in services(host, hostvars, groups)
    }


def machine_of(host: str, hostvars: HostVars) -> str:
    """The machine that a host is: itself, unless `headrace_machine` names another."""
    return str(hostvars[host].get("headrace_machine", host))


def machine_hosts(machine: str, hostvars: HostVars, groups: Groups) -> list[str]:
    """The inventory's hosts that are this machine."""
    return [host for host in groups["all"] if machine_of(host, hostvars) == machine]


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
                options |= specs(Path(roles_directory, role, "meta", "argument_specs.yml"))[entry_point][
                    "options"
                ]
    return options


@cache
def specs(file: Path) -> dict[str, Any]:
    """A role's argument specs, by entry point."""
    return dict(yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"])


def mirror_properties(
    hosts: Iterable[str],
    hostvars: HostVars,
    topics: Iterable[str],
    port: int,
    client: Mapping[str, str] | None = None,
    aggregates: Collection[str] = (),
) -> dict[str, str]:
    """What an offline broker's server.properties says of its sources; `hosts` are the brokers of all live datacenters.

    `client` is how it speaks to them; `aggregates` are the topics that it brings into one of all datacenters as well, for
    which each is a source twice.
    """
    brokers = list(hosts)
    live = datacenters(brokers, hostvars)
    copied, shared = _any_of(topics), _any_of(aggregates)
    sources = [(name, name, {"topics": copied}) for name in live]
    sources += [
        (source, name, {"topics": shared, "mode": "aggregate"})
        for source, name in zip(aggregate_sources(live, aggregates), live, strict=False)
    ]
    properties = {"mirror.sources": ",".join(source for source, _, _ in sources)}
    for source, name, own in sources:
        servers = {"bootstrap.servers": ",".join(addresses(brokers, hostvars, name, port))}
        properties |= {
            f"mirror.{source}.{key}": value for key, value in (servers | own | dict(client or {})).items()
        }
    return properties


def aggregate_sources(live: Iterable[str], aggregates: Collection[str]) -> list[str]:
    """The sources by which topics of live datacenters are brought into those of all; none where no topic is."""
    return [name + AGGREGATE for name in live] if aggregates else []


def _any_of(topics: Iterable[str]) -> str:
    # A class instead of a backslash: in a properties file a backslash would itself have to be escaped.
    return "|".join(topic.replace(".", "[.]") for topic in topics)


def port_names(kind: str, host: str, hostvars: HostVars, groups: Groups) -> tuple[str, ...]:
    """The names, in headrace_ports, of what a service of a kind listens on at a host; a lone ZooKeeper has no peers."""
    opened = asked_ports(kind, hostvars[host]) if kind in SECURED_LISTENERS else ()
    if kind == "zookeeper":
        ensemble = in_datacenter(groups["zookeeper"], hostvars, hostvars[host]["headrace_datacenter"])
        return opened + (LISTENERS[kind] if len(ensemble) > 1 else ())
    return opened + LISTENERS[kind]


def asked_ports(kind: str, variables: Mapping[str, Any]) -> tuple[str, ...]:
    """The names, in headrace_ports, of where a service of a kind is asked at a host, in each way that is open."""
    endings = variables["headrace_port_endings"]
    ways = variables["headrace_security_open"]
    if kind in SHARED_TLS_PORTS:
        ways = ["plaintext" if way == "plaintext" else "tls" for way in ways]
    return tuple(dict.fromkeys(SECURED_LISTENERS[kind] + endings[way] for way in ways))


def port_of(kind: str, port_name: str, variables: Mapping[str, Any], ports: Mapping[str, int]) -> int:
    """The number of a port of that name at a host: members, of which a host may have several, have one of their own."""
    own = variables.get("mirror_member_metrics_port") if kind == "mirror" else None
    return int(ports[port_name] if own is None else own)


def address_of(port_name: str, variables: Mapping[str, Any]) -> str:
    """Where a host listens on a port of that name: metrics may be for another network than the service."""
    address = variables["headrace_address"]
    return str(
        variables.get("headrace_metrics_address", address) if port_name.endswith("metrics") else address
    )
