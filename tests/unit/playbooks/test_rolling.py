"""In which order brokers are restarted."""

from __future__ import annotations

import json
from typing import Any

from headrace_inventory.rolling import restart_order

GROUPS = {"offline": ["off-1", "off-2"], "live": ["e-1", "e-2", "w-1", "w-2"]}
DATACENTERS = {"off": "offline", "e": "dc-east", "w": "dc-west"}


def hostvars(**controllers: int) -> dict[str, dict[str, Any]]:
    """Two brokers a datacenter; the first of each with a controller was asked for it."""
    found: dict[str, dict[str, Any]] = {}
    for host in [*GROUPS["live"], *GROUPS["offline"]]:
        prefix, number = host.split("-")
        found[host] = {"headrace_datacenter": DATACENTERS[prefix], "broker_id": int(number)}
        if number == "1" and prefix in controllers:
            found[host]["rolling_status"] = {"stdout": json.dumps({"controller": controllers[prefix]})}
        else:
            found[host]["rolling_status"] = {"skipped": True}
    return found


def test_offline_comes_first_and_each_controller_last() -> None:
    brokers = [*GROUPS["live"], *GROUPS["offline"]]
    assert restart_order(brokers, hostvars(e=1, w=2, off=1), GROUPS) == [
        "off-2",
        "off-1",
        "e-2",
        "e-1",
        "w-1",
        "w-2",
    ]


def test_only_the_brokers_of_the_play_have_turns_and_no_controller_is_no_hindrance() -> None:
    assert restart_order(["w-1", "w-2"], hostvars(w=-1), GROUPS) == ["w-1", "w-2"]
    assert restart_order([], hostvars(), GROUPS) == []
