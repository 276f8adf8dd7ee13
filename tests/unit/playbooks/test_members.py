"""An inventory of a mirror's members: the file of each, and a sentence for what is wrong before any host is touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from inventory_kit import PORTS, UNSECURED, Inventory, good_inventory

from headrace_inventory.addresses import listeners, services
from headrace_inventory.bundles import bundles_of
from headrace_inventory.looks import looks, unasked
from headrace_inventory.members import member_properties
from headrace_inventory.needs import needs
from headrace_inventory.problems import inventory_problems, member_problems
from headrace_inventory.properties import properties_text


def inventory() -> Inventory:
    """Two members on hosts of their own."""
    shared: dict[str, Any] = {
        "headrace_datacenter": "offline",
        "headrace_service_manager": "systemd",
        "headrace_service_prefix": "headrace-",
        "headrace_bin_dir": "/opt/headrace/bin",
        "headrace_config_dir": "/etc/headrace",
        "headrace_data_dir": "/var/lib/headrace",
        "headrace_log_dir": "/var/log/headrace",
        "headrace_user": "headrace",
        "headrace_ports": PORTS,
        **UNSECURED,
        "release_version": "0.1.0",
        "mirror_member_bootstrap_servers": ["b1.offline:9092", "b2.offline:9092"],
        "mirror_member_zookeeper_connect": "z1.offline:2181/kafka",
        "mirror_member_sources": [
            {"name": "dc-east", "bootstrap_servers": ["b1.east:9092"], "properties": {"topics": "clicks"}}
        ],
    }
    hostvars = {
        f"mirror-{number}": shared
        | {"headrace_address": f"10.0.3.{number}", "mirror_member_id": 100 + number}
        for number in (1, 2)
    }
    return {name: list(hostvars) for name in ("all", "mirror_member", "machine", "release")}, hostvars


def change(host: str, name: str, value: Any) -> Callable[[Inventory], None]:
    return lambda inventory: inventory[1][host].__setitem__(name, value)


def change_source(**properties: Any) -> Callable[[Inventory], None]:
    source = {"name": "dc-east", "bootstrap_servers": ["b1.east:9092"], "properties": properties}
    return change("mirror-2", "mirror_member_sources", [source])


BROKEN = {
    "no members": (
        lambda inventory: inventory[0].__setitem__("mirror_member", []),
        "The inventory's group mirror_member is missing or empty: put the hosts there that run members.",
    ),
    "no number": (
        change("mirror-2", "mirror_member_id", None),
        "Host mirror-2 has no mirror_member_id (a number that no broker of the target and no other member has): set it beside "
        "the host, in the inventory's hosts.yml.",
    ),
    "one number twice": (
        change("mirror-2", "mirror_member_id", 101),
        "mirror-1 and mirror-2 have the same mirror_member_id 101: each needs its own.",
    ),
    "a number that is too large": (
        change("mirror-2", "mirror_member_id", 2**31),
        "Host mirror-2 would get a file of which its member says: mirror.member.id=2147483648 is not allowed: give a whole "
        "number up to 2147483647 that no broker of the target and no other member has.",
    ),
    "no port": (
        change("mirror-2", "mirror_member_metrics_port", 0),
        "Host mirror-2 has the mirror_member_metrics_port 0: it must be from 1 to 65535.",
    ),
    "one place for two": (
        change("mirror-2", "headrace_address", "10.0.3.1"),
        "mirror-1 and mirror-2 would both serve metrics at 10.0.3.1:9404: give one of them another headrace_address or "
        "mirror_member_metrics_port.",
    ),
    "a host that nobody looks at": (
        lambda inventory: inventory[0]["machine"].remove("mirror-2"),
        "Host mirror-2 runs on mirror-2, which is not in the group machine: add it there.",
    ),
    "a slip in a source's key": (
        change_source(topic="clicks"),
        "Host mirror-2 would get a file of which its member says: mirror.dc-east.topic=clicks is not allowed: give ",
    ),
    "a line that follows": (
        change("mirror-2", "mirror_member_properties", {"mirror.member.id": 7}),
        "Host mirror-2 has in mirror_member_properties the key mirror.member.id, which follows from mirror_member_id: take it "
        "out there, and change that.",
    ),
    "a source's password in the open": (
        change_source(**{"topics": "clicks", "ssl.key.password": "canary"}),
        "Host mirror-2 has in mirror_member_sources the key ssl.key.password, which everybody may read there: put it into "
        "mirror_member_secret, by the whole name of its line, in a file that ansible-vault encrypts.",
    ),
    "a secret that no member takes": (
        change("mirror-2", "mirror_member_secret", {"broker.password": "canary"}),
        "Host mirror-2 would get a file of which its member says: broker.password=[hidden] is not allowed: give ",
    ),
    "a slip in the group's name": (
        lambda inventory: inventory[0].__setitem__("mirror_members", ["mirror-2"]),
        "The inventory has a group mirror_members, which no play reads: rename it to mirror_member, or to something less alike.",
    ),
}


@pytest.mark.parametrize(("break_it", "sentence"), BROKEN.values(), ids=BROKEN)
def test_what_is_wrong_gets_a_sentence(break_it: Callable[[Inventory], None], sentence: str) -> None:
    broken = inventory()
    break_it(broken)
    found = member_problems(*broken)
    assert [problem for problem in found if problem.startswith(sentence)], found
    assert "canary" not in "".join(found)


def test_good_members_have_no_problems() -> None:
    assert member_problems(*inventory()) == []


def test_members_are_no_pipeline() -> None:
    assert inventory_problems(*inventory()) == [
        "The inventory has members of a mirror alone: roll them out with playbooks/mirror_members.yml, which looks for what they "
        "need first, and with --check changes nothing."
    ]


def test_members_in_a_pipelines_inventory_are_no_datacenter_of_it() -> None:
    groups, hostvars = good_inventory()
    member_groups, members = inventory()
    for name, hosts in member_groups.items():
        groups[name] = [*groups.get(name, []), *hosts]
    assert inventory_problems(groups, {**hostvars, **members}) == []


def test_members_are_looked_at_and_no_cluster_is_missed() -> None:
    groups, hostvars = inventory()
    (look,) = looks(["mirror-1"], hostvars, groups, PORTS)
    assert look["probes"] == [{"kind": "http", "address": "10.0.3.1", "port": 9404, "path": "/metrics"}]
    assert unasked(groups["all"], hostvars, groups) == []


def test_a_members_file_has_its_lines_as_they_are_read() -> None:
    _, hostvars = inventory()
    hostvars["mirror-1"]["mirror_member_properties"] = {"mirror.fetch.wait.max.ms": 100}
    hostvars["mirror-1"]["mirror_member_secret"] = {"ssl.key.password": "a\\b"}
    hostvars["mirror-1"]["mirror_member_metrics_port"] = "9504"
    properties = member_properties("mirror-1", hostvars)
    assert properties == {
        "bootstrap.servers": "b1.offline:9092,b2.offline:9092",
        "zookeeper.connect": "z1.offline:2181/kafka",
        "mirror.member.id": 101,
        "headrace.metrics.listener": "10.0.3.1:9504",
        "mirror.sources": "dc-east",
        "mirror.dc-east.mode": "aggregate",
        "mirror.dc-east.bootstrap.servers": "b1.east:9092",
        "mirror.dc-east.topics": "clicks",
        "mirror.fetch.wait.max.ms": 100,
        "ssl.key.password": "a\\b",
    }
    assert "ssl.key.password=a\\\\b\n" in properties_text(properties)


def test_a_members_machine_is_looked_at_for_what_the_member_needs() -> None:
    groups, hostvars = inventory()
    assert services("mirror-1", hostvars, groups) == ["headrace-mirror-101"]
    assert listeners(["mirror-1"], hostvars, groups, PORTS) == [
        {"service": "headrace-mirror-101", "host": "mirror-1", "address": "10.0.3.1", "port": 9404}
    ]
    assert needs(["mirror-1"], hostvars, groups)["memory_mb"] > 0
    assert needs(["mirror-1"], hostvars, groups)["python"]
    assert bundles_of("mirror-1", hostvars, groups) == ["broker"]
