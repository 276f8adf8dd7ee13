"""Topics that no cluster of the inventory can have: their names, partitions, replicas, and what is loaded of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from headrace_inventory.addresses import AGGREGATE, Groups, HostVars, datacenters, in_datacenter
from headrace_inventory.settings import whole_number

LISTS = {"live": "headrace_live_topics", "offline": "headrace_offline_topics"}
# As Apache Kafka has it (org.apache.kafka.common.internals.Topic).
NAME = re.compile(r"[a-zA-Z0-9._-]+")
NAME_LENGTH_MAX = 249
# Properties that ask for so many brokers: with fewer, no topic could be made, or none could be written with acks=all.
BROKER_COUNTS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "min.insync.replicas",
    "transaction.state.log.min.isr",
)


def topics(groups: Groups, hostvars: HostVars) -> list[str]:
    """What is wrong with the topics of each datacenter; told once where datacenters say the same."""
    problems: dict[str, str] = {}
    for tier, variable in LISTS.items():
        hosts = [host for host in groups["broker"] if host in groups[tier]]
        for datacenter in datacenters(hosts, hostvars):
            brokers = in_datacenter(hosts, hostvars, datacenter)
            # In the offline datacenter a live one's topics have its name before theirs.
            prefix = f"{datacenter}." if tier == "live" else ""
            wanted = described(hostvars[brokers[0]].get(variable))
            for problem in list_problems(wanted, len(brokers), len(prefix)):
                problems.setdefault(f"has in {variable} {problem}", brokers[0])
    return [f"Host {host} {problem}" for problem, host in problems.items()]


def described(value: Any) -> list[dict[str, Any]]:
    """The topics of a list that are dictionaries with names; of what is not, the role's argument spec tells."""
    entries = value if isinstance(value, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)]


def list_problems(wanted: list[dict[str, Any]], brokers: int, prefix_length: int) -> Iterator[str]:
    for topic in wanted:
        found = (
            name_problem(topic["name"], prefix_length),
            partitions_problem(topic.get("partitions")),
            replicas_problem(topic.get("replication_factor", -1), brokers),
        )
        yield from (f"the topic {topic['name']!r} {problem}" for problem in found if problem)
    names = Counter(topic["name"] for topic in wanted)
    yield from (f"the topic {name!r} {count} times: leave one." for name, count in names.items() if count > 1)
    for name in names:
        twin = name.replace(".", "_")
        if twin != name and twin in names:
            yield f"the topics {name!r} and {twin!r}, which Kafka refuses beside each other: rename one."


def name_problem(name: str, prefix_length: int) -> str | None:
    if NAME.fullmatch(name) and name not in (".", "..") and len(name) + prefix_length <= NAME_LENGTH_MAX:
        return None
    return (
        "whose name Kafka refuses: it must be letters, digits, dots, underscores and hyphens, "
        f"{NAME_LENGTH_MAX - prefix_length} at most, and neither '.' nor '..'."
    )


def partitions_problem(partitions: Any) -> str | None:
    count = whole_number(partitions)
    return None if count is None or count >= 1 else f"with {count} partitions: it must have at least 1."


def replicas_problem(factor: Any, brokers: int) -> str | None:
    count = whole_number(factor)
    if count is None or count == -1 or 1 <= count <= brokers:
        return None
    return (
        f"with the replication_factor {count}, and its datacenter has {brokers} brokers: "
        f"it must be from 1 to {brokers}, or left out."
    )


def loaded_topics(groups: Groups, hostvars: HostVars) -> list[str]:
    """Loaded topics that no live datacenter has: their tables would stay empty and nobody would be told; and none at all."""
    readers = dict.fromkeys([*groups["load"], *groups["audit"]])
    idle = [host for host in readers if not hostvars[host]["headrace_loaded_topics"]]
    return [
        f"Host {host} has no topic in headrace_loaded_topics: name one of headrace_live_topics at least."
        for host in idle
    ] + live_nowhere("headrace_loaded_topics", groups["load"], groups, hostvars)


def live_nowhere(variable: str, hosts: Iterable[str], groups: Groups, hostvars: HostVars) -> list[str]:
    """What a variable of some hosts names that no live datacenter has."""
    live = {
        topic["name"]
        for host in groups["broker"]
        if host in groups["live"]
        for topic in described(hostvars[host].get(LISTS["live"]))
    }
    return [
        f"Host {host} has in {variable} the topic {name!r}, which is in no live datacenter's "
        f"headrace_live_topics ({', '.join(sorted(live))}): add it there, or take it out here."
        for host in hosts
        for name in dict.fromkeys(hostvars[host].get(variable) or [])
        if name not in live
    ]


def aggregates(groups: Groups, hostvars: HostVars) -> list[str]:
    """Aggregates that no source has, that the audit would take for copies, or whose sources would be named as a datacenter."""
    bringing = [host for host in groups["broker"] if host in groups["offline"]]
    counting = [host for host in groups["audit"] if host in groups["offline"]]
    problems = [
        f"Host {host} has in {variable} {name!r}, and the audit takes a name with a dot for a copy: name topics without one."
        for variable, hosts in (("headrace_aggregate_topics", bringing), ("audit_aggregate_topics", counting))
        for host in hosts
        for name in dict.fromkeys(hostvars[host].get(variable) or [])
        if "." in name
    ]
    if any(hostvars[host].get("headrace_aggregate_topics") for host in bringing):
        problems += [
            f"The live datacenter {name} is named as the source {name.removesuffix(AGGREGATE)} is where "
            "headrace_aggregate_topics names topics: give it a name with another ending."
            for name in datacenters([host for host in groups["broker"] if host in groups["live"]], hostvars)
            if name.endswith(AGGREGATE)
        ]
    return problems + live_nowhere("headrace_aggregate_topics", bringing, groups, hostvars)


def replicas(groups: Groups, hostvars: HostVars) -> list[str]:
    """Properties that ask for more brokers than there are."""
    problems: dict[str, None] = {}
    for host in groups["broker"]:
        datacenter = str(hostvars[host]["headrace_datacenter"])
        count = len(in_datacenter(groups["broker"], hostvars, datacenter))
        for name in BROKER_COUNTS:
            factor = str(dict(hostvars[host].get("broker_properties") or {}).get(name, ""))
            if factor.isdecimal() and int(factor) > count:
                problems[
                    f"broker_properties of datacenter {datacenter} say {name} {factor}, and it has {count} brokers: "
                    "say less, or leave it out."
                ] = None
    return list(problems)
