"""Whose marks are looked at, which hosts are drained by them, and what gates then do not miss."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headrace_inventory.addresses import (
    MEMBERS,
    SERVICE_GROUPS,
    Groups,
    HostVars,
    datacenters,
    in_datacenter,
    machine_of,
    pipeline_hosts,
)


def drain_problems(hosts: Iterable[str], groups: Groups, limit: str, reason: str) -> list[str]:
    """Why these hosts, which `--limit` names, are not drained."""
    problems = unnamed(hosts, groups, limit, "drain")
    if not reason.strip():
        problems.append("Say why, for others to read: -e drain_reason='its disk is replaced'.")
    return problems


def restore_problems(hosts: Iterable[str], groups: Groups, limit: str) -> list[str]:
    """Why these hosts, which `--limit` names, are not restored."""
    return unnamed(hosts, groups, limit, "restore")


def unnamed(hosts: Iterable[str], groups: Groups, limit: str, verb: str) -> list[str]:
    """Why `--limit` names nothing that can be drained, and so nothing that can be restored."""
    named, drainable = set(hosts), set(pipeline_hosts(groups))
    if limit and named & drainable:
        return []
    if (limit or not drainable) and named & set(groups.get(MEMBERS, [])):
        return [
            "Members of a mirror are not drained: stop one with playbooks/down.yml --limit HOST, and start it again with "
            "playbooks/mirror_members.yml --limit HOST."
        ]
    if not limit:
        return [f"Name the hosts to {verb} with --limit, such as --limit dc-east-broker-1."]
    return [
        f"--limit names no host that runs a service which can be drained: name one of {', '.join(SERVICE_GROUPS)}."
    ]


def one_a_machine(hosts: Iterable[str], hostvars: HostVars) -> list[str]:
    """The first of these hosts on each machine: it tells the marks of all hosts there."""
    found: dict[str, str] = {}
    for host in hosts:
        found.setdefault(machine_of(host, hostvars), host)
    return list(found.values())


def beyond(hosts: Iterable[str], hostvars: HostVars, groups: Groups) -> list[str]:
    """Hosts, one a machine, that tell of those brokers and ZooKeepers that gates ask about and these hosts do not tell of."""
    told = list(hosts)
    machines = {machine_of(host, hostvars) for host in told}
    near = datacenters(told, hostvars) if told else []
    asked = [
        host
        for host in (*groups["broker"], *groups["zookeeper"])
        if hostvars[host]["headrace_datacenter"] in near or host in groups["offline"]
    ]
    return one_a_machine((host for host in asked if machine_of(host, hostvars) not in machines), hostvars)


def drained(hosts: Iterable[str], hostvars: HostVars, others: Mapping[str, Any]) -> dict[str, str]:
    """A sentence for each drained host, as these hosts told (`drained_look`), and others."""
    looks = [hostvars[host].get("drained_look", {}) for host in hosts] + list(others.get("results", []))
    return {host: sentence for look in looks for host, sentence in look.get("sentences", {}).items()}


def silent(hosts: Iterable[str], hostvars: HostVars, others: Mapping[str, Any]) -> list[str]:
    """Those of the hosts on a machine that did not tell its marks (`drained_others`)."""
    asked = [each["item"] for each in others.get("results", []) if "headrace_unanswered" in each]
    machines = {machine_of(host, hostvars) for host in asked}
    return [host for host in hosts if machine_of(host, hostvars) in machines]


def first_to_ask(hosts: Iterable[str], drained_hosts: Collection[str], silent_hosts: Collection[str]) -> str:
    """The host on which gates ask: one that answers before one that does not, and of those one that is not drained."""
    return min(hosts, key=lambda host: (host in silent_hosts, host in drained_hosts))


def drained_brokers(
    drained_hosts: Mapping[str, str], hostvars: HostVars, groups: Groups, datacenter: str
) -> list[str]:
    """What `headrace cluster status` is told of the datacenter's drained brokers."""
    found = [host for host in groups["broker"] if host in drained_hosts]
    return [
        word
        for host in in_datacenter(found, hostvars, datacenter)
        for word in ("--drained", str(hostvars[host]["broker_id"]))
    ]


def ensemble(
    drained_hosts: Mapping[str, str], hostvars: HostVars, groups: Groups, datacenter: str, port: int
) -> list[str]:
    """The clients' ports of the datacenter's ZooKeepers that are not drained."""
    hosts = in_datacenter(groups["zookeeper"], hostvars, datacenter)
    return [f"{hostvars[host]['headrace_address']}:{port}" for host in hosts if host not in drained_hosts]
