"""A second load of the inventory fills a warehouse of its own, and topics are brought into one of all datacenters: the
auditor counts all of it. Whoever asks a service of this pipeline has to log in, and is spoken to by TLS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import headrace
from confluent_kafka import Consumer, TopicPartition
from deployments import CHECKOUT, Deployment, copy_of_local
from processes import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
NETWORK = 74
LIVE = {"dc-east": f"127.{NETWORK}.1", "dc-west": f"127.{NETWORK}.2"}
OFFLINE = f"127.{NETWORK}.3"
EVENTS = 300
SECURITY = (
    "headrace_security: tls_sasl\nheadrace_logins_secret:\n  - {username: kit, password: c4n4ry-of-the-kit}\n"
)
LOAD = f"        offline-load-1: {{headrace_address: {OFFLINE}.14}}\n"


@pytest.fixture
def archived(alone: None, tmp_path: Path) -> Iterator[tuple[Deployment, Path]]:
    """A pipeline with two loads, and the second one's warehouse."""
    deployment = copy_of_local(tmp_path, network=NETWORK)
    archive = deployment.root / "data" / "archive"
    # One machine has both, so their services need names.
    prefix = "headrace_service_prefix: archive-"
    variables = f"{{headrace_address: {OFFLINE}.15, headrace_warehouse: {archive}, {prefix}}}"
    deployment.edit(LOAD, f"{LOAD}        offline-load-2: {variables}\n")
    deployment.edit("        offline-load-1:\n", "        offline-load-1:\n        offline-load-2:\n")
    with (deployment.inventory / "group_vars" / "all.yml").open("a", encoding="utf-8") as file:
        file.write(f"audit_further_warehouses:\n  archive: {{location: {archive}}}\n")
        file.write(f"headrace_aggregate_topics: [pageviews]\n{SECURITY}")
    try:
        for playbook in ("certificates.yml", "site.yml"):
            done = deployment.play(playbook)
            assert done.returncode == 0, done.stdout[-6000:]
        yield deployment, archive
    finally:
        if (deployment.root / "supervisor.sock").exists():
            assert deployment.play("down.yml").returncode == 0


def count_of(deployment: Deployment, topic: str) -> int:
    """How many messages of a topic a reader of the offline cluster finds."""
    client = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(deployment.inventory / "certificates" / "ca.pem"),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "kit",
        "sasl.password": "c4n4ry-of-the-kit",
    }
    consumer = Consumer({"bootstrap.servers": f"{OFFLINE}.1:9094", "group.id": "count", **client})
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        found = [
            consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=20) for each in partitions
        ]
        return sum(last - first for first, last in found)
    finally:
        consumer.close()


def test_what_is_rolled_out_beside_the_copies_is_filled_and_counted(
    archived: tuple[Deployment, Path], tmp_path: Path
) -> None:
    deployment, archive = archived
    # Of whom may ask the live clusters as well, as their copies' commands do.
    log_in = ("--command-config", str(deployment.root / "config" / "offline-broker-1" / "client.secret"))
    for datacenter, network in LIVE.items():
        place = ("--bootstrap", f"{network}.100:9094", "--registry", f"https://{network}.12:8082", *log_in)
        log = ("--log", str(CHECKOUT / "examples" / "access.log"), "--events", str(EVENTS))
        done = headrace("replay", "--datacenter", datacenter, *place, *log)
        assert done.returncode == 0, done.stderr

    data = deployment.root / "data"

    def report() -> dict[str, Any]:
        asked = headrace(
            *("audit", "report", "--json", "--bootstrap", f"{OFFLINE}.1:9094", *log_in),
            *("--warehouse", str(data / "warehouse"), "--further-warehouse", f"archive={archive}"),
            *("--state", str(data / "offline-auditor"), "--output", str(tmp_path / "report")),
        )
        found: dict[str, Any] = json.loads(asked.stdout)
        return found

    eventually(lambda: report()["verdict"] == "complete", timeout_s=240, every_s=3, what="the verdict")
    found = report()
    assert found["totals"]["warehouse"] == EVENTS * len(LIVE)
    (further,) = found["warehouses"]
    assert (further["name"], further["totals"]["warehouse"]) == ("archive", EVENTS * len(LIVE))
    rows = {row["datacenter"]: row for row in found["aggregate_topics"]}
    assert set(rows) == set(LIVE)
    assert {(row["topic"], row["live"], row["aggregate"]) for row in rows.values()} == {
        ("pageviews", EVENTS, EVENTS)
    }
    assert count_of(deployment, "pageviews") == EVENTS * len(LIVE)
    status = headrace("mirror", "status", "--bootstrap", f"{OFFLINE}.1:9094", "--json", *log_in)
    assert {row["source"] for row in json.loads(status.stdout)["aggregates"]} == {
        f"{name}-aggregate" for name in LIVE
    }
    health = deployment.play("health.yml")
    assert health.returncode == 0, health.stdout
    assert "offline-load-2" in health.stdout
