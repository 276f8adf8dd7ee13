"""All that is wrong with an inventory, in sentences that name host, variable and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from ansible.inventory.manager import split_host_pattern

from headrace_inventory import (
    certificates,
    members,
    names,
    options,
    own_topics,
    secrets,
    security,
    server_properties,
    settings,
    sockets,
    topics,
    warehouses,
    zookeeper_properties,
    zookeeper_values,
)
from headrace_inventory import groups as tiers
from headrace_inventory.addresses import Groups, HostVars

Check = Callable[[Groups, HostVars], list[str]]
# Each kind of these hides all that come after it, which need what it looks for.
PREREQUISITES: tuple[Check, ...] = (
    secrets.secrets_in_the_open,
    tiers.missing_groups,
    options.missing_variables,
    options.wrong_values,
    settings.addresses,
    tiers.tiers,
)
CHECKS: tuple[Check, ...] = (
    settings.folders,
    settings.users,
    settings.counts,
    settings.following_properties,
    settings.patterns,
    settings.datacenter_names,
    settings.identities,
    settings.identity_ranges,
    sockets.shared_addresses,
    sockets.shared_ports,
    sockets.shared_names,
    tiers.datacenters_whole,
    tiers.idle_hosts,
    tiers.machines,
    sockets.open_metrics,
    security.logins,
    certificates.certificates,
    topics.topics,
    own_topics.own_topics,
    topics.loaded_topics,
    topics.aggregates,
    topics.replicas,
    warehouses.further_warehouses,
    warehouses.loads,
    server_properties.server_properties,
    server_properties.missing_listeners,
    zookeeper_properties.zookeeper_properties,
    zookeeper_properties.own_servers,
    zookeeper_values.zookeeper_values,
)
# Of an inventory of a mirror's members alone.
MEMBER_PREREQUISITES: tuple[Check, ...] = (
    secrets.secrets_in_the_open,
    members.missing_members,
    options.missing_variables,
    options.wrong_values,
    settings.addresses,
)
MEMBER_CHECKS: tuple[Check, ...] = (
    settings.folders,
    settings.users,
    settings.counts,
    settings.following_properties,
    settings.datacenter_names,
    members.identities,
    members.metrics_ports,
    members.shared_places,
    sockets.shared_names,
    tiers.machines,
    members.refused_files,
)


def inventory_problems(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each thing wrong with the inventory of a pipeline."""
    return problems_of(groups, hostvars, PREREQUISITES, CHECKS)


def member_problems(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each thing wrong with the inventory of a mirror's members."""
    return problems_of(groups, hostvars, MEMBER_PREREQUISITES, MEMBER_CHECKS)


def problems_of(
    groups: Groups, hostvars: HostVars, prerequisites: Iterable[Check], checks: Iterable[Check]
) -> list[str]:
    hostvars = options.defined(groups, hostvars)
    locked = options.locked_variables(groups, hostvars)
    if locked:
        return locked
    problems = names.misspelt_groups(groups, hostvars) + names.unknown_variables(groups, hostvars)
    for check in prerequisites:
        found = check(groups, hostvars)
        if found:
            return problems + found
    return problems + [problem for check in checks for problem in check(groups, hostvars)]


def limit_problems(limit: str, groups: Groups) -> list[str]:
    """One sentence for each name of `--limit` that the inventory does not have; Ansible goes on with the others."""
    names = [*groups, *groups["all"], "localhost"]
    parts = [part.lstrip("!&") for part in split_host_pattern(limit)]
    return [
        f"--limit names {part}, which is neither a host nor a group of the inventory."
        for part in parts
        if part[:1] not in ("~", "@")
        and not any(fnmatchcase(name, re.sub(r"\[[-\d:]+\]$", "", part)) for name in names)
    ]
