"""All that is wrong with an inventory, in sentences that name host, variable and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

from ansible.inventory.manager import split_host_pattern

from headrace_inventory import (
    certificates,
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
    zookeeper_properties.zookeeper_properties,
)


def inventory_problems(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each thing wrong with the inventory."""
    hostvars = options.defined(groups, hostvars)
    locked = options.locked_variables(groups, hostvars)
    if locked:
        return locked
    problems = names.misspelt_groups(groups, hostvars) + names.unknown_variables(groups, hostvars)
    for check in PREREQUISITES:
        found = check(groups, hostvars)
        if found:
            return problems + found
    return problems + [problem for check in CHECKS for problem in check(groups, hostvars)]


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
