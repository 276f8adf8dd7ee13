"""Which hosts are drained, and what gates then do not miss."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_inventory.draining import (
    beyond,
    drain_problems,
    drained,
    drained_brokers,
    ensemble,
    first_to_ask,
    one_a_machine,
    restore_problems,
    silent,
)

GROUPS = {"broker": ["e-1", "e-2", "w-1", "o-1"], "zookeeper": ["e-zk-1", "e-zk-2"], "offline": ["o-1"]}
HOSTVARS: dict[str, dict[str, Any]] = {
    "e-1": {"headrace_datacenter": "dc-east", "broker_id": 1},
    "e-2": {"headrace_datacenter": "dc-east", "broker_id": 2},
    "w-1": {"headrace_datacenter": "dc-west", "broker_id": 1},
    "o-1": {"headrace_datacenter": "offline", "broker_id": 1},
    "e-zk-1": {"headrace_datacenter": "dc-east", "headrace_address": "10.0.1.11"},
    "e-zk-2": {"headrace_datacenter": "dc-east", "headrace_address": "10.0.1.12"},
}


@pytest.mark.parametrize(
    ("hosts", "limit", "reason", "problems"),
    [
        (["e-1", "machine"], "e-1,machine", "its disk", []),
        (
            ["e-1"],
            "",
            "its disk",
            ["Name the hosts to drain with --limit, such as --limit dc-east-broker-1."],
        ),
        (["e-1"], "e-1", " ", ["Say why, for others to read: -e drain_reason='its disk is replaced'."]),
        (
            ["machine"],
            "machine",
            "its disk",
            [
                "--limit names no host that runs a service which can be drained: name one of zookeeper, broker, haproxy, "
                "registry, load, audit."
            ],
        ),
    ],
)
def test_hosts_are_drained_by_name_and_with_a_reason(
    hosts: list[str], limit: str, reason: str, problems: list[str]
) -> None:
    assert drain_problems(hosts, GROUPS, limit, reason) == problems


@pytest.mark.parametrize(
    ("hosts", "limit", "problems"),
    [
        (["e-1", "machine"], "e-1,machine", []),
        (["e-1"], "", ["Name the hosts to restore with --limit, such as --limit dc-east-broker-1."]),
        (
            ["machine"],
            "machine",
            [
                "--limit names no host that runs a service which can be drained: name one of zookeeper, broker, haproxy, "
                "registry, load, audit."
            ],
        ),
    ],
)
def test_hosts_are_restored_by_name(hosts: list[str], limit: str, problems: list[str]) -> None:
    assert restore_problems(hosts, GROUPS, limit) == problems


@pytest.mark.parametrize("limit", ["", "m-1"])
def test_a_member_of_a_mirror_is_neither_drained_nor_restored(limit: str) -> None:
    groups = {"mirror_member": ["m-1"]}
    problems = [
        "Members of a mirror are not drained: stop one with playbooks/down.yml --limit HOST, and start it again with "
        "playbooks/mirror_members.yml --limit HOST."
    ]
    assert drain_problems(["m-1"], groups, limit, "its disk") == problems
    assert restore_problems(["m-1"], groups, limit) == problems


def test_hosts_beside_members_have_to_be_named() -> None:
    groups = {**GROUPS, "mirror_member": ["m-1"]}
    (problem,) = restore_problems(["e-1", "m-1"], groups, "")
    assert problem.startswith("Name the hosts to restore")


def test_hosts_tell_of_all_on_their_machine_and_others_are_asked() -> None:
    hostvars = HOSTVARS | {
        "e-1": HOSTVARS["e-1"] | {"drained_look": {"sentences": {"e-1": "away", "e-2": "away"}}}
    }
    others = {"results": [{"item": "w-1", "sentences": {"w-1": "gone"}}, {"item": "e-zk-1", "failed": True}]}
    assert drained(["e-1", "e-2"], hostvars, others) == {"e-1": "away", "e-2": "away", "w-1": "gone"}
    assert drained(["e-2"], hostvars, {"skipped": True}) == {}


def test_gates_ask_where_somebody_answers() -> None:
    others = {
        "results": [{"item": "e-1", "headrace_unanswered": "Host e-1 does not answer."}, {"item": "e-2"}]
    }
    assert silent(HOSTVARS, HOSTVARS, others) == ["e-1"]
    assert silent(HOSTVARS, HOSTVARS, {"skipped": True}) == []
    shared = HOSTVARS | {"w-1": HOSTVARS["w-1"] | {"headrace_machine": "e-1"}}
    assert silent(shared, shared, others) == ["e-1", "w-1"]
    assert first_to_ask(["e-1", "e-2", "w-1"], {}, []) == "e-1"
    assert first_to_ask(["e-1", "e-2", "w-1"], {"e-2": "drained"}, ["e-1"]) == "w-1"
    assert first_to_ask(["e-1", "e-2"], {"e-2": "drained"}, ["e-1"]) == "e-2"


def test_one_host_a_machine_is_asked_and_those_beyond_the_play_that_gates_ask_about() -> None:
    assert one_a_machine(["e-1", "e-2"], HOSTVARS) == ["e-1", "e-2"]
    assert beyond(["e-1"], HOSTVARS, GROUPS) == ["e-2", "o-1", "e-zk-1", "e-zk-2"]
    assert beyond(HOSTVARS, HOSTVARS, GROUPS) == []
    assert beyond([], HOSTVARS, GROUPS) == ["o-1"]
    shared = {host: {**found, "headrace_machine": "here"} for host, found in HOSTVARS.items()}
    assert one_a_machine(shared, shared) == ["e-1"]
    assert beyond(["e-1"], shared, GROUPS) == []


def test_the_gates_miss_no_drained_broker_of_their_datacenter() -> None:
    found = {"e-2": "drained", "w-1": "drained", "e-zk-1": "drained"}
    assert drained_brokers(found, HOSTVARS, GROUPS, "dc-east") == ["--drained", "2"]
    assert drained_brokers({}, HOSTVARS, GROUPS, "dc-east") == []
    assert ensemble(found, HOSTVARS, GROUPS, "dc-east", 2181) == ["10.0.1.12:2181"]
