"""What the brokers' own lines of server.properties would make of a broker, asked of the broker's own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace_inventory.addresses import Groups, HostVars, datacenters, mirror_properties
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


def text(value: Any) -> str:
    """As the role's template writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
