"""The whole demo on a log with broken, foreign and very long lines, while parts of the pipeline are killed."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from demo_process import DATACENTERS, DemoProcess, processes

EVENTS = 3_000
NETWORK = 79
REJECTED = 6
TIERS = ("produced", "live", "offline", "warehouse")
HOPS = ("producer_to_live", "live_to_offline", "offline_to_warehouse", "end_to_end")
LATENCY_SECONDS_MAX = 120

pytestmark = pytest.mark.timeout(420)


def line(path: bytes, end: bytes = b"\n") -> bytes:
    return b'10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET ' + path + b' HTTP/1.1" 200 5 "-" "agent"' + end


GOOD_LINES = (
    *(line(b"/page/%d" % number) for number in range(50)),
    line("/näyttö/日本/\N{ROCKET}".encode()),
    line(b"/not-utf-8/\xff\xfe\x80"),
    line(b"/windows", b"\r\n"),
    line(b"/long/" + b"x" * 100 * 1024),
)
BROKEN_LINES = (
    b"\n",
    b"half a line [17/May\n",
    b"\xff\xfe\x00\n",
    "σπασμένη γραμμή\r\n".encode(),
    line(b"/too/long/" + b"y" * 5 * 1024 * 1024),
    b"the last one has no end",
)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    log = tmp_path / "access.log"
    log.write_bytes(b"".join(GOOD_LINES) + b"".join(BROKEN_LINES))
    return {"ACCESS_LOG": str(log), "DEMO_EVENTS": str(EVENTS), "DEMO_RATE": "200", "DEMO_KEEP": ""}


def assert_everything_is_there(report: dict[str, Any]) -> None:
    assert report["verdict"] == "complete"
    assert report["complete_until"].endswith("Z")
    totals = report["totals"]
    assert {tier: totals[tier] for tier in TIERS} == dict.fromkeys(TIERS, EVENTS * len(DATACENTERS))
    assert (totals["lost"], totals["duplicated"]) == (0, 0)
    assert totals["rejected"] == REJECTED * len(DATACENTERS)
    rows = {(row["datacenter"], row["topic"]): row for row in report["topics"]}
    assert set(rows) == {(datacenter, "pageviews") for datacenter in DATACENTERS}
    for row in rows.values():
        assert {tier: row[tier] for tier in TIERS} == dict.fromkeys(TIERS, EVENTS)
        assert (row["lost"], row["duplicated"]) == (0, 0)
    assert not [finding for finding in report["findings"] if finding["kind"] != "late"]
    assert report["incomplete"] == []


def assert_latencies_make_sense(latencies: dict[str, dict[str, float]]) -> None:
    assert tuple(latencies) == HOPS
    for latency in latencies.values():
        assert 0 <= latency["mean"] <= latency["max"] <= LATENCY_SECONDS_MAX
        assert all(
            low <= high for low, high in pairwise((0.0, latency["p50"], latency["p99"], latency["max"]))
        )
    assert latencies["end_to_end"]["mean"] >= latencies["producer_to_live"]["mean"]


def test_a_demo_ends_complete_though_a_broker_and_the_load_are_killed(
    alone: None, tmp_path: Path, environment: dict[str, str]
) -> None:
    with DemoProcess(tmp_path, network=NETWORK, environment=environment) as demo:
        demo.wait_until_published(0.2)
        started = processes(demo.root)
        killed = {service: demo.kill(service) for service in ("dc-east-broker-1", "offline-load")}
        for service, pid in killed.items():
            assert demo.is_back(service, pid), service
        code = demo.wait()
        report = demo.report()

    assert code == 0, demo.text()
    assert_everything_is_there(report)
    assert_latencies_make_sense(report["latency_seconds"])
    assert "Verdict: complete" in demo.text()
    assert "<html" in (demo.output / "report.html").read_text(encoding="utf-8")[:500]
    assert not (demo.root / "supervisor.sock").exists()
    assert not [name for name, pid in started.items() if Path(f"/proc/{pid}").exists()]


@pytest.mark.long
def test_a_killed_replay_leaves_the_demo_incomplete_and_is_named(
    alone: None, tmp_path: Path, environment: dict[str, str]
) -> None:
    with DemoProcess(tmp_path, network=NETWORK, environment=environment) as demo:
        demo.wait_until_published(0.5)
        os.kill(demo.replay_pid("dc-west"), signal.SIGKILL)
        code = demo.wait()
        report = demo.report()

    assert code == 1, demo.text()
    assert report["verdict"] == "incomplete"
    assert report["findings"] == [] or {item["kind"] for item in report["findings"]} == {"late"}
    named = {(item["datacenter"], item["producer"]) for item in report["incomplete"] if item["producer"]}
    assert {datacenter for datacenter, _ in named} == {"dc-west"}
    assert len(named) == 1
    ((_, producer),) = named
    assert f"producer {producer}" in demo.text()
    assert "Verdict: incomplete" in demo.text()
    assert "dc-west  killed by SIGKILL" in demo.text()
    rows = {row["datacenter"]: row for row in report["topics"]}
    assert {tier: rows["dc-east"][tier] for tier in TIERS} == dict.fromkeys(TIERS, EVENTS)
    assert 0 < rows["dc-west"]["warehouse"] < EVENTS
    assert not (demo.root / "supervisor.sock").exists()
