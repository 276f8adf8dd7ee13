"""Which containers, networks and routes the lab makes of an inventory, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import containers, engine
from lab.command import listing
from lab.errors import LabError
from lab.topology import Topology, topology_of

CHECKOUT = Path(__file__).resolve().parents[3]


def small(**changed: dict[str, Any] | None) -> Topology:
    """Two datacenters with a host or two each; a host that is None is left out."""
    hosts: dict[str, dict[str, Any] | None] = {
        "wan": {},
        "a-1": {"headrace_datacenter": "a", "headrace_address": "10.1.1.1"},
        "a-2": {"headrace_datacenter": "a", "headrace_address": "10.1.1.2"},
        "b-1": {"headrace_datacenter": "b", "headrace_address": "10.1.2.1"},
        **{name.replace("_", "-"): variables for name, variables in changed.items()},
    }
    return topology_of(
        {"_meta": {"hostvars": {name: found for name, found in hosts.items() if found is not None}}}
    )


def at(datacenter: str, address: str) -> dict[str, str]:
    return {"headrace_datacenter": datacenter, "headrace_address": address}


def test_a_datacenter_has_a_network_and_wan_is_the_road_between_them() -> None:
    topology = small()
    assert [(str(network.subnet), str(network.gateway)) for network in topology.networks] == [
        ("10.1.1.0/24", "10.1.1.254"),
        ("10.1.2.0/24", "10.1.2.254"),
    ]
    hosts = {host.name: host for host in topology.hosts}
    assert {name: str(leg) for name, leg in hosts["wan"].legs.items()} == {
        "headrace-lab-a": "10.1.1.253",
        "headrace-lab-b": "10.1.2.253",
    }
    assert hosts["wan"].routes == ()
    assert hosts["a-2"].routes == ("10.1.2.0/24 via 10.1.1.253",)
    assert hosts["b-1"].routes == ("10.1.1.0/24 via 10.1.2.253",)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"wan": None}, "no host wan"),
        ({"a_2": at("a", "10.1.3.2")}, "hosts of a are in 10.1.1.0/24 and 10.1.3.0/24"),
        ({"b_1": at("b", "10.1.1.9")}, "Two datacenters have addresses in the same network"),
        ({"a_2": at("a", "10.1.1.253")}, "a-2 has the address 10.1.1.253, which is wan's leg"),
        ({"a_2": at("a", "10.1.1.254")}, "a-2 has the address 10.1.1.254, which is the gateway"),
        ({"a_2": at("a", "10.1.1.1")}, "a-2 has the address 10.1.1.1, which is a-1's too"),
        ({"a_2": at("a", "broker.example.com")}, "a-2 has no IPv4 address"),
    ],
)
def test_an_inventory_that_makes_no_lab_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(LabError, match=said):
        small(**changed)


def test_a_datacenter_that_the_lab_has_not_is_named_with_those_it_has() -> None:
    assert small().network("b").datacenter == "b"
    with pytest.raises(LabError, match="no datacenter c: name one of a, b"):
        small().network("c")


@pytest.mark.parametrize(("inventory", "hosts", "datacenters"), [("docker", 22, 3), ("docker-small", 13, 2)])
def test_the_inventories_of_the_lab_have_the_hosts_that_its_page_says(
    inventory: str, hosts: int, datacenters: int
) -> None:
    topology = topology_of(listing(f"inventory/{inventory}"))
    assert (len(topology.hosts), len(topology.networks)) == (hosts, datacenters)


def test_both_inventories_have_the_same_variables_and_name_the_engines_socket() -> None:
    folders = [CHECKOUT / "inventory" / name / "group_vars" for name in ("docker", "docker-small")]
    assert folders[0].resolve() == folders[1].resolve()
    variables = yaml.safe_load((folders[0] / "all.yml").read_text(encoding="utf-8"))
    assert variables["lab_engine_socket"] == str(engine.SOCKET)


def test_no_host_is_privileged() -> None:
    host = next(host for host in small().hosts if host.name == "a-1")
    arguments = containers.host_arguments(host, containers.FLAGS, "image")
    assert not [argument for argument in arguments if "privileged" in argument]
    assert [arguments[index + 1] for index, argument in enumerate(arguments) if argument == "--cap-add"] == [
        "SYS_ADMIN",
        "NET_ADMIN",
    ]
