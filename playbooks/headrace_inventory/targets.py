"""What Prometheus scrapes of an inventory: an address for each service that serves metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace_inventory.addresses import Groups, HostVars, kinds_of, service_hosts

# The names, in headrace_ports, of where each kind of service serves its metrics; ZooKeeper serves none.
METRICS_PORTS = {
    "broker": "metrics",
    "haproxy": "haproxy_metrics",
    "registry": "registry",
    "load": "metrics",
    "counter": "counter_metrics",
    "auditor": "auditor_metrics",
}


def scrape_targets(groups: Groups, hostvars: HostVars, ports: Mapping[str, int]) -> list[dict[str, Any]]:
    """Prometheus' file of targets, in inventory order; the job is the kind of service."""
    return [
        {
            "targets": [f"{hostvars[host]['headrace_address']}:{ports[METRICS_PORTS[kind]]}"],
            "labels": {"job": kind, "datacenter": hostvars[host]["headrace_datacenter"], "host": host},
        }
        for host in service_hosts(groups)
        for kind in kinds_of(host, groups)
        if kind in METRICS_PORTS
    ]
