"""A bad inventory ends in preflight.yml with a sentence that says what to change, before anything is touched."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
Inventory = tuple[dict[str, list[str]], dict[str, dict[str, Any]]]


def load(path: str) -> Any:
    """A module of playbooks/, which is no package."""
    file = CHECKOUT / "playbooks" / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


topology = load("filter_plugins/headrace_topology.py")


def good_inventory() -> Inventory:
    """One live and one offline datacenter with two brokers each."""
    groups: dict[str, list[str]] = {name: [] for name in ("live", "offline", *topology.SERVICE_GROUPS)}
    hostvars: dict[str, dict[str, Any]] = {}
    for tier, name, network in (("live", "east", 1), ("offline", "off", 9)):
        for group, number, identity in (
            ("zookeeper", 1, "zookeeper_id"),
            ("broker", 1, "broker_id"),
            ("broker", 2, "broker_id"),
            ("registry", 1, None),
            ("audit", 1, None),
            ("load", 1, None),
        ):
            if group == "load" and tier == "live":
                continue
            host = f"{name}-{group}-{number}"
            groups[tier].append(host)
            groups[group].append(host)
            hostvars[host] = {
                "headrace_datacenter": name,
                "headrace_service_manager": "systemd",
                "headrace_service_prefix": "headrace-",
                "headrace_address": f"10.{network}.{len(hostvars)}.{number}",
            }
            if identity:
                hostvars[host][identity] = number
    groups["all"] = list(hostvars)
    groups["machine"] = list(hostvars)
    return groups, hostvars


def change_variable(host: str, name: str, value: Any) -> Callable[[Inventory], None]:
    def change(inventory: Inventory) -> None:
        inventory[1][host][name] = value

    return change


def empty_group(name: str) -> Callable[[Inventory], None]:
    def change(inventory: Inventory) -> None:
        inventory[0][name] = []

    return change


def add_zookeeper(inventory: Inventory) -> None:
    groups, hostvars = inventory
    groups["zookeeper"].append("east-zookeeper-2")
    groups["live"].append("east-zookeeper-2")
    hostvars["east-zookeeper-2"] = {
        **hostvars["east-zookeeper-1"],
        "headrace_address": "10.1.7.2",
        "zookeeper_id": 2,
    }


def move_load(inventory: Inventory) -> None:
    inventory[0]["load"].append("east-audit-1")


def drop_from_tier(inventory: Inventory) -> None:
    inventory[0]["live"].remove("east-broker-1")


def misspell_group(inventory: Inventory) -> None:
    inventory[0]["brokers"] = ["east-broker-2"]
    inventory[0]["broker"].remove("east-broker-2")


def forget_machine(inventory: Inventory) -> None:
    inventory[0]["machine"].remove("east-broker-1")


BROKEN = {
    "more replicas than brokers": (
        change_variable("off-broker-2", "broker_properties", {"default.replication.factor": 3}),
        "broker_properties of datacenter off say default.replication.factor 3, and it has 2 brokers: say less, or leave it out.",
    ),
    "host in no group that runs anything": (
        misspell_group,
        "Host east-broker-2 is in none of the groups zookeeper, broker, haproxy, registry, load, audit: put it in one, "
        "or take it out of its datacenter.",
    ),
    "host on no machine": (
        forget_machine,
        "Host east-broker-1 runs on east-broker-1, which is not in the group machine: add it there.",
    ),
    "supervisor that nobody starts": (
        change_variable("east-broker-1", "headrace_service_manager", "supervisor"),
        "Host east-broker-1 runs on east-broker-1, which is not in the group supervisor: add it there.",
    ),
    "duplicate broker id": (
        change_variable("east-broker-2", "broker_id", 1),
        "east-broker-1 and east-broker-2 in datacenter east have the same broker_id 1: each needs its own.",
    ),
    "duplicate broker id in quotes": (
        change_variable("east-broker-2", "broker_id", "1"),
        "east-broker-1 and east-broker-2 in datacenter east have the same broker_id 1: each needs its own.",
    ),
    "no broker id": (
        change_variable("east-broker-2", "broker_id", None),
        "Host east-broker-2 has no broker_id: set it in the inventory.",
    ),
    "no address": (
        change_variable("off-load-1", "headrace_address", ""),
        "Host off-load-1 has no headrace_address: set it in the inventory.",
    ),
    "shared address": (
        change_variable("east-broker-2", "headrace_address", "10.1.1.1"),
        "east-broker-1 and east-broker-2 of the group broker have the same headrace_address 10.1.1.1: each needs its own.",
    ),
    "unknown service manager": (
        change_variable("east-broker-2", "headrace_service_manager", "upstart"),
        "headrace_service_manager is 'upstart' on 1 hosts: it must be supervisor or systemd.",
    ),
    "even ensemble": (
        add_zookeeper,
        "Datacenter east has 2 ZooKeeper hosts: an even ensemble survives no more failures than one host fewer, "
        "so use an odd count.",
    ),
    "a blank in a folder": (
        change_variable("east-broker-2", "headrace_data_dir", "/srv/my data"),
        "headrace_data_dir is '/srv/my data': a path with blanks or quotes cannot be rolled out, so use (or move the "
        "checkout to) another.",
    ),
    "no live datacenter": (
        empty_group("live"),
        "The inventory has no live datacenter: put at least one datacenter's group under the group live.",
    ),
    "no offline datacenter": (
        empty_group("offline"),
        "The inventory has no offline datacenter: put one datacenter's group under the group offline.",
    ),
    "two offline datacenters": (
        change_variable("off-load-1", "headrace_datacenter", "off-2"),
        "The inventory has 2 offline datacenters (off, off-2): it must have one.",
    ),
    "live and offline": (
        change_variable("off-load-1", "headrace_datacenter", "east"),
        "Datacenter east is both live and offline: give one of the two another name.",
    ),
    "host in no tier": (
        drop_from_tier,
        "Host east-broker-1 is in neither the group live nor the group offline.",
    ),
    "missing group": (
        empty_group("registry"),
        "The inventory's group registry is missing or empty: every pipeline needs at least one such host.",
    ),
    "datacenter without a registry": (
        lambda inventory: inventory[0]["registry"].remove("east-registry-1"),
        "Datacenter east has no registry host: add one to the group registry.",
    ),
    "load in a live datacenter": (
        move_load,
        "Host east-audit-1 of the group load is not in the offline datacenter.",
    ),
}


def test_a_good_inventory_has_no_problems() -> None:
    assert topology.inventory_problems(*good_inventory()) == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_bad_inventory_gets_its_sentence(name: str) -> None:
    inventory = good_inventory()
    change, sentence = BROKEN[name]
    change(inventory)
    assert sentence in topology.inventory_problems(*inventory)


@pytest.mark.parametrize(
    ("limit", "unknown"),
    [
        ("", []),
        ("broker:&live:!east-broker-1", []),
        ("east-broker-*,broker[0],~east-.*,@retry", []),
        ("east-broker-9", ["east-broker-9"]),
        ("east-broker-1:brokers:&west", ["brokers", "west"]),
    ],
)
def test_a_limit_that_names_nothing_gets_a_sentence(limit: str, unknown: list[str]) -> None:
    assert topology.limit_problems(limit, good_inventory()[0]) == [
        f"--limit names {name}, which is neither a host nor a group of the inventory." for name in unknown
    ]


def test_the_service_groups_may_be_missing_altogether() -> None:
    groups, hostvars = good_inventory()
    del groups["haproxy"], groups["broker"]
    assert any(
        "group broker is missing" in problem for problem in topology.inventory_problems(groups, hostvars)
    )


def test_a_host_stops_what_reads_before_what_is_read() -> None:
    groups, hostvars = good_inventory()
    for group in topology.SERVICE_GROUPS:
        groups[group].append("all-in-one")
    groups["offline"].append("all-in-one")
    hostvars["all-in-one"] = {"headrace_service_prefix": "headrace-", "broker_id": 7, "zookeeper_id": 3}
    assert topology.services("all-in-one", hostvars, groups) == [
        "headrace-load",
        "headrace-auditor",
        "headrace-counter",
        "headrace-registry",
        "headrace-haproxy",
        "headrace-broker-7",
        "headrace-zookeeper-3",
    ]


def test_mirror_properties_name_every_source_and_escape_dots() -> None:
    groups, hostvars = good_inventory()
    brokers = [host for host in groups["broker"] if host in groups["live"]]
    found = topology.mirror_properties(brokers, hostvars, ["pageviews", "headrace.counts"], 9092)
    assert found == {
        "mirror.sources": "east",
        "mirror.east.bootstrap.servers": "10.1.1.1:9092,10.1.2.2:9092",
        "mirror.east.topics": "pageviews|headrace[.]counts",
    }


def test_preflight_ends_with_the_sentence(deployment: Any) -> None:
    deployment.edit("broker_id: 2", "broker_id: 1")
    result = deployment.play("preflight.yml")
    assert result.returncode != 0
    assert (
        "dc-east-broker-1 and dc-east-broker-2 in datacenter dc-east have the same broker_id 1"
        in result.stdout
    )


def test_an_inventory_that_cannot_be_read_is_a_failure(deployment: Any) -> None:
    deployment.edit("    zookeeper:\n", "    zookeeper: [\n")
    for playbook in ("site.yml", "down.yml"):
        result = deployment.play(playbook)
        assert result.returncode != 0, playbook
        assert f"Completely failed to parse inventory source {deployment.inventory}" in result.stderr
    assert not deployment.root.exists()


def test_an_inventory_without_hosts_is_a_failure(deployment: Any) -> None:
    (deployment.inventory / "hosts.yml").write_text("all: {}\n", encoding="utf-8")
    for playbook in ("site.yml", "down.yml"):
        result = deployment.play(playbook)
        assert result.returncode != 0, playbook
        assert "The inventory has no hosts: name one with -i, such as inventory/local." in result.stdout


def test_a_name_in_the_limit_that_the_inventory_lacks_is_a_failure(deployment: Any) -> None:
    result = deployment.play("preflight.yml", "--limit", "dc-east-broker-1,dc-east-broker-9")
    assert result.returncode != 0
    assert "--limit names dc-east-broker-9, which is neither a host nor a group" in result.stdout


def test_preflight_accepts_the_local_inventory(deployment: Any) -> None:
    result = deployment.play("preflight.yml")
    assert result.returncode == 0, result.stdout
    assert not deployment.root.exists()


def test_preflight_names_a_variable_of_the_wrong_type(deployment: Any) -> None:
    deployment.edit("broker_id: 2", "broker_id: two")
    result = deployment.play("preflight.yml")
    assert result.returncode != 0
    assert "argument 'broker_id' is of type str and we were unable to convert to int" in result.stdout


def test_preflight_names_the_service_whose_port_is_taken(deployment: Any) -> None:
    with socket.create_server(("127.76.1.2", 9092)):
        result = deployment.play("preflight.yml")
    assert result.returncode != 0
    assert "dc-east-broker-2 cannot listen at 127.76.1.2:9092: something else listens there." in result.stdout


def test_preflight_names_a_program_that_is_missing() -> None:
    sys.modules["ansible.module_utils.headrace_managers"] = load("module_utils/headrace_managers.py")
    machine = load("library/headrace_machine.py")
    assert machine.missing_executables(["sh"]) == []
    (problem,) = machine.missing_executables(["no-such-program"])
    assert "The program no-such-program is not installed" in problem
    assert "openjdk-17-jre-headless" in machine.install_hint("java")


def test_preflight_refuses_a_folder_too_deep_for_a_socket(deployment: Any) -> None:
    result = deployment.play("preflight.yml", "-e", f"headrace_root=/tmp/{'x' * 100}")
    assert result.returncode != 0
    assert "set headrace_root to a shorter folder" in result.stdout


def test_preflight_refuses_a_folder_with_a_blank(deployment: Any) -> None:
    result = deployment.play("preflight.yml", "-e", json.dumps({"headrace_root": "/tmp/my pipeline"}))
    assert result.returncode != 0
    assert "a path with blanks or quotes cannot be rolled out" in result.stdout


# preflight.yml is a part of site.yml.
@pytest.mark.parametrize("playbook", ["site.yml", "down.yml"])
@pytest.mark.parametrize("inventory", ["local", "example"])
def test_playbooks_are_sound_for_every_inventory(checked_in: Any, playbook: str, inventory: str) -> None:
    result = checked_in(inventory).play(playbook, "--syntax-check")
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_example_inventory_passes_every_check_that_needs_no_host(checked_in: Any) -> None:
    result = checked_in("example").play("preflight.yml", "--tags", "inventory")
    assert result.returncode == 0, result.stdout


def test_every_role_states_its_variables() -> None:
    roles = CHECKOUT / "playbooks" / "roles"
    for role in roles.iterdir():
        assert (role / "meta" / "argument_specs.yml").is_file(), role.name
