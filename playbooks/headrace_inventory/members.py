"""Members of a mirror beside a cluster of another engine: the file that each gets, and what is wrong with their variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace_inventory.addresses import MEMBERS, Groups, HostVars, address_of, port_of
from headrace_inventory.server_properties import text
from headrace_inventory.settings import PORT_MAX
from headrace_inventory.sockets import places

HIDDEN = "[hidden]"


def missing_members(groups: Groups, hostvars: HostVars) -> list[str]:
    if groups.get(MEMBERS):
        return []
    return [f"The inventory's group {MEMBERS} is missing or empty: put the hosts there that run members."]


def member_properties(host: str, hostvars: HostVars) -> dict[str, Any]:
    """The lines of a member's file."""
    variables = hostvars[host]
    sources = variables["mirror_member_sources"]
    port = port_of("mirror", "metrics", variables, variables["headrace_ports"])
    found = {
        "bootstrap.servers": ",".join(variables["mirror_member_bootstrap_servers"]),
        "zookeeper.connect": variables["mirror_member_zookeeper_connect"],
        "mirror.member.id": variables["mirror_member_id"],
        "headrace.metrics.listener": f"{address_of('metrics', variables)}:{port}",
        "mirror.sources": ",".join(source["name"] for source in sources),
    }
    for source in sources:
        found |= source_properties(source)
    return found | dict(variables.get("mirror_member_properties", {})) | secret(variables)


def source_properties(source: Mapping[str, Any]) -> dict[str, Any]:
    own = {"mode": "aggregate", "bootstrap.servers": ",".join(source["bootstrap_servers"])}
    return {
        f"mirror.{source['name']}.{key}": value
        for key, value in {**own, **source.get("properties", {})}.items()
    }


def secret(variables: Mapping[str, Any]) -> dict[str, Any]:
    return dict(variables.get("mirror_member_secret", {}))


def identities(groups: Groups, hostvars: HostVars) -> list[str]:
    """Members of one target with one number: the second takes the first one's place there."""
    taken: dict[tuple[str, str], list[str]] = {}
    for host in groups[MEMBERS]:
        variables = hostvars[host]
        key = (variables["mirror_member_zookeeper_connect"], str(variables["mirror_member_id"]))
        taken.setdefault(key, []).append(host)
    return [
        f"{' and '.join(hosts)} have the same mirror_member_id {number}: each needs its own."
        for (_, number), hosts in taken.items()
        if len(hosts) > 1
    ]


def metrics_ports(groups: Groups, hostvars: HostVars) -> list[str]:
    """Ports that are none; what is no number at all is told before."""
    return [
        f"Host {host} has the mirror_member_metrics_port {port}: it must be from 1 to {PORT_MAX}."
        for host in groups[MEMBERS]
        if not 1
        <= (port := port_of("mirror", "metrics", hostvars[host], hostvars[host]["headrace_ports"]))
        <= PORT_MAX
    ]


def shared_places(groups: Groups, hostvars: HostVars) -> list[str]:
    """Members that would serve metrics at one address and port."""
    taken: dict[tuple[str, int, str], list[str]] = {}
    for host in groups[MEMBERS]:
        for place in places("mirror", host, groups, hostvars):
            taken.setdefault(place, []).append(host)
    return [
        f"{' and '.join(hosts)} would both serve metrics at {address}:{port}: give one of them another headrace_address or "
        "mirror_member_metrics_port."
        for (address, port, _), hosts in taken.items()
        if len(hosts) > 1
    ]


def refused_files(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each line that members do not take, however many have it; asked of a member's own code."""
    problems: dict[str, str] = {}
    for host in groups[MEMBERS]:
        found = problem(member_properties(host, hostvars), secret(hostvars[host]))
        if found is not None:
            problems.setdefault(found, host)
    return [
        f"Host {host} would get a file of which its member says: {found}" for found, host in problems.items()
    ]


def problem(properties: Mapping[str, Any], hidden: Iterable[str]) -> str | None:
    """What a member says of these lines, without the values of those that are hidden."""
    try:
        # Only where there are members: Ansible imports this at each start.
        from headrace.broker.config.keys import ConfigurationError
        from headrace.mirror.member_config import MemberConfig
    except ImportError as error:
        return f"it cannot be checked here, since {error.name} is not installed: run `make setup`."
    try:
        MemberConfig.from_properties({str(key): text(value) for key, value in properties.items()})
    except ConfigurationError as error:
        return str(ConfigurationError(error.key, HIDDEN, error.allowed) if error.key in hidden else error)
    return None
