"""Two warehouses loaded from one offline cluster: each is counted from its own tables, and a loss names the one that has it."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_world import DATACENTER, HEADRACE, TOPIC, AuditWorld, run_script
from processes import eventually, free_port
from zookeeper_process import ZooKeeperProcess

from headrace.load.tables import load_table, open_catalog


@pytest.fixture
def world(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[AuditWorld]:
    world = AuditWorld(tmp_path, zookeeper)
    yield world
    world.end()


@pytest.mark.acceptance
def test_a_row_that_one_warehouse_lacks_is_its_loss_alone(world: AuditWorld, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    producer = world.publish(200)
    world.count("live")
    world.copy()
    world.count("offline")
    world.load()
    world.load(warehouse=archive)
    load_table(open_catalog(str(archive)), TOPIC).delete("header.sequence = 42")

    run_script("audit_warehouses.sh", world, tmp_path, ARCHIVE=str(archive))
    report = json.loads((tmp_path / "report-of-both" / "report.json").read_text())
    assert report["verdict"] == "loss"
    (found,) = report["findings"]
    assert (found["hop"], found["warehouse"]) == ("offline_to_warehouse", "archive")
    assert (found["producer"], found["server"]) == (producer, "web-1")
    assert (found["first_sequence"], found["last_sequence"]) == (42, 42)
    assert (report["totals"]["warehouse"], report["totals"]["lost"]) == (200, 0)
    (row,) = report["warehouses"]
    assert (row["totals"]["offline"], row["totals"]["warehouse"], row["totals"]["lost"]) == (200, 199, 1)
    latency = row["latency_seconds"]["offline_to_warehouse"]
    assert 0 <= latency["p50"] <= latency["max"]
    # The archive was loaded last, so its rows came later than those of the first warehouse.
    assert latency["max"] > report["latency_seconds"]["offline_to_warehouse"]["max"]
    assert "warehouse archive" in (tmp_path / "report-of-both" / "report.html").read_text()
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["lost"], status["verdict"]) == (1, "loss")
    check_watched(world, archive)


def check_watched(world: AuditWorld, archive: Path) -> None:
    """The auditor serves the loss with the warehouse's name, and keeps a ledger of each from which reports read on."""
    port, folder = free_port(), world.home / "state"
    options = ["--warehouse", str(world.warehouse), "--further-warehouse", f"archive={archive}"]
    options += ["--state", str(folder)]
    command = [
        HEADRACE,
        "audit",
        "watch",
        "--bootstrap",
        world.offline.bootstrap,
        *options,
        "--interval",
        "0.5",
    ]
    auditor = subprocess.Popen([*command, "--metrics-listener", f"127.0.0.1:{port}"])
    labels = f'{{datacenter="{DATACENTER}",topic="{TOPIC}"'

    def metrics() -> str:
        try:
            text: bytes = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read()
        except OSError:
            return ""
        return text.decode()

    try:
        lost = f'headrace_audit_further_lost{labels},warehouse="archive"}} 1.0'
        eventually(lambda: lost in metrics())
        assert f"headrace_audit_open_lost{labels}}} 1.0" in metrics()
        assert f"headrace_audit_warehouse{labels}}} 200.0" in metrics()
    finally:
        auditor.send_signal(signal.SIGTERM)
        assert auditor.wait(60) == 0
    assert (folder / "ledger.json").exists()
    assert (folder / "warehouses" / "archive" / "ledger.json").exists()
    kept = world.report("--state", str(folder), *options[2:4])
    assert [item["warehouse"] for item in kept["findings"]] == ["archive"]
