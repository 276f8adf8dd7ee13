"""A bad inventory gets a sentence that names host and variable and says what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from inventory_kit import OWN_TOPICS, Inventory, good_inventory
from jinja2 import StrictUndefined
from playbooks_kit import PLAYBOOKS

from headrace_inventory.certificates import names_of
from headrace_inventory.problems import inventory_problems, limit_problems
from headrace_inventory.secrets import OPEN, looks_secret
from headrace_inventory.security import PLAIN_MODULE, SCRAM_MODULE


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
    for name in ("all", "live", "zookeeper", "machine", "release"):
        groups[name].append("east-zookeeper-2")
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


def add_group(name: str, *hosts: str) -> Callable[[Inventory], None]:
    def change(inventory: Inventory) -> None:
        inventory[0][name] = list(hosts)

    return change


def change_all(name: str, value: Any) -> Callable[[Inventory], None]:
    def change(inventory: Inventory) -> None:
        for variables in inventory[1].values():
            variables[name] = value

    return change


def live_topic(**topic: Any) -> Callable[[Inventory], None]:
    good = {"name": "pageviews", "partitions": 2}
    return change_all("headrace_live_topics", [good, *OWN_TOPICS, {"partitions": 1, **topic}])


def forget_machine(inventory: Inventory) -> None:
    inventory[0]["machine"].remove("east-broker-1")


BROKEN = {
    "misspelt variable": (
        change_all("headrace_loaded_topic", ["pageviews"]),
        "Host east-zookeeper-1 (with 10 others) has the variable headrace_loaded_topic, which nothing of the kit reads: the "
        "nearest name that is read is headrace_loaded_topics.",
    ),
    "variable like nothing": (
        change_variable("off-load-1", "load_zzzzzzzzzzzzzzzzzzzz", 1),
        "Host off-load-1 has the variable load_zzzzzzzzzzzzzzzzzzzz, which nothing of the kit reads: take it out, or look in "
        "docs/rollout.md for the one that is read.",
    ),
    "variable like one that follows from the inventory": (
        change_variable("off-load-1", "headrace_replicas", 3),
        "Host off-load-1 has the variable headrace_replicas, which nothing of the kit reads: take it out, or look in "
        "docs/rollout.md for the one that is read.",
    ),
    "variable with another prefix": (
        change_variable("off-load-1", "headrace_version", 3),
        "Host off-load-1 has the variable headrace_version, which nothing of the kit reads: the nearest name that is read is "
        "release_version.",
    ),
    "a key of a store in the open": (
        change_variable("off-load-1", "headrace_catalog_properties", {"s3.secret-access-key": "canary"}),
        "Host off-load-1 has in headrace_catalog_properties the key s3.secret-access-key, which everybody may read there: put it "
        "into headrace_catalog_secret, in a file that ansible-vault encrypts.",
    ),
    "a password in an address": (
        change_all("headrace_catalog_properties", {"uri": "postgresql://load:canary@db/lake"}),
        "Host east-zookeeper-1 (with 10 others) has in headrace_catalog_properties an address with a password at uri, which "
        "everybody may read there: put it into headrace_catalog_secret, in a file that ansible-vault encrypts.",
    ),
    "a key in the environment": (
        change_variable("off-load-1", "load_environment", {"AWS_SECRET_ACCESS_KEY": "canary"}),
        "Host off-load-1 has in load_environment the key AWS_SECRET_ACCESS_KEY, which everybody may read there: put it into "
        "headrace_catalog_secret, in a file that ansible-vault encrypts.",
    ),
    "a broker's password": (
        change_variable("east-broker-1", "broker_properties", {"ssl.key.password": "canary"}),
        "Host east-broker-1 has in broker_properties the key ssl.key.password, which everybody may read there: name a "
        "file of the host's that holds it, as ${file:PATH:KEY} does, or take it out.",
    ),
    "a password among Java's options": (
        change_variable("east-zookeeper-1", "zookeeper_java_options", ["-Dssl.keyStore.password=canary"]),
        "Host east-zookeeper-1 has in zookeeper_java_options the key ssl.keyStore.password, which everybody may read there: "
        "name a file of the host's that holds it, as ssl.keyStore.passwordPath does, or take it out.",
    ),
    "metrics of a pipeline with log-ins in clear": (
        change_all("headrace_security_open", ["plaintext", "tls_sasl"]),
        "Host east-zookeeper-1 (with 10 others) serves metrics in clear at its headrace_address: give headrace_metrics_address, "
        "the host's address in a network of monitoring's own, or 127.0.0.1, or its headrace_address where no others reach that.",
    ),
    "misspelt group": (
        add_group("registries", "east-registry-1"),
        "The inventory has a group registries, which no play reads: rename it to registry, or to something less alike.",
    ),
    "no partitions": (
        live_topic(name="clicks", partitions=0),
        "Host east-broker-1 has in headrace_live_topics the topic 'clicks' with 0 partitions: it must have at least 1.",
    ),
    "a topic's odd name": (
        live_topic(name="page views"),
        "Host east-broker-1 has in headrace_live_topics the topic 'page views' whose name Kafka refuses: it must be letters, "
        "digits, dots, underscores and hyphens, 244 at most, and neither '.' nor '..'.",
    ),
    "a topic's name too long for the mirror": (
        live_topic(name="x" * 245),
        f"Host east-broker-1 has in headrace_live_topics the topic '{'x' * 245}' whose name Kafka refuses: it must be letters, "
        "digits, dots, underscores and hyphens, 244 at most, and neither '.' nor '..'.",
    ),
    "a topic twice": (
        live_topic(name="pageviews"),
        "Host east-broker-1 has in headrace_live_topics the topic 'pageviews' 2 times: leave one.",
    ),
    "topics that Kafka does not tell apart": (
        change_all(
            "headrace_offline_topics", [{"name": "a.b", "partitions": 1}, {"name": "a_b", "partitions": 1}]
        ),
        "Host off-broker-1 has in headrace_offline_topics the topics 'a.b' and 'a_b', which Kafka refuses beside each other: "
        "rename one.",
    ),
    "a topic's configuration that no broker takes": (
        live_topic(name="clicks", config={"cleanup.policy": "compct"}),
        "Host east-broker-1 has in headrace_live_topics the topic 'clicks' of whose config a broker says: "
        "cleanup.policy=compct is not allowed: give a comma-separated list, each item one of compact, delete.",
    ),
    "a topic's configuration that nobody knows": (
        live_topic(name="clicks", config={"retention.msec": 1}),
        "Host east-broker-1 has in headrace_live_topics the topic 'clicks' of whose config a broker says: Unknown topic config "
        "name: retention.msec.",
    ),
    "schemas in several partitions": (
        change_all("headrace_offline_topics", [{**OWN_TOPICS[0], "partitions": 3}]),
        "Host off-broker-1 has in headrace_offline_topics the topic '_schemas' with 3 partitions: registries read one alone, so "
        "it must have 1.",
    ),
    "schemas that age": (
        change_all("headrace_offline_topics", [{"name": "_schemas", "partitions": 1}]),
        "Host off-broker-1 has in headrace_offline_topics the topic '_schemas' whose schemas would be deleted as they age: its "
        "config must have cleanup.policy: compact.",
    ),
    "no topic of schemas": (
        change_all("headrace_live_topics", [{"name": "pageviews", "partitions": 2}, *OWN_TOPICS[1:]]),
        "Host east-broker-1 has in headrace_live_topics no topic '_schemas': add it, since without it nothing that is mirrored "
        "can be read.",
    ),
    "a copy that the mirror makes": (
        change_all("headrace_offline_topics", [OWN_TOPICS[0], {"name": "east.pageviews", "partitions": 2}]),
        "Host off-broker-1 has in headrace_offline_topics the topic 'east.pageviews', which is a copy: take it out, since the "
        "mirror makes it.",
    ),
    "a topic with more replicas than brokers": (
        live_topic(name="clicks", replication_factor=3),
        "Host east-broker-1 has in headrace_live_topics the topic 'clicks' with the replication_factor 3, and its datacenter "
        "has 2 brokers: it must be from 1 to 2, or left out.",
    ),
    "an aggregate that looks like a copy": (
        change_variable("off-audit-1", "audit_aggregate_topics", ["clicks", "all.clicks"]),
        "Host off-audit-1 has in audit_aggregate_topics 'all.clicks', and the audit takes a name with a dot for a copy: "
        "name topics without one.",
    ),
    "an aggregate that is brought and looks like a copy": (
        change_variable("off-broker-1", "headrace_aggregate_topics", ["page.views"]),
        "Host off-broker-1 has in headrace_aggregate_topics 'page.views', and the audit takes a name with a dot for a copy: "
        "name topics without one.",
    ),
    "an aggregate of a topic that nobody has": (
        change_variable("off-broker-1", "headrace_aggregate_topics", ["pageviews", "clicks"]),
        "Host off-broker-1 has in headrace_aggregate_topics the topic 'clicks', which is in no live datacenter's "
        "headrace_live_topics (_schemas, headrace.counts, headrace.monitoring, pageviews): add it there, or take it out "
        "here.",
    ),
    "a loaded topic that nobody has": (
        change_all("headrace_loaded_topics", ["pageview"]),
        "Host off-load-1 has in headrace_loaded_topics the topic 'pageview', which is in no live datacenter's "
        "headrace_live_topics (_schemas, headrace.counts, headrace.monitoring, pageviews): add it there, or take it out "
        "here.",
    ),
    "nothing to load": (
        change_variable("off-load-1", "headrace_loaded_topics", []),
        "Host off-load-1 has no topic in headrace_loaded_topics: name one of headrace_live_topics at least.",
    ),
    "more replicas in sync than brokers": (
        change_variable("off-broker-2", "broker_properties", {"min.insync.replicas": 3}),
        "broker_properties of datacenter off say min.insync.replicas 3, and it has 2 brokers: say less, or leave it out.",
    ),
    "a value that no broker takes": (
        change_all("broker_properties", {"num.partitions": "many", "unclean.leader.election.enable": False}),
        "Host east-broker-1 has broker_properties of which a broker says: num.partitions=many is not allowed: give a whole "
        "number from 1 to 2147483647.",
    ),
    "a key that no broker knows": (
        change_variable("off-broker-1", "broker_properties", {"log.retention.hour": 1}),
        "Host off-broker-1 has broker_properties of which a broker says: log.retention.hour is no key that headrace or Apache "
        "Kafka knows: the nearest is log.retention.hours.",
    ),
    "two services at one place": (
        change_variable("off-load-1", "headrace_address", "10.9.6.1"),
        "the broker of off-broker-1 and the load of off-load-1 would both listen at 10.9.6.1:9404: give one of them another "
        "host or headrace_address.",
    ),
    "a datacenter's odd name": (
        lambda inventory: [
            inventory[1][host].update(headrace_datacenter="east/1") for host in inventory[0]["live"]
        ],
        "Host east-zookeeper-1 has the headrace_datacenter 'east/1', which cannot begin topics' names and files' names: name it "
        "with lower-case letters, digits and hyphens, beginning with a letter and ending with a letter or digit.",
    ),
    "a negative id": (
        change_variable("east-broker-2", "broker_id", -2),
        "Host east-broker-2 has the broker_id -2: it must be a whole number from 0 to 2147483647.",
    ),
    "a ZooKeeper without a number": (
        change_variable("east-zookeeper-1", "zookeeper_id", "0"),
        "Host east-zookeeper-1 has the zookeeper_id 0: it must be a whole number from 1 to 255.",
    ),
    "an unknown engine": (
        change_variable("east-broker-2", "broker_engine", "redpanda"),
        "Host east-broker-2 has the broker_engine 'redpanda': it must be headrace.",
    ),
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
    "host that gets no release": (
        lambda inventory: inventory[0]["release"].remove("east-broker-1"),
        "Host east-broker-1 runs on east-broker-1, which is not in the group release: add it there.",
    ),
    "no heap": (
        change_all("zookeeper_heap_mb", "0"),
        "Host east-zookeeper-1 has the zookeeper_heap_mb 0: it must be at least 1.",
    ),
    "one number for all brokers": (
        change_all("broker_properties", {"broker.id": 7}),
        "Host east-zookeeper-1 has in broker_properties the key broker.id, which follows from broker_id: take it out there, and "
        "change that.",
    ),
    "another port for a broker": (
        change_variable("east-broker-2", "broker_properties", {"listeners": "PLAINTEXT://10.1.2.2:9192"}),
        "Host east-broker-2 has in broker_properties the listeners PLAINTEXT://10.1.2.2:9192, without 10.1.2.2:9092 at which "
        "the pipeline asks its broker: add 10.1.2.2:9092, or take them out.",
    ),
    "one folder for all ZooKeepers": (
        change_variable("east-zookeeper-1", "zookeeper_properties", {"dataDir": "/srv"}),
        "Host east-zookeeper-1 has in zookeeper_properties the key dataDir, which follows from headrace_data_dir: take it out "
        "there, and change that.",
    ),
    "a slip in a key of ZooKeeper's": (
        change_all(
            "zookeeper_properties", {"tickTimes": 3000, "server.9": "10.0.0.9:2888:3888", "snapCount": 9}
        ),
        "Host east-zookeeper-1 has in zookeeper_properties the key tickTimes, which ZooKeeper does not read there: the nearest "
        "that it reads is tickTime.",
    ),
    "a property of Java's in ZooKeeper's file": (
        change_variable("off-zookeeper-1", "zookeeper_properties", {"jute.maxbuffer": 4_000_000}),
        "Host off-zookeeper-1 has in zookeeper_properties the key jute.maxbuffer, which ZooKeeper does not read there: take it "
        "out, or give what is a property of Java's as -Djute.maxbuffer=VALUE in zookeeper_java_options.",
    ),
    "a mode that no audit has": (
        change_variable("off-audit-1", "audit_modes", [{"topics": "clicks", "mode": "event"}]),
        "Host off-audit-1 has in audit_modes entry 1 {'topics': 'clicks', 'mode': 'event'}: its mode must be events "
        "or headers or off.",
    ),
    "a mode's topics that are no expression": (
        change_variable("off-audit-1", "audit_modes", [{"topics": "a(", "mode": "off"}]),
        "Host off-audit-1 has in audit_modes the topics 'a(', which is no regular expression: missing ), unterminated subpattern "
        "at position 1.",
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
        "Host east-broker-2 has no broker_id (the broker's number in its datacenter's cluster): set it beside the host, in the "
        "inventory's hosts.yml.",
    ),
    "no address": (
        change_variable("off-load-1", "headrace_address", ""),
        "Host off-load-1 has no headrace_address (the address that its metrics and its probes are served at): set it beside "
        "the host, in the inventory's hosts.yml.",
    ),
    "no release's version": (
        change_all("release_version", None),
        "Host east-zookeeper-1 (with 10 others) has no release_version (the version of headrace to run): set it in the "
        "inventory's group_vars/all.yml.",
    ),
    "no warehouse": (
        change_all("headrace_warehouse", ""),
        "Hosts off-load-1, east-audit-1 and off-audit-1 have no headrace_warehouse (where the tables are): set it in the "
        "inventory's group_vars/all.yml.",
    ),
    "a heap in words": (
        change_variable("east-zookeeper-1", "zookeeper_heap_mb", "lots"),
        "Host east-zookeeper-1 has the zookeeper_heap_mb 'lots': it must be a whole number.",
    ),
    "a list in words": (
        change_variable("off-load-1", "headrace_loaded_topics", "pageviews"),
        "Host off-load-1 has the headrace_loaded_topics 'pageviews': it must be a list.",
    ),
    "a secret that is a text": (
        change_variable("off-load-1", "headrace_catalog_secret", "canary"),
        "Host off-load-1 has the headrace_catalog_secret: it must be a dictionary.",
    ),
    "an empty dictionary": (
        change_variable("east-broker-1", "broker_properties", None),
        "Host east-broker-1 has an empty broker_properties: give it a value, or take it out.",
    ),
    "a log-in without a username": (
        change_variable("east-broker-1", "headrace_logins_secret", [{"user": "kit", "password": "canary"}]),
        "Host east-broker-1 has in headrace_logins_secret entry 1: it must have username.",
    ),
    "a log-in that is a text": (
        change_variable("off-registry-1", "registry_users_secret", ["canary"]),
        "Host off-registry-1 has in registry_users_secret entry 1: it must be a dictionary.",
    ),
    "a topic without a name": (
        change_variable("east-broker-1", "headrace_live_topics", [{"partitions": 2}]),
        "Host east-broker-1 has in headrace_live_topics entry 1 {'partitions': 2}: it must have name.",
    ),
    "a topic with partitions in words": (
        change_variable("east-broker-1", "headrace_live_topics", [{"name": "a", "partitions": "two"}]),
        "Host east-broker-1 has in headrace_live_topics entry 1 {'name': 'a', 'partitions': 'two'}: its partitions must be a "
        "whole number.",
    ),
    "a topic with what no topic has": (
        change_variable(
            "east-broker-1", "headrace_live_topics", [{"name": "a", "partitions": 2, "parts": 1}]
        ),
        "Host east-broker-1 has in headrace_live_topics entry 1 {'name': 'a', 'partitions': 2, 'parts': 1}: parts is none of "
        "name, partitions, replication_factor, config.",
    ),
    "shared address": (
        change_variable("east-broker-2", "headrace_address", "10.1.1.1"),
        "east-broker-1 and east-broker-2 of the group broker have the same headrace_address 10.1.1.1: each needs its own.",
    ),
    "unknown service manager": (
        change_variable("east-broker-2", "headrace_service_manager", "upstart"),
        "Host east-broker-2 has the headrace_service_manager 'upstart': it must be supervisor or systemd.",
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
    "an IPv6 address": (
        change_variable("east-broker-2", "headrace_address", "fd00::1"),
        "Host east-broker-2 has the headrace_address 'fd00::1': it must be the IPv4 address, or a name, of that host alone, "
        "without a port.",
    ),
    "an address with its network": (
        change_variable("off-load-1", "headrace_address", "10.9.1.14/24"),
        "Host off-load-1 has the headrace_address '10.9.1.14/24': it must be the IPv4 address, or a name, of that host alone, "
        "without a port.",
    ),
    "an address that is a number": (
        change_variable("off-load-1", "headrace_address", 10.9),
        "Host off-load-1 has the headrace_address 10.9: it must be the IPv4 address, or a name, of that host alone, without a "
        "port.",
    ),
    "metrics at every address": (
        change_variable("off-load-1", "headrace_metrics_address", "0.0.0.0"),
        "Host off-load-1 has the headrace_metrics_address '0.0.0.0': it must be the IPv4 address, or a name, of that host alone, "
        "without a port.",
    ),
    "a load balancer without its port": (
        change_variable("east-broker-1", "headrace_publish_address", "publish.example.com"),
        "Datacenter east has the headrace_publish_address 'publish.example.com': it must be HOST:PORT of its load balancer.",
    ),
    "a folder somewhere": (
        change_variable("east-broker-2", "headrace_data_dir", "data"),
        "headrace_data_dir is 'data': it must begin with /, or be the address of an object store, such as s3://BUCKET/FOLDER, "
        "for tables.",
    ),
    "a store's address with too few slashes": (
        change_variable("off-load-1", "headrace_warehouse", "s3:/lake"),
        "headrace_warehouse is 's3:/lake': it must begin with /, or be the address of an object store, such as "
        "s3://BUCKET/FOLDER, for tables.",
    ),
    "services of root's": (
        change_variable("east-broker-2", "headrace_user", "root"),
        "Host east-broker-2 has the headrace_user 'root': it must be a user of the services' own, with a name of lower-case "
        "letters, digits, _ and -, and not root.",
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
        "Datacenter east has no registry host: add one to the group registry, such as east-registry-1, which is in no group of "
        "services.",
    ),
    "load in a live datacenter": (
        move_load,
        "Host east-audit-1 of the group load is not in the offline datacenter.",
    ),
}


def test_a_good_inventory_has_no_problems() -> None:
    assert inventory_problems(*good_inventory()) == []


def test_the_offline_datacenter_may_have_a_bootstrap_address_of_its_own() -> None:
    groups, hostvars = good_inventory()
    hostvars["off-haproxy-1"] = {**hostvars["off-registry-1"], "headrace_address": "10.9.99.1"}
    for group in ("all", "offline", "haproxy", "machine", "release"):
        groups[group].append("off-haproxy-1")
    assert inventory_problems(groups, hostvars) == []
    assert "10.9.99.1" in names_of("off-broker-1", groups, hostvars)
    assert "10.9.99.1" not in names_of("east-broker-1", groups, hostvars)


@pytest.mark.parametrize("name", BROKEN)
def test_a_bad_inventory_gets_its_sentence(name: str) -> None:
    inventory = good_inventory()
    change, sentence = BROKEN[name]
    change(inventory)
    assert sentence in inventory_problems(*inventory)


@pytest.mark.parametrize("place", ["10.1.1.1:9092", ":9092", "0.0.0.0:9092"])
def test_a_broker_may_have_further_listeners(place: str) -> None:
    groups, hostvars = good_inventory()
    listeners = f"PLAINTEXT://{place}, EXTERNAL://10.1.1.1:9192"
    protocols = "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT"
    hostvars["east-broker-1"]["broker_properties"] = {
        "listeners": listeners,
        "listener.security.protocol.map": protocols,
        "advertised.listeners": "PLAINTEXT://10.1.1.1:9092,EXTERNAL://10.1.1.1:9192",
    }
    assert inventory_problems(groups, hostvars) == []


@pytest.mark.parametrize("address", ["10.1.1.1", "broker-1.east.example.com", "localhost", "broker_1"])
def test_an_address_may_be_a_name(address: str) -> None:
    groups, hostvars = good_inventory()
    hostvars["east-broker-1"]["headrace_address"] = address
    hostvars["east-broker-1"]["headrace_publish_address"] = f"{address}:9094"
    assert inventory_problems(groups, hostvars) == []


def test_a_secret_in_the_open_is_quoted_by_no_sentence() -> None:
    for change, sentence in BROKEN.values():
        inventory = good_inventory()
        change(inventory)
        if "may read there" in sentence or "_secret" in sentence:
            assert "canary" not in "".join(inventory_problems(*inventory))


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "glue", "glue.region": "eu-west-1", "s3.endpoint": "http://store:9000"},
        {"oauth2-server-uri": "https://issuer/token", "s3.secret-access-key": None},
        {"AWS_WEB_IDENTITY_TOKEN_FILE": "/run/token", "ssl.keyStore.passwordPath": "/etc/zookeeper/password"},
        {"num.partitions": 4, "replica.fetch.key": "a", "log.cleaner.enable": True},
        {"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;"},
        {
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="ada" password="${{file:/etc/headrace/a:b}}";'
        },
        {"sasl.jaas.config": "${file:/etc/headrace/a.secret:client}"},
    ],
)
def test_what_only_says_where_a_secret_is_is_none(properties: dict[str, Any]) -> None:
    assert list(looks_secret(properties)) == []


@pytest.mark.parametrize(
    "login", ['username="ada" password="canary";', "user_ada = 'canary';", 'user_a.b-c="canary";']
)
def test_a_log_in_with_its_password_is_found(login: str) -> None:
    key = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    assert list(looks_secret({key: f"{PLAIN_MODULE} required {login}"})) == [
        f"a log-in with a password at {key}"
    ]


def test_every_variable_that_takes_keys_of_any_name_is_looked_at() -> None:
    """Roles' options that are dictionaries, but for those that roles give each other."""
    free = {
        name
        for file in PLAYBOOKS.glob("roles/*/meta/argument_specs.yml")
        for spec in yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"].values()
        for name, option in spec["options"].items()
        if option["type"] == "dict" and not name.endswith("_secret") and not name.startswith("service_")
    }
    assert free <= set(OPEN)


