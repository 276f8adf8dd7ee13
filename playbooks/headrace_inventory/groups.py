"""Groups and tiers: what every pipeline has, and which host belongs where."""

from __future__ import annotations

from headrace_inventory.addresses import (
    MEMBERS,
    SERVICE_GROUPS,
    Groups,
    HostVars,
    datacenters,
    in_datacenter,
    machine_of,
    pipeline_hosts,
    service_hosts,
)

NEEDED_GROUPS = ("live", "offline", "zookeeper", "broker", "registry", "load", "audit")
# What every datacenter has.
DATACENTER_GROUPS = ("zookeeper", "broker", "registry", "audit")


def missing_groups(groups: Groups, hostvars: HostVars) -> list[str]:
    sentences = {
        "live": "The inventory has no live datacenter: put at least one datacenter's group under the group live.",
        "offline": "The inventory has no offline datacenter: put one datacenter's group under the group offline.",
    }
    if groups.get(MEMBERS) and not pipeline_hosts(groups):
        return [
            "The inventory has members of a mirror alone: roll them out with playbooks/mirror_members.yml, which looks for what "
            "they need first, and with --check changes nothing."
        ]
    missing = [name for name in NEEDED_GROUPS if not groups.get(name)]
    return [
        sentences.get(
            name,
            f"The inventory's group {name} is missing or empty: every pipeline needs at least one such host.",
        )
        for name in missing
    ]


def idle(groups: Groups) -> list[str]:
    busy = set(service_hosts(groups))
    return [host for host in dict.fromkeys([*groups["live"], *groups["offline"]]) if host not in busy]


def idle_hosts(groups: Groups, hostvars: HostVars) -> list[str]:
    """Hosts of a datacenter that no play would ever touch; one that could be what its datacenter lacks is told of there."""
    lacking = {
        name
        for name in datacenters(pipeline_hosts(groups), hostvars)
        for group in DATACENTER_GROUPS
        if not in_datacenter(groups[group], hostvars, name)
    }
    return [
        f"Host {host} is in none of the groups {', '.join(SERVICE_GROUPS)}: put it in one, or take it out of its datacenter."
        for host in idle(groups)
        if hostvars[host].get("headrace_datacenter") not in lacking
    ]


def tiers(groups: Groups, hostvars: HostVars) -> list[str]:
    hosts = pipeline_hosts(groups)
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


def datacenters_whole(groups: Groups, hostvars: HostVars) -> list[str]:
    problems = []
    hosts = pipeline_hosts(groups)
    for name in datacenters(hosts, hostvars):
        count = {group: len(in_datacenter(groups.get(group, []), hostvars, name)) for group in SERVICE_GROUPS}
        spare = in_datacenter(idle(groups), hostvars, name)
        such_as = f", such as {spare[0]}, which is in no group of services" if spare else ""
        for group in DATACENTER_GROUPS:
            if count[group] == 0:
                problems.append(
                    f"Datacenter {name} has no {group} host: add one to the group {group}{such_as}."
                )
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


def machines(groups: Groups, hostvars: HostVars) -> list[str]:
    """Machines that would be passed over: their services start nowhere, from nothing, or unchecked."""
    problems = []
    for host in service_hosts(groups):
        machine = machine_of(host, hostvars)
        own = "supervisor" if hostvars[host]["headrace_service_manager"] == "supervisor" else "release"
        problems += [
            f"Host {host} runs on {machine}, which is not in the group {group}: add it there."
            for group in ("machine", own)
            if machine not in groups.get(group, [])
        ]
    return problems
