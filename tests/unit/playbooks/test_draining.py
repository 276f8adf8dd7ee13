"""Which hosts are drained, and what gates then do not miss."""

from __future__ import annotations

from typing import Any

from headrace_inventory.draining import drained, drained_brokers, ensemble

GROUPS = {"broker": ["e-1", "e-2", "w-1"], "zookeeper": ["e-zk-1", "e-zk-2"]}
HOSTVARS: dict[str, dict[str, Any]] = {
    "e-1": {"headrace_datacenter": "dc-east", "broker_id": 1},
    "e-2": {"headrace_datacenter": "dc-east", "broker_id": 2},
    "w-1": {"headrace_datacenter": "dc-west", "broker_id": 1},
    "e-zk-1": {"headrace_datacenter": "dc-east", "headrace_address": "10.0.1.11"},
    "e-zk-2": {"headrace_datacenter": "dc-east", "headrace_address": "10.0.1.12"},
}
LOOK = {"drained": True, "sentence": "drained since yesterday"}


def test_hosts_tell_of_themselves_and_others_are_asked() -> None:
    hostvars = HOSTVARS | {
        "e-1": HOSTVARS["e-1"] | {"drained_look": LOOK},
        "e-2": HOSTVARS["e-2"] | {"drained_look": {"drained": False, "sentence": ""}},
    }
    others = {"results": [{"item": "w-1", **LOOK}, {"item": "e-zk-1", "failed": True}]}
    assert drained(["e-1", "e-2"], hostvars, others) == dict.fromkeys(["e-1", "w-1"], LOOK["sentence"])
    assert drained(["e-2"], hostvars, {"skipped": True}) == {}


def test_the_gates_miss_no_drained_broker_of_their_datacenter() -> None:
    found = {"e-2": "drained", "w-1": "drained", "e-zk-1": "drained"}
    assert drained_brokers(found, HOSTVARS, GROUPS, "dc-east") == ["--drained", "2"]
    assert drained_brokers({}, HOSTVARS, GROUPS, "dc-east") == []
    assert ensemble(found, HOSTVARS, GROUPS, "dc-east", 2181) == ["10.0.1.12:2181"]
