"""What of an inventory Prometheus scrapes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from inventory_kit import PORTS, good_inventory

from headrace_inventory.addresses import OFFLINE_SERVICES, SERVICES
from headrace_inventory.targets import METRICS_PORTS, metrics_pages, scrape_targets

CHECKOUT = Path(__file__).resolve().parents[3]


def test_every_service_but_zookeeper_is_scraped_once() -> None:
    groups, hostvars = good_inventory()
    found = scrape_targets(groups, hostvars, PORTS)
    assert {
        "targets": ["10.9.9.1:9406"],
        "labels": {"job": "auditor", "datacenter": "off", "host": "off-audit-1"},
    } in found
    jobs = [each["labels"]["job"] for each in found]
    assert {job: jobs.count(job) for job in jobs} == {
        "broker": 4,
        "registry": 2,
        "counter": 2,
        "auditor": 1,
        "load": 1,
    }
    assert len({target for each in found for target in each["targets"]}) == len(found)


def test_a_secured_registry_is_scraped_over_https_and_metrics_where_the_host_serves_them() -> None:
    groups, hostvars = good_inventory()
    hostvars["off-registry-1"] |= {"headrace_registry_probe": "https", "headrace_registry_port": 8082}
    hostvars["off-audit-1"]["headrace_metrics_address"] = "192.168.9.1"
    found = {each["labels"]["host"]: each for each in scrape_targets(groups, hostvars, PORTS)}
    address = hostvars["off-registry-1"]["headrace_address"]
    assert found["off-registry-1"]["targets"] == [f"{address}:8082"]
    assert found["off-registry-1"]["labels"]["__scheme__"] == "https"
    assert "__scheme__" not in found["east-registry-1"]["labels"]
    assert found["off-audit-1"]["targets"] == ["192.168.9.1:9405"]
    pages = metrics_pages(["off-registry-1"], hostvars, groups, PORTS)
    assert pages == {"headrace-registry": f"https://{address}:8082/metrics"}


def test_members_of_a_mirror_beside_another_cluster_are_scraped_where_they_serve_metrics() -> None:
    shared: dict[str, Any] = {"headrace_datacenter": "offline", "headrace_address": "10.0.3.21"}
    hostvars = {"mirror-1": shared, "mirror-2": shared | {"mirror_member_metrics_port": 9504}}
    labels = {"job": "mirror", "datacenter": "offline"}
    assert scrape_targets({"mirror_member": list(hostvars)}, hostvars, PORTS) == [
        {"targets": ["10.0.3.21:9404"], "labels": labels | {"host": "mirror-1"}},
        {"targets": ["10.0.3.21:9504"], "labels": labels | {"host": "mirror-2"}},
    ]
    play = yaml.safe_load((CHECKOUT / "playbooks" / "prometheus.yml").read_text(encoding="utf-8"))[1]
    assert "mirror_member" in play["hosts"].split(":")
    jobs = re.findall(
        r'job=~"(.*?)"', (CHECKOUT / "observability" / "alerts.yml").read_text(encoding="utf-8")
    )
    assert jobs
    assert all("mirror" in each.split("|") for each in jobs)


def test_every_kind_of_service_but_zookeeper_has_a_port_for_metrics() -> None:
    kinds = {kind for kinds in (*SERVICES.values(), *OFFLINE_SERVICES.values()) for kind in kinds}
    assert set(METRICS_PORTS) == kinds - {"zookeeper"}
    assert set(METRICS_PORTS.values()) <= set(PORTS)


def test_a_hosts_pages_are_those_that_are_scraped() -> None:
    groups, hostvars = good_inventory()
    pages = metrics_pages(["off-audit-1"], hostvars, groups, PORTS)
    assert pages["headrace-auditor"] == "http://10.9.9.1:9406/metrics"
    scraped = {target for each in scrape_targets(groups, hostvars, PORTS) for target in each["targets"]}
    everywhere = metrics_pages(hostvars, hostvars, groups, PORTS)
    assert {url.removeprefix("http://").removesuffix("/metrics") for url in everywhere.values()} <= scraped
