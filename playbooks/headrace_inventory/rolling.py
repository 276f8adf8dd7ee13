"""In which order hosts have their turns, one at a time: to be restarted, or to be upgraded.

Offline before live and one datacenter after the other; in each the servers before their clients (ZooKeeper, brokers, HAProxy,
registries), and of each kind the one that leads last, so that it hands over once. Loads and audit, which read all datacenters'
data, come after all brokers. The way back is the reverse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from headrace_inventory.addresses import (
    SERVICE_GROUPS,
    Groups,
    HostVars,
    datacenters,
    in_datacenter,
    pipeline_hosts,
)

READERS = ("load", "audit")


def turn_order(hosts: Iterable[str], hostvars: HostVars, groups: Groups) -> list[str]:
    """Those of these hosts that run services and are not drained, in their order.

    Who leads is in what one host of each datacenter was told: `order_status` holds what `headrace cluster status --json`
    printed, `order_ensemble` what headrace_gate found.
    """
    asked = set(hosts)
    found = [
        host
        for host in pipeline_hosts(groups)
        if host in asked and host not in hostvars[host].get("drained_hosts", {})
    ]
    offline = [host for host in found if host in groups["offline"]]
    leading = controllers(found, hostvars, groups) | ensemble_leaders(found, hostvars, groups)
    turns = [
        host
        for datacenter in datacenters([*offline, *found], hostvars)
        for host in sorted(
            in_datacenter(found, hostvars, datacenter),
            key=lambda host: (first_kind(host, groups), host in leading),
        )
    ]
    return sorted(turns, key=lambda host: SERVICE_GROUPS[first_kind(host, groups)] in READERS)


def first_kind(host: str, groups: Groups) -> int:
    """The place, among the kinds of services, of the first that the host runs."""
    return next(place for place, group in enumerate(SERVICE_GROUPS) if host in groups.get(group, []))


def controllers(hosts: Iterable[str], hostvars: HostVars, groups: Groups) -> set[str]:
    """The hosts whose broker is its cluster's controller, as far as these were told."""
    told = {
        (hostvars[host]["headrace_datacenter"], json.loads(text)["controller"])
        for host in hosts
        if (text := hostvars[host].get("order_status", {}).get("stdout"))
    }
    return {
        host
        for host in groups["broker"]
        if (hostvars[host]["headrace_datacenter"], int(hostvars[host]["broker_id"])) in told
    }


def ensemble_leaders(hosts: Iterable[str], hostvars: HostVars, groups: Groups) -> set[str]:
    """The hosts whose ZooKeeper leads its ensemble, as far as these were told."""
    told = {hostvars[host].get("order_ensemble", {}).get("leader") for host in hosts}
    return {host for host in groups["zookeeper"] if hostvars[host]["headrace_address"] in told}
