"""Where an inventory's services are, and in which order they stop."""

from __future__ import annotations

import yaml
from inventory_kit import PORTS, good_inventory
from playbooks_kit import PLAYBOOKS

from headrace_inventory.addresses import SERVICE_GROUPS, SERVICES, listeners, mirror_properties, services


def test_a_host_stops_what_reads_before_what_is_read() -> None:
    groups, hostvars = good_inventory()
    for group in SERVICE_GROUPS:
        groups[group].append("all-in-one")
    groups["offline"].append("all-in-one")
    hostvars["all-in-one"] = {"headrace_service_prefix": "headrace-", "broker_id": 7, "zookeeper_id": 3}
    assert services("all-in-one", hostvars, groups) == [
        "headrace-load",
        "headrace-auditor",
        "headrace-counter",
        "headrace-registry",
        "headrace-haproxy",
        "headrace-broker-7",
        "headrace-zookeeper-3",
    ]


def test_down_stops_every_kind_of_service() -> None:
    plays = yaml.safe_load((PLAYBOOKS / "down.yml").read_text(encoding="utf-8"))
    stopped = {group for play in plays[1:] for group in play["hosts"].split(":")}
    assert set(SERVICES) <= stopped


def test_mirror_properties_name_every_source_and_escape_dots() -> None:
    groups, hostvars = good_inventory()
    brokers = [host for host in groups["broker"] if host in groups["live"]]
    found = mirror_properties(brokers, hostvars, ["pageviews", "headrace.counts"], 9092)
    assert found == {
        "mirror.sources": "east",
        "mirror.east.bootstrap.servers": "10.1.1.1:9092,10.1.2.2:9092",
        "mirror.east.topics": "pageviews|headrace[.]counts",
    }


def test_topics_of_all_datacenters_have_a_source_for_each_beside_the_copies() -> None:
    groups, hostvars = good_inventory()
    brokers = [host for host in groups["broker"] if host in groups["live"]]
    own = {"security.protocol": "SSL"}
    assert mirror_properties(brokers, hostvars, ["pageviews", "clicks"], 9093, own, ["clicks", "views"]) == {
        "mirror.sources": "east,east-aggregate",
        "mirror.east.bootstrap.servers": "10.1.1.1:9093,10.1.2.2:9093",
        "mirror.east.topics": "pageviews|clicks",
        "mirror.east.security.protocol": "SSL",
        "mirror.east-aggregate.bootstrap.servers": "10.1.1.1:9093,10.1.2.2:9093",
        "mirror.east-aggregate.topics": "clicks|views",
        "mirror.east-aggregate.mode": "aggregate",
        "mirror.east-aggregate.security.protocol": "SSL",
    }


def test_counters_and_the_auditor_listen_beside_each_other() -> None:
    groups, hostvars = good_inventory()
    found = listeners(groups["audit"], hostvars, groups, PORTS)
    assert [(item["service"], item["address"], item["port"]) for item in found] == [
        ("headrace-counter", "10.1.4.1", 9405),
        ("headrace-auditor", "10.9.9.1", 9406),
        ("headrace-counter", "10.9.9.1", 9405),
    ]