def test_groups_that_are_only_a_little_alike_and_datacenters_own_are_anybodys() -> None:
    groups, hostvars = good_inventory()
    groups |= {"online": ["east-broker-1"], "live2": list(groups["live"]), "rack_a": ["east-broker-1"]}
    assert inventory_problems(groups, hostvars) == []


def test_what_does_not_hang_together_is_told_at_once() -> None:
    inventory = good_inventory()
    for name in ("misspelt variable", "misspelt group", "no partitions", "a negative id", "even ensemble"):
        BROKEN[name][0](inventory)
    assert len(inventory_problems(*inventory)) == 5


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
    assert limit_problems(limit, good_inventory()[0]) == [
        f"--limit names {name}, which is neither a host nor a group of the inventory." for name in unknown
    ]


def test_a_datacenter_is_not_named_as_a_source_of_an_aggregate() -> None:
    groups, hostvars = good_inventory()
    for host, variables in hostvars.items():
        if host in groups["live"]:
            variables["headrace_datacenter"] = "east-aggregate"
    assert inventory_problems(groups, hostvars) == []
    hostvars["off-broker-1"]["headrace_aggregate_topics"] = ["pageviews"]
    assert inventory_problems(groups, hostvars) == [
        "The live datacenter east-aggregate is named as the source east is where headrace_aggregate_topics names topics: give "
        "it a name with another ending."
    ]


