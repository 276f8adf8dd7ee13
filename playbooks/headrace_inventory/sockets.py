"""Addresses and ports that two services would both listen on, and names that two of a machine would both have."""

from __future__ import annotations

from ipaddress import ip_address

from headrace_inventory.addresses import (
    SERVICE_GROUPS,
    Groups,
    HostVars,
    address_of,
    kinds_of,
    machine_of,
    port_names,
    port_of,
    service_hosts,
    services,
)
from headrace_inventory.names import and_others

# The last is the machine, of an address that each has for itself.
MachinePlace = tuple[str, int, str]


def shared_addresses(groups: Groups, hostvars: HostVars) -> list[str]:
    """Hosts of one group with one address: all of their ports are the same."""
    problems = []
    for group in SERVICE_GROUPS:
        taken: dict[str, list[str]] = {}
        for host in groups.get(group, []):
            taken.setdefault(str(hostvars[host]["headrace_address"]), []).append(host)
        problems += [
            f"{' and '.join(hosts)} of the group {group} have the same headrace_address {address}: each needs its own."
            for address, hosts in taken.items()
            if len(hosts) > 1
        ]
    return problems


def shared_ports(groups: Groups, hostvars: HostVars) -> list[str]:
    """Services of different kinds, of one host or of two, at one address and port."""
    taken: dict[MachinePlace, dict[str, str]] = {}
    for host in service_hosts(groups):
        for kind in kinds_of(host, groups):
            for place in places(kind, host, groups, hostvars):
                taken.setdefault(place, {}).setdefault(kind, host)
    return [
        f"{' and '.join(f'the {kind} of {host}' for kind, host in services.items())} would both listen at "
        f"{address}:{port}: give one of them another host or headrace_address."
        for (address, port, _), services in taken.items()
        if len(services) > 1
    ]


def shared_names(groups: Groups, hostvars: HostVars) -> list[str]:
    """Services of one machine with one name: the second would be rolled out over the first."""
    taken: dict[tuple[str, str], list[str]] = {}
    for host in service_hosts(groups):
        for name in services(host, hostvars, groups):
            taken.setdefault((machine_of(host, hostvars), name), []).append(host)
    return [
        f"{' and '.join(hosts)} would each run a service {name} on {machine}: give one of them another machine, or a "
        "headrace_service_prefix of its own."
        for (machine, name), hosts in taken.items()
        if len(hosts) > 1
    ]


def places(kind: str, host: str, groups: Groups, hostvars: HostVars) -> list[MachinePlace]:
    variables = hostvars[host]
    machine = machine_of(host, hostvars)
    found = [
        (address_of(name, variables), port_of(kind, name, variables, variables["headrace_ports"]))
        for name in port_names(kind, host, hostvars, groups)
    ]
    return [(address, port, machine if is_loopback(address) else "") for address, port in found]


def is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def open_metrics(groups: Groups, hostvars: HostVars) -> list[str]:
    """Metrics have neither TLS nor log-ins: where clients have to log in, somebody has to say where metrics are served."""
    found = [
        host
        for host in service_hosts(groups)
        if "tls_sasl" in hostvars[host].get("headrace_security_open", [])
        and "headrace_metrics_address" not in hostvars[host]
        and not is_loopback(str(hostvars[host]["headrace_address"]))
    ]
    if not found:
        return []
    return [
        f"Host {found[0]}{and_others(found)} serves metrics in clear at its headrace_address: give headrace_metrics_address, "
        "the host's address in a network of monitoring's own, or 127.0.0.1, or its headrace_address where no others reach that."
    ]
