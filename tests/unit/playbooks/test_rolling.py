"""In which order hosts have their turns."""

from __future__ import annotations

import json
from typing import Any

from headrace_inventory.rolling import turn_order

DATACENTERS = {"off": "offline", "e": "dc-east", "w": "dc-west"}
KINDS = {
    "zk": "zookeeper",
    "b": "broker",
    "lb": "haproxy",
    "reg": "registry",
    "load": "load",
    "audit": "audit",
}
HOSTS = [
    *("e-lb-1", "e-b-1", "e-b-2", "e-b-3", "e-zk-1", "e-zk-2", "e-zk-3", "e-reg-1"),
    *("w-b-1", "w-b-2", "w-zk-1"),
    *("off-load-1", "off-reg-1", "off-b-1", "off-b-2", "off-zk-1"),
]
GROUPS: dict[str, list[str]] = {
    **{group: [host for host in HOSTS if host.split("-")[1] == kind] for kind, group in KINDS.items()},
    "offline": [host for host in HOSTS if host.startswith("off-")],
    "live": [host for host in HOSTS if not host.startswith("off-")],
    "all": HOSTS,
}
# A counter runs beside each registry, the auditor beside the load.
GROUPS["audit"] = ["e-reg-1", "off-reg-1", "off-load-1"]


def hostvars(controllers: dict[str, int] | None = None, leaders: dict[str, int] | None = None) -> Any:
    """The first broker, and the first ZooKeeper, of each datacenter was asked who leads."""
    found: dict[str, dict[str, Any]] = {}
    for host in HOSTS:
        datacenter, kind, number = host.split("-")
        found[host] = {
            "headrace_datacenter": DATACENTERS[datacenter],
            "headrace_address": f"{datacenter}.{kind}.{number}",
            "broker_id": int(number),
            "order_status": {"skipped": True},
            "order_ensemble": {"skipped": True},
        }
    for name, leading in (controllers or {}).items():
        found[f"{name}-b-1"]["order_status"] = {"stdout": json.dumps({"controller": leading})}
    for name, leading in (leaders or {}).items():
        found[f"{name}-b-1"]["order_ensemble"] = {"leader": f"{name}.zk.{leading}"}
    return found


def test_offline_comes_first_servers_before_clients_who_leads_last_and_loads_after_all_brokers() -> None:
    found = turn_order(HOSTS, hostvars({"e": 1, "w": 2, "off": 1}, {"e": 2, "w": 1, "off": 1}), GROUPS)
    assert found == [
        *("off-zk-1", "off-b-2", "off-b-1", "off-reg-1"),
        *("e-zk-1", "e-zk-3", "e-zk-2", "e-b-2", "e-b-3", "e-b-1", "e-lb-1", "e-reg-1"),
        *("w-zk-1", "w-b-1", "w-b-2"),
        "off-load-1",
    ]


def test_a_leader_of_one_datacenter_is_none_of_another() -> None:
    found = turn_order(["w-b-1", "w-b-2", "e-b-2", "e-b-1"], hostvars({"e": 1}), GROUPS)
    assert found == ["e-b-2", "e-b-1", "w-b-1", "w-b-2"]


def test_only_hosts_of_the_play_have_turns_and_who_is_not_known_to_lead_is_no_hindrance() -> None:
    assert turn_order(["w-b-2", "w-b-1"], hostvars({"w": -1}), GROUPS) == ["w-b-1", "w-b-2"]
    assert turn_order([], hostvars(), GROUPS) == []


def test_a_drained_host_has_no_turn() -> None:
    found = hostvars()
    found["w-b-1"]["drained_hosts"] = {"w-b-1": "w-b-1 is drained"}
    assert turn_order(["w-b-1", "w-b-2"], found, GROUPS) == ["w-b-2"]


def test_a_host_without_services_has_no_turn() -> None:
    assert turn_order(["machine", "w-b-1"], hostvars(), GROUPS) == ["w-b-1"]


def test_a_host_of_several_kinds_has_one_turn_with_its_first() -> None:
    groups = {**GROUPS, "zookeeper": [*GROUPS["zookeeper"], "w-b-2"]}
    assert turn_order(["w-b-1", "w-b-2", "w-zk-1"], hostvars(), groups) == ["w-zk-1", "w-b-2", "w-b-1"]