def test_the_service_groups_may_be_missing_altogether() -> None:
    groups, hostvars = good_inventory()
    del groups["haproxy"], groups["broker"]
    assert any("group broker is missing" in problem for problem in inventory_problems(groups, hostvars))


def test_what_is_made_of_a_variable_that_is_not_set_is_told_with_it_alone() -> None:
    groups, hostvars = good_inventory()
    for variables in hostvars.values():
        del variables["release_version"]
        variables["headrace_bin_dir"] = StrictUndefined(name="release_version")
    (problem,) = inventory_problems(groups, hostvars)
    assert "no release_version" in problem
    for variables in hostvars.values():
        variables |= {"release_version": "1", "headrace_bin_dir": StrictUndefined(name="home")}
    (problem,) = inventory_problems(groups, hostvars)
    assert (
        "has a headrace_bin_dir (the release's programs) of which 'home' is undefined: set that in" in problem
    )


def test_a_host_that_its_datacenter_lacks_is_told_once() -> None:
    groups, hostvars = good_inventory()
    groups["registry"].remove("off-registry-1")
    assert inventory_problems(groups, hostvars) == [
        "Datacenter off has no registry host: add one to the group registry, such as off-registry-1, which is in no group of "
        "services."
    ]


def test_numbers_and_truths_may_be_texts_as_on_a_command_line() -> None:
    groups, hostvars = good_inventory()
    for variables in hostvars.values():
        variables |= {"zookeeper_heap_mb": "512", "machine_packages": "no", "gate_latency_factor": "2.5"}
    assert inventory_problems(groups, hostvars) == []


def test_a_broker_s_password_may_stand_in_a_file() -> None:
    groups, hostvars = good_inventory()
    hostvars["east-broker-1"]["broker_properties"] = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "ssl.key.password": "${file:/etc/headrace/x.secret:key}",
    }
    assert inventory_problems(groups, hostvars) == []
