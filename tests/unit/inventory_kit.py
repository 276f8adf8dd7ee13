"""A small inventory, as Ansible's groups and hostvars: good, and to be broken."""

from __future__ import annotations

from typing import Any

from headrace_inventory.addresses import SERVICE_GROUPS

Inventory = tuple[dict[str, list[str]], dict[str, dict[str, Any]]]
PORTS = {
    "zookeeper": 2181,
    "zookeeper_tls": 2182,
    "zookeeper_peer": 2888,
    "zookeeper_election": 3888,
    "broker": 9092,
    "metrics": 9404,
    "counter_metrics": 9405,
    "auditor_metrics": 9406,
    "haproxy_metrics": 9407,
    "bootstrap": 9092,
    "registry": 8081,
    "registry_tls": 8082,
    "broker_tls": 9093,
    "broker_tls_sasl": 9094,
}
# What group_vars/all.yml makes of an inventory that says nothing of it.
UNSECURED = {
    "headrace_port_endings": {"plaintext": "", "tls": "_tls", "tls_sasl": "_tls_sasl"},
    "headrace_security_open": ["plaintext"],
    "headrace_security_spoken": "plaintext",
    "headrace_broker_probe": "kafka",
    "headrace_broker_port": 9092,
    "headrace_bootstrap_port": 9092,
    "headrace_zookeeper_probe": "zookeeper",
    "headrace_zookeeper_port": 2181,
    "headrace_registry_probe": "http",
    "headrace_registry_port": 8081,
    "headrace_certificates_from": "/nowhere/certificates",
}
# What the kit itself needs in each live datacenter.
OWN_TOPICS = [
    {"name": "_schemas", "partitions": 1, "config": {"cleanup.policy": "compact"}},
    {"name": "headrace.counts", "partitions": 1},
    {"name": "headrace.monitoring", "partitions": 1},
]


def good_inventory() -> Inventory:
    """One live and one offline datacenter with two brokers each."""
    groups: dict[str, list[str]] = {name: [] for name in ("live", "offline", *SERVICE_GROUPS)}
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
                "headrace_bin_dir": "/opt/headrace/bin",
                "headrace_config_dir": "/etc/headrace",
                "headrace_data_dir": "/var/lib/headrace",
                "headrace_log_dir": "/var/log/headrace",
                "headrace_user": "headrace",
                "headrace_warehouse": "/var/lib/headrace/warehouse",
                "release_version": "0.1.0",
                "headrace_service_prefix": "headrace-",
                "headrace_address": f"10.{network}.{len(hostvars)}.{number}",
                "headrace_ports": PORTS,
                **UNSECURED,
                "headrace_live_topics": [{"name": "pageviews", "partitions": 2}, *OWN_TOPICS],
                "headrace_offline_topics": [OWN_TOPICS[0]],
                "headrace_loaded_topics": ["pageviews"],
            }
            if identity:
                hostvars[host][identity] = number
    groups["all"] = list(hostvars)
    groups["machine"] = list(hostvars)
    groups["release"] = list(hostvars)
    return groups, hostvars
