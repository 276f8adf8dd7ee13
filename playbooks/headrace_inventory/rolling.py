"""In which order brokers are restarted: offline before live, one datacenter after the other, the controller last."""

from __future__ import annotations

import json
from collections.abc import Iterable

from headrace_inventory.addresses import Groups, HostVars, datacenters, in_datacenter


def restart_order(brokers: Iterable[str], hostvars: HostVars, groups: Groups) -> list[str]:
    """These brokers in their order; who is controller is in what one host of each datacenter registered."""
    hosts = list(brokers)
    controllers = {
        hostvars[host]["headrace_datacenter"]: json.loads(told)["controller"]
        for host in hosts
        if (told := hostvars[host].get("rolling_status", {}).get("stdout"))
    }
    offline = [host for host in hosts if host in groups["offline"]]
    return [
        host
        for datacenter in datacenters([*offline, *hosts], hostvars)
        for host in sorted(
            in_datacenter(hosts, hostvars, datacenter),
            key=lambda host: int(hostvars[host]["broker_id"]) == controllers.get(datacenter),
        )
    ]
