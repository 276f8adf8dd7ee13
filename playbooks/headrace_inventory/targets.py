"""Where an inventory's services serve their metrics: what Prometheus scrapes, and what a support bundle has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace_inventory.addresses import (
    Groups,
    HostVars,
    address_of,
    kinds_of,
    port_of,
    service_hosts,
    service_name,
)

# The names, in headrace_ports, of where each kind of service serves its metrics; ZooKeeper serves none.
METRICS_PORTS = {
    "mirror": "metrics",
    "broker": "metrics",
    "haproxy": "haproxy_metrics",
    "registry": "registry",
    "load": "metrics",
    "counter": "counter_metrics",
    "auditor": "auditor_metrics",
}


def scrape_targets(groups: Groups, hostvars: HostVars, ports: Mapping[str, int]) -> list[dict[str, Any]]:
    """Prometheus' file of targets, in inventory order; the job is the kind of service, and HTTPS is a label, too."""
    return [
        target(kind, host, hostvars[host], place(kind, hostvars[host], ports))
        for host in service_hosts(groups)
        for kind in kinds_of(host, groups)
        if kind in METRICS_PORTS
    ]


def target(job: str, host: str, variables: Mapping[str, Any], where: str) -> dict[str, Any]:
    labels = {"job": job, "datacenter": variables["headrace_datacenter"], "host": host}
    secured = {"__scheme__": "https"} if scheme(job, variables) == "https" else {}
    return {"targets": [where], "labels": labels | secured}


def metrics_pages(
    hosts: Iterable[str], hostvars: HostVars, groups: Groups, ports: Mapping[str, int]
) -> dict[str, str]:
    """The address of the metrics of each service of these hosts that has some, by the service's name."""
    return {
        service_name(
            hostvars[host], kind
        ): f"{scheme(kind, hostvars[host])}://{place(kind, hostvars[host], ports)}/metrics"
        for host in hosts
        for kind in kinds_of(host, groups)
        if kind in METRICS_PORTS
    }


def place(kind: str, variables: Mapping[str, Any], ports: Mapping[str, int]) -> str:
    """ADDRESS:PORT of a service's metrics; the registry's are where its schemas are."""
    name = METRICS_PORTS[kind]
    port = (
        variables["headrace_registry_port"] if kind == "registry" else port_of(kind, name, variables, ports)
    )
    return f"{address_of(name, variables)}:{port}"


def scheme(kind: str, variables: Mapping[str, Any]) -> str:
    return str(variables["headrace_registry_probe"]) if kind == "registry" else "http"
