"""What the brokers' own lines of server.properties would make of a broker, asked of the broker's own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace_inventory.addresses import Groups, HostVars, asked_ports, datacenters, mirror_properties
from headrace_inventory.topics import LISTS, described

Problem = Callable[[Mapping[str, str]], str | None]
# Stands for what the role writes by itself.
PLACE = "127.0.0.1:1"


def server_properties(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each key or value of broker_properties that brokers do not take, however many have it."""
    given = {host: hostvars[host].get("broker_properties") or {} for host in groups["broker"]}
    if not any(given.values()):
        return []
    try:
        # Only where there is something to check: Ansible imports this at each start.
        from headrace.broker.command import problem
    except ImportError as error:
        return [
            f"broker_properties cannot be checked here, since {error.name} is not installed: run `make setup`."
        ]
    problems: dict[str, str] = {}
    for host, lines in given.items():
        if isinstance(lines, Mapping):
            found = problem(whole(host, lines, groups, hostvars))
            if found is not None:
                problems.setdefault(found, host)
    return [
        f"Host {host} has broker_properties of which a broker says: {found}"
        for found, host in problems.items()
    ]


def whole(host: str, lines: Mapping[str, Any], groups: Groups, hostvars: HostVars) -> dict[str, str]:
    """The lines with what a broker needs beside them."""
    own = {
        "broker.id": "1",
        "zookeeper.connect": PLACE,
        "listeners": f"PLAINTEXT://{PLACE}",
    }
    if host in groups["offline"]:
        live = [broker for broker in groups["broker"] if broker in groups["live"]]
        topics = described(hostvars[host].get(LISTS["live"]))
        if datacenters(live, hostvars):
            own |= mirror_properties(live, hostvars, [topic["name"] for topic in topics], 1)
    return own | {str(key): text(value) for key, value in lines.items()}


def missing_listeners(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each broker with listeners of its own that lack one at which the pipeline asks it."""
    return [
        f"Host {host} has in broker_properties the listeners {given}, without {place} at which the pipeline asks its broker: "
        f"add {place}, or take them out."
        for host in groups["broker"]
        if (given := (hostvars[host].get("broker_properties") or {}).get("listeners")) is not None
        for place in asked_places(hostvars[host])
        if not listens(str(given), place)
    ]


def asked_places(variables: Mapping[str, Any]) -> list[str]:
    ports = [variables["headrace_ports"][name] for name in asked_ports("broker", variables)]
    return [f"{variables['headrace_address']}:{port}" for port in ports]


def listens(listeners: str, place: str) -> bool:
    """Whether one of the listeners is there, or at all addresses."""
    port = place.rpartition(":")[2]
    given = {listener.strip().partition("://")[2] for listener in listeners.split(",")}
    return bool(given & {place, f":{port}", f"0.0.0.0:{port}"})


def text(value: Any) -> str:
    """As the role's template writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
