"""The keys of zoo.cfg that preflight lets through are those that ZooKeeper's own classes name, and all that roles write."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from inventory_kit import Inventory, good_inventory

from headrace_inventory.problems import inventory_problems
from headrace_inventory.zookeeper_properties import OF_THE_FILE, OF_THE_SERVER, OF_TLS, PROMETHEUS, is_known
from headrace_inventory.zookeeper_security import server_properties


@pytest.fixture(scope="module")
def named() -> bytes:
    """All classes of the ZooKeeper that PySpark comes with, one after the other: constants are in them as they are written."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    (jar,) = Path(spec.origin).parent.glob("jars/zookeeper-3*.jar")
    with zipfile.ZipFile(jar) as classes:
        return b"\0".join(classes.read(name) for name in classes.namelist() if name.endswith(".class"))


def constant(text: str) -> bytes:
    """As a class file has it: a tag, the length and the text."""
    return b"\1" + len(text).to_bytes(2, "big") + text.encode()


def test_zookeepers_classes_have_every_key_that_is_known(named: bytes) -> None:
    wanted = [*OF_THE_FILE, *(f"zookeeper.{key}" for key in OF_THE_SERVER), *OF_TLS]
    assert [text for text in wanted if constant(text) not in named] == []


def test_what_the_role_writes_is_known() -> None:
    logins = [{"username": "kit-1", "password": "a password of kit-1"}]
    for opened in (["plaintext"], ["plaintext", "tls_sasl"], ["tls_sasl"]):
        assert all(map(is_known, server_properties(opened, logins, "10.0.0.1", 2181, 2182, "/etc/headrace")))


def test_a_key_with_javas_prefix_is_none_of_the_files() -> None:
    assert is_known("snapCount")
    assert not is_known("zookeeper.snapCount")


def ensemble() -> Inventory:
    """Three ZooKeepers in the live datacenter."""
    groups, hostvars = good_inventory()
    first = "east-zookeeper-1"
    for number in (2, 3):
        host = f"east-zookeeper-{number}"
        hostvars[host] = hostvars[first] | {"headrace_address": f"10.1.20.{number}", "zookeeper_id": number}
        for name in ("live", "zookeeper", "all", "machine", "release"):
            groups[name].append(host)
    return groups, hostvars


@pytest.mark.parametrize("key", ["server.2", "server.02"])
def test_a_member_that_the_role_writes_is_not_given_again(key: str) -> None:
    groups, hostvars = ensemble()
    for host in ("east-zookeeper-1", "east-zookeeper-3"):
        hostvars[host]["zookeeper_properties"] = {
            key: "10.1.20.9:2888:3888",
            "server.9": "10.0.0.9:2888:3888",
        }
    assert inventory_problems(groups, hostvars) == [
        f"Host east-zookeeper-1 has in zookeeper_properties the key {key}, which follows from zookeeper_id and headrace_address "
        "of east-zookeeper-2: take it out there, and change these."
    ]


def test_a_lone_zookeeper_may_name_itself() -> None:
    groups, hostvars = good_inventory()
    hostvars["east-zookeeper-1"]["zookeeper_properties"] = {"server.1": "10.1.0.1:2888:3888"}
    assert inventory_problems(groups, hostvars) == []


@pytest.mark.parametrize(
    ("properties", "key", "advice"),
    [
        (
            {"metricsProvider.httpPort": 7000},
            "metricsProvider.httpPort",
            f"{PROMETHEUS} does, as metricsProvider.className",
        ),
        (
            {"metricsProvider.className": PROMETHEUS, "metricsProvider.httpprt": 7000},
            "metricsProvider.httpprt",
            "the nearest that it reads is metricsProvider.httpPort",
        ),
        (
            {"metricsProvider.com.example.color": "red"},
            "metricsProvider.com.example.color",
            "take it out, or have metricsProvider.className name who reads it",
        ),
    ],
    ids=["nobody's", "misspelt", "odd"],
)
def test_what_no_provider_of_metrics_reads_is_told(
    properties: dict[str, object], key: str, advice: str
) -> None:
    groups, hostvars = good_inventory()
    for variables in hostvars.values():
        variables |= {"zookeeper_properties": properties, "zookeeper_jars_dir": "/srv/zookeeper"}
    assert inventory_problems(groups, hostvars) == [
        f"Host east-zookeeper-1 has in zookeeper_properties the key {key}, which ZooKeeper does not read there: {advice}."
    ]


def test_a_provider_of_your_own_reads_what_it_likes() -> None:
    groups, hostvars = good_inventory()
    hostvars["east-zookeeper-1"] |= {
        "zookeeper_properties": {
            "metricsProvider.className": "com.example.Metrics",
            "metricsProvider.com.example.color": "red",
        },
        "zookeeper_jars_dir": "/srv/zookeeper",
    }
    assert inventory_problems(groups, hostvars) == []
