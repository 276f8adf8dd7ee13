"""Topics that the kit itself reads and writes, and what configurations of topics would be to a broker, asked of its own code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace_inventory.addresses import Groups, HostVars, datacenters
from headrace_inventory.topics import LISTS, described

SCHEMAS = "_schemas"
# The mirror brings these of each live datacenter, which it does of topics alone that the inventory has.
NEEDED = {
    SCHEMAS: "without it nothing that is mirrored can be read",
    "headrace.counts": "without it the audit knows of no event",
    "headrace.monitoring": "without it the audit knows of no event that was published",
}


def own_topics(groups: Groups, hostvars: HostVars) -> list[str]:
    """What is wrong with the lists of topics, told once where brokers say the same."""
    copies = tuple(f"{name}." for name in datacenters(_brokers("live", groups), hostvars))
    problems: dict[str, str] = {}
    for tier, variable in LISTS.items():
        for host in _brokers(tier, groups):
            wanted = described(hostvars[host].get(variable))
            found = [*missing(wanted)] if tier == "live" else [*taken_from_the_mirror(wanted, copies)]
            for problem in [*found, *(f"the topic {name!r} {said}" for name, said in odd(wanted))]:
                problems.setdefault(f"has in {variable} {problem}", host)
    return [f"Host {host} {problem}" for problem, host in problems.items()]


def _brokers(tier: str, groups: Groups) -> list[str]:
    return [host for host in groups["broker"] if host in groups[tier]]


def missing(wanted: list[dict[str, Any]]) -> Iterator[str]:
    there = {topic["name"] for topic in wanted}
    for name, reason in NEEDED.items():
        if name not in there:
            yield f"no topic {name!r}: add it, since {reason}."


def taken_from_the_mirror(wanted: list[dict[str, Any]], copies: tuple[str, ...]) -> Iterator[str]:
    for topic in wanted:
        if topic["name"].startswith(copies):
            yield f"the topic {topic['name']!r}, which is a copy: take it out, since the mirror makes it."


def odd(wanted: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for topic in wanted:
        config = topic.get("config") or {}
        problem = config_problem(config)
        if problem is not None:
            yield topic["name"], f"of whose config a broker says: {problem}"
        elif topic["name"] == SCHEMAS and topic.get("partitions") not in (1, "1"):
            yield (
                SCHEMAS,
                f"with {topic.get('partitions')} partitions: registries read one alone, so it must have 1.",
            )
        elif topic["name"] == SCHEMAS and config.get("cleanup.policy") != "compact":
            yield (
                SCHEMAS,
                "whose schemas would be deleted as they age: its config must have cleanup.policy: compact.",
            )


def config_problem(config: Mapping[str, Any]) -> str | None:
    if not config:
        return None
    try:
        # Only where there is something to check: Ansible imports this at each start.
        from headrace.broker.config.topics import LogConfig
        from headrace.broker.errors import InvalidConfigError
    except ImportError as error:
        return f"it cannot be asked, since {error.name} is not installed: run `make setup`."
    try:
        LogConfig().with_overrides({str(key): str(value) for key, value in config.items()})
    except InvalidConfigError as error:
        return str(error)
    return None
