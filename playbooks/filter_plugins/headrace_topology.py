"""Makes what headrace_inventory knows of an inventory known to Ansible."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Ansible loads this file by itself, without a package around it.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from headrace_inventory import (
    addresses,
    draining,
    looks,
    rolling,
    security,
    upgrading,
    warehouses,
    zookeeper_security,
)
from headrace_inventory.clocks import clock_problems
from headrace_inventory.members import member_properties
from headrace_inventory.needs import needs
from headrace_inventory.problems import inventory_problems, member_problems
from headrace_inventory.properties import properties_text
from headrace_inventory.targets import metrics_pages, scrape_targets
from headrace_views.health import health


class FilterModule:
    """The filters of the plays."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "headrace_addresses": addresses.addresses,
            "headrace_aggregate_sources": addresses.aggregate_sources,
            "headrace_answering": looks.answering,
            "headrace_argument_spec": addresses.argument_spec,
            "headrace_back_order": upgrading.back_order,
            "headrace_beyond": draining.beyond,
            "headrace_broker_properties": security.broker_properties,
            "headrace_broker_secrets": security.broker_secrets,
            "headrace_broker_zookeeper_properties": zookeeper_security.broker_properties,
            "headrace_client_arguments": security.client_arguments,
            "headrace_client_properties": security.client_properties,
            "headrace_clock_problems": clock_problems,
            "headrace_datacenters": addresses.datacenters,
            "headrace_drain_problems": draining.drain_problems,
            "headrace_drained": draining.drained,
            "headrace_drained_looks": looks.drained,
            "headrace_drained_brokers": draining.drained_brokers,
            "headrace_ensemble": draining.ensemble,
            "headrace_due_order": upgrading.due_order,
            "headrace_executables": addresses.executables,
            "headrace_first_to_ask": draining.first_to_ask,
            "headrace_further_arguments": warehouses.further_arguments,
            "headrace_further_files": warehouses.further_files,
            "headrace_further_folders": warehouses.further_folders,
            "headrace_further_secrets": warehouses.further_secrets,
            "headrace_health": health,
            "headrace_in_datacenter": addresses.in_datacenter,
            "headrace_inventory_problems": inventory_problems,
            "headrace_listeners": addresses.listeners,
            "headrace_looked_at": looks.looked_at,
            "headrace_looks": looks.looks,
            "headrace_machine_hosts": addresses.machine_hosts,
            "headrace_machine_services": addresses.machine_services,
            "headrace_member_problems": member_problems,
            "headrace_member_properties": member_properties,
            "headrace_mirror_client": security.mirror_client,
            "headrace_mirror_properties": addresses.mirror_properties,
            "headrace_metrics_pages": metrics_pages,
            "headrace_needs": needs,
            "headrace_program": addresses.program,
            "headrace_one_a_machine": draining.one_a_machine,
            "headrace_properties_text": properties_text,
            "headrace_registry_users": security.registry_users,
            "headrace_release_before": upgrading.release_before,
            "headrace_release_problems": upgrading.release_problems,
            "headrace_released_kinds": upgrading.released_kinds,
            "headrace_restore_problems": draining.restore_problems,
            "headrace_scrape_targets": scrape_targets,
            "headrace_service_datacenters": addresses.service_datacenters,
            "headrace_services": addresses.services,
            "headrace_silent": draining.silent,
            "headrace_turn_order": rolling.turn_order,
            "headrace_went_back": upgrading.went_back,
            "headrace_zookeeper_client_jaas": zookeeper_security.client_jaas,
            "headrace_zookeeper_peer_properties": zookeeper_security.peer_properties,
            "headrace_zookeeper_properties": zookeeper_security.server_properties,
            "headrace_zookeeper_server_jaas": zookeeper_security.server_jaas,
        }
