"""Where an inventory's services serve their metrics: what Prometheus scrapes, and what a support bundle has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace_inventory.addresses import Groups, HostVars, kinds_of, service_hosts, service_name

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


def metrics_pages(
    hosts: Iterable[str], hostvars: HostVars, groups: Groups, ports: Mapping[str, int]
) -> dict[str, str]:
    """The address of the metrics of each service of these hosts that has some, by the service's name."""
    return {
        service_name(
            hostvars[host], kind
        ): f"http://{hostvars[host]['headrace_address']}:{ports[METRICS_PORTS[kind]]}/metrics"
        for host in hosts
        for kind in kinds_of(host, groups)
        if kind in METRICS_PORTS
    }
