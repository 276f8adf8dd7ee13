"""A view of all hosts asks each service where it tells whether it is ready, once a machine."""

from __future__ import annotations

from inventory_kit import PORTS, good_inventory

from headrace_inventory.addresses import OFFLINE_SERVICES, SERVICES
from headrace_inventory.looks import PROBES, answering, looked_at, looks, unasked


def asked(host: str) -> dict[str, list[tuple[str, int, str]]]:
    groups, hostvars = good_inventory()
    return {
        look["name"]: [(each["kind"], each["port"], each["path"]) for each in look["probes"]]
        for look in looks([host], hostvars, groups, PORTS)
    }


def test_every_kind_of_service_is_asked_something() -> None:
    kinds = {kind for kinds in (*SERVICES.values(), *OFFLINE_SERVICES.values()) for kind in kinds}
    assert set(PROBES) == kinds


def test_counters_and_the_auditor_are_asked_for_their_readiness_and_figures() -> None:
    counter = {"headrace-counter": [("http", 9405, "/ready"), ("http", 9405, "/metrics")]}
    assert asked("east-audit-1") == counter
    assert asked("off-audit-1") == {
        **counter,
        "headrace-auditor": [("http", 9406, "/ready"), ("http", 9406, "/metrics")],
    }
    # What is read first comes first.
    assert list(asked("off-audit-1")) == ["headrace-counter", "headrace-auditor"]


def test_a_broker_is_asked_by_its_protocol_and_for_its_readiness() -> None:
    assert asked("east-broker-1") == {"headrace-broker-1": [("kafka", 9092, ""), ("http", 9404, "/ready")]}


def test_a_broker_has_a_certificate_of_its_own_and_haproxy_shows_the_brokers() -> None:
    groups, hostvars = good_inventory()
    groups["haproxy"] = ["east-haproxy-1"]
    hostvars["east-haproxy-1"] = hostvars["east-broker-1"]
    (broker, haproxy) = looks(["east-broker-1", "east-haproxy-1"], hostvars, groups, PORTS)
    assert (broker["certified"], haproxy["certified"]) == (True, False)


def test_a_machine_is_looked_at_once_for_all_of_its_hosts() -> None:
    groups, hostvars = good_inventory()
    for host in ("east-broker-1", "east-broker-2"):
        hostvars[host]["headrace_machine"] = "here"
    assert looked_at("east-broker-1", groups["all"], hostvars) == ["east-broker-1", "east-broker-2"]
    assert looked_at("east-broker-2", groups["all"], hostvars) == []


def test_what_nobody_answers_for_is_told() -> None:
    groups, hostvars = good_inventory()
    assert unasked(groups["all"], hostvars, groups) == ["cluster east", "cluster off", "mirror", "audit"]
    assert unasked(["east-broker-1"], hostvars, groups) == ["cluster east"]
    hostvars["off-audit-1"]["gate_answers"] = {"answers": [{"name": "audit", "code": 0, "said": ""}]}
    assert "audit" not in unasked(groups["all"], hostvars, groups)


def test_only_machines_that_answered_are_asked_more() -> None:
    groups, hostvars = good_inventory()
    hostvars["east-broker-2"]["health_look"] = {"services": []}
    assert answering(groups["broker"], groups["all"], hostvars) == ["east-broker-2"]
