"""Addresses and ports that two services would both listen on."""

from __future__ import annotations

from headrace_inventory.addresses import SERVICE_GROUPS, Groups, HostVars, kinds_of, port_names, service_hosts

HostPort = tuple[str, int]


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
    taken: dict[HostPort, dict[str, str]] = {}
    for host in service_hosts(groups):
        for kind in kinds_of(host, groups):
            for place in places(kind, host, groups, hostvars):
                taken.setdefault(place, {}).setdefault(kind, host)
    return [
        f"{' and '.join(f'the {kind} of {host}' for kind, host in services.items())} would both listen at "
        f"{address}:{port}: give one of them another host or headrace_address."
        for (address, port), services in taken.items()
        if len(services) > 1
    ]


def places(kind: str, host: str, groups: Groups, hostvars: HostVars) -> list[HostPort]:
    ports = hostvars[host]["headrace_ports"]
    return [
        (str(hostvars[host]["headrace_address"]), ports[name])
        for name in port_names(kind, host, hostvars, groups)
    ]
