"""Who is looked at by a view of all hosts: the services of each machine, once, with where they answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace_inventory.addresses import (
    Groups,
    HostVars,
    address_of,
    kinds_of,
    machine_of,
    port_of,
    service_name,
)
from headrace_inventory.certificates import SECURED_GROUPS

# By kind of service: protocol, name of the port in headrace_ports, path. What is secured has both in variables of its own.
PROBES = {
    "mirror": (("http", "metrics", "/metrics"),),
    "zookeeper": (("zookeeper", "zookeeper", ""),),
    "broker": (("broker", "broker", ""), ("http", "metrics", "/ready")),
    "haproxy": (("broker", "bootstrap", ""),),
    "registry": (("registry", "registry", "/ready"),),
    "load": (("http", "metrics", "/ready"), ("http", "metrics", "/metrics")),
    "counter": (("http", "counter_metrics", "/ready"), ("http", "counter_metrics", "/metrics")),
    "auditor": (("http", "auditor_metrics", "/ready"), ("http", "auditor_metrics", "/metrics")),
}


def looked_at(host: str, play_hosts: Iterable[str], hostvars: HostVars) -> list[str]:
    """The hosts of the play that are the same machine, for the first of them; nothing for the others."""
    machine = machine_of(host, hostvars)
    same = [each for each in play_hosts if machine_of(each, hostvars) == machine]
    return same if same[:1] == [host] else []


def looks(
    hosts: Iterable[str], hostvars: HostVars, groups: Groups, ports: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The services of these hosts, those that are read first: name, host, and how they are asked whether they serve.

    HAProxy passes TLS through: what it shows is the certificate of some broker, and none of its own.
    """
    return [
        {
            "name": service_name(hostvars[host], kind),
            "host": host,
            "certified": kind in SECURED_GROUPS,
            "probes": [
                probe(kind, protocol, port, hostvars[host], ports) | {"path": path}
                for protocol, port, path in PROBES[kind]
            ],
        }
        for host in hosts
        for kind in reversed(kinds_of(host, groups))
    ]


def probe(
    kind: str, protocol: str, port: str, variables: Mapping[str, Any], ports: Mapping[str, int]
) -> dict[str, Any]:
    is_plain = protocol == "http"
    return {
        "kind": protocol if is_plain else variables[f"headrace_{protocol}_probe"],
        "address": address_of(port, variables),
        "port": port_of(kind, port, variables, ports) if is_plain else variables[f"headrace_{port}_port"],
    }


def answering(hosts: Iterable[str], play_hosts: Iterable[str], hostvars: HostVars) -> list[str]:
    """Those of the hosts that are in the play and on a machine that answered when it was looked at."""
    play = list(play_hosts)
    answered = {
        machine_of(host, hostvars) for host in play if "services" in hostvars[host].get("health_look", {})
    }
    return [host for host in hosts if host in play and machine_of(host, hostvars) in answered]


def found(play_hosts: Iterable[str], hostvars: HostVars) -> dict[str, Mapping[str, Any]]:
    """What looking at each machine came to, by the host that stands for it."""
    return {
        host: look
        for host in play_hosts
        if "services" in (look := hostvars[host].get("health_look", {})) or "unanswered" in look
    }


def drained(play_hosts: Iterable[str], hostvars: HostVars) -> dict[str, str]:
    """A sentence for each drained host."""
    return {
        mark["host"]: mark["sentence"]
        for look in found(play_hosts, hostvars).values()
        for mark in look.get("drained", [])
    }


def answers(play_hosts: Iterable[str], hostvars: HostVars) -> list[dict[str, Any]]:
    """What clusters, mirror and audit said; of a host that went away since it was looked at, that it did."""
    said: list[dict[str, Any]] = []
    for host in play_hosts:
        told = hostvars[host].get("gate_answers", {})
        said += told.get("answers", [])
        if "unanswered" in told:
            said.append({"name": f"what {host} was asked", "code": None, "said": told["unanswered"]})
    return said


def unasked(play_hosts: Iterable[str], hostvars: HostVars, groups: Groups) -> list[str]:
    """What nobody could be asked about, since no host that could be asked answers."""
    play = list(play_hosts)
    said = {each["name"] for each in answers(play, hostvars)}
    brokers = [host for host in groups.get("broker", []) if host in play]
    wanted = {f"cluster {hostvars[host]['headrace_datacenter']}": None for host in brokers}
    if any(host in groups["offline"] for host in brokers):
        wanted["mirror"] = None
    if any(host in play and host in groups["offline"] for host in groups.get("audit", [])):
        wanted["audit"] = None
    return [name for name in wanted if name not in said]
