"""Names that the kit does not know: variables with one of its prefixes, and groups that are almost one of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from headrace_inventory.addresses import MEMBERS, SERVICE_GROUPS, Groups, HostVars

PLAYBOOKS = Path(__file__).resolve().parents[1]
INVENTORY_SPECS = PLAYBOOKS / "headrace_inventory" / "argument_specs.yml"
KIT_GROUPS = ("live", "offline", *SERVICE_GROUPS, MEMBERS, "machine", "release", "supervisor")
# A group's name that differs from one of the kit's by so little is taken for a slip: haproxies and brokr are, online is not.
LIKENESS_MIN = 0.75
LENGTH_DIFFERENCE_MAX = 2
SAME_BEGINNING = 2
NEAREST_LIKENESS_MIN = 0.7


def unknown_variables(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each variable with a prefix of the kit's that nothing reads, however many hosts have it."""
    found: dict[str, list[str]] = {}
    for host in groups["all"]:
        for name in unread(hostvars[host], prefixes()):
            found.setdefault(name, []).append(host)
    return [
        f"Host {hosts[0]}{and_others(hosts)} has the variable {name}, which nothing of the kit reads: {advice(name)}."
        for name, hosts in found.items()
    ]


def unknown_arguments(given: Iterable[str]) -> list[str]:
    """One sentence for each variable of `-e` that nothing reads; also of those that a single play is told."""
    own = tuple(f"{name.split('_')[0]}_" for name in stated(INVENTORY_SPECS))
    return [
        f"-e sets {name}, which nothing of the kit reads: {advice(name)}."
        for name in unread(given, (*prefixes(), *own))
    ]


def unread(given: Iterable[str], prefixes: tuple[str, ...]) -> list[str]:
    return [name for name in given if name.startswith(prefixes) and name not in known_variables()]


@cache
def prefixes() -> tuple[str, ...]:
    return (*(f"{role.name}_" for role in (PLAYBOOKS / "roles").iterdir()), "headrace_")


def and_others(hosts: list[str]) -> str:
    return f" (with {len(hosts) - 1} others)" if len(hosts) > 1 else ""


def advice(name: str) -> str:
    """A prefix alone makes no two names alike: only those are compared whose endings are alike."""
    endings = {ending(each) for each in settable_variables()}
    near = get_close_matches(ending(name), endings, cutoff=NEAREST_LIKENESS_MIN)
    nearest = get_close_matches(name, [each for each in settable_variables() if ending(each) in near], n=1)
    if nearest:
        return f"the nearest name that is read is {nearest[0]}"
    return "take it out, or look in docs/rollout.md for the one that is read"


def ending(name: str) -> str:
    return name.partition("_")[2]


@cache
def settable_variables() -> frozenset[str]:
    """Those that are stated, without what follows from an inventory."""
    return frozenset(stated_variables() - set(_yaml(PLAYBOOKS / "group_vars" / "all.yml")))


@cache
def known_variables() -> frozenset[str]:
    """The variables that roles and plays state or set."""
    names = set(stated_variables())
    for pattern in ("roles/*/defaults/*.yml", "roles/*/vars/*.yml", "group_vars/*.yml"):
        for file in PLAYBOOKS.glob(pattern):
            names |= set(_yaml(file) or {})
    return frozenset(names)


def stated_variables() -> set[str]:
    files = [INVENTORY_SPECS, *PLAYBOOKS.glob("roles/*/meta/argument_specs.yml")]
    return set().union(*(stated(file) for file in files))


def stated(file: Path) -> set[str]:
    """The options of all specs of a file."""
    return {name for spec in _yaml(file)["argument_specs"].values() for name in spec.get("options", {})}


def _yaml(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def misspelt_groups(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each group that is almost one of the kit's; a datacenter's own group may have any name."""
    return [
        f"The inventory has a group {name}, which no play reads: rename it to {meant}, or to something less alike."
        for name, hosts in groups.items()
        if name not in KIT_GROUPS and name not in ("all", "ungrouped")
        for meant in alike(name)
        if not is_datacenter(hosts, groups, hostvars)
    ]


def alike(name: str) -> Iterator[str]:
    """The group of the kit's that the name is most like, if it is like one."""
    found = [
        (ratio, group)
        for group in KIT_GROUPS
        if group[:SAME_BEGINNING] == name[:SAME_BEGINNING].lower()
        and abs(len(group) - len(name)) <= LENGTH_DIFFERENCE_MAX
        and (ratio := SequenceMatcher(None, name.lower(), group).ratio()) >= LIKENESS_MIN
    ]
    if found:
        yield max(found)[1]


def is_datacenter(hosts: list[str], groups: Groups, hostvars: HostVars) -> bool:
    """Whether these are all hosts of one datacenter."""
    names = {hostvars[host].get("headrace_datacenter") for host in hosts}
    whole = [host for host in groups["all"] if hostvars[host].get("headrace_datacenter") in names]
    return len(names) == 1 and None not in names and set(whole) == set(hosts)
