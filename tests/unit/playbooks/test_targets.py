"""What of an inventory Prometheus scrapes."""

from __future__ import annotations

from inventory_kit import PORTS, good_inventory

from headrace_inventory.addresses import OFFLINE_SERVICES, SERVICES
from headrace_inventory.targets import METRICS_PORTS, metrics_pages, scrape_targets


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
