"""Which hosts are drained, from what each was told of its mark, and what gates then do not miss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace_inventory.addresses import Groups, HostVars, in_datacenter


def drained(hosts: Iterable[str], hostvars: HostVars, others: Mapping[str, Any]) -> dict[str, str]:
    """A sentence for each drained host: these told of themselves (`drained_look`), others one after the other."""
    looks = {host: hostvars[host].get("drained_look", {}) for host in hosts}
    looks |= {look["item"]: look for look in others.get("results", [])}
    return {host: look["sentence"] for host, look in looks.items() if look.get("drained")}


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
