"""What a machine needs for its services: programs and their versions, memory, room on disk, open files, jars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace_inventory.addresses import Groups, HostVars, kinds_of, service_name

# Megabytes that a service holds once it has some work; of Java's, beyond its heap.
MEMORY_MB = {
    "mirror": 100,
    "zookeeper": 64,
    "broker": 100,
    "haproxy": 40,
    "registry": 60,
    "counter": 60,
    "auditor": 150,
    "load": 800,
}
ZOOKEEPER_HEAP_MB = 128
# Megabytes that must be free where a service keeps data: to begin with, or for a while yet.
DISK_MB = {"zookeeper": 128, "broker": 256, "auditor": 128, "load": 256}
# A broker has a descriptor for each segment and connection; Apache Kafka's own advice is 100,000.
BROKER_OPEN_FILES = 4096
CONNECTIONS_MAX = 10_000
# Of HAProxy beside its connections: ten of its own, three a thread, of which it has 64 at most, a listener, and a check a server.
HAPROXY_OWN_FILES = 256


def needs(hosts: Iterable[str], hostvars: HostVars, groups: Groups) -> dict[str, Any]:
    """What all services of a machine's hosts need together."""
    kinds = [(host, kind) for host in hosts for kind in kinds_of(host, groups)]
    return {
        "memory_mb": sum(memory_mb(kind, hostvars[host]) for host, kind in kinds),
        "disk": disk(kinds, hostvars),
        "open_files": [
            {"service": service_name(hostvars[host], kind), "count": count, "advice": advice}
            for host, kind in kinds
            for count, advice in open_files(kind, hostvars[host])
        ],
        # ZooKeeper and HAProxy run without a release's Python.
        "python": any(kind not in ("zookeeper", "haproxy") for _, kind in kinds),
        "jars": sorted(
            {
                str(folder)
                for host, kind in kinds
                if kind == "zookeeper" and (folder := hostvars[host].get("zookeeper_jars_dir"))
            }
        ),
    }


def memory_mb(kind: str, variables: Mapping[str, Any]) -> int:
    heap = int(variables.get("zookeeper_heap_mb", ZOOKEEPER_HEAP_MB)) if kind == "zookeeper" else 0
    return MEMORY_MB[kind] + heap


def disk(kinds: Iterable[tuple[str, str]], hostvars: HostVars) -> dict[str, int]:
    """Megabytes by folder: a service's own, which may be a disk of its own."""
    return {data_folder(hostvars[host], kind): DISK_MB[kind] for host, kind in kinds if kind in DISK_MB}


def data_folder(variables: Mapping[str, Any], kind: str) -> str:
    data = str(variables["headrace_data_dir"])
    if kind == "load":
        warehouse = str(variables.get("headrace_warehouse", data))
        return data if "://" in warehouse else warehouse
    return f"{data}/{service_name(variables, kind)}"


def open_files(kind: str, variables: Mapping[str, Any]) -> list[tuple[int, str]]:
    """How many open files a service must be allowed, and what to do where it is allowed fewer."""
    if kind == "haproxy":
        connections = int(variables.get("haproxy_connections_max", CONNECTIONS_MAX))
        return [
            (
                haproxy_open_files(connections),
                f"lower haproxy_connections_max, {connections}, or raise the limit",
            )
        ]
    return [(BROKER_OPEN_FILES, "raise the limit")] if kind == "broker" else []


def haproxy_open_files(connections: int) -> int:
    """A connection takes two: the client's and the broker's."""
    return 2 * connections + HAPROXY_OWN_FILES
