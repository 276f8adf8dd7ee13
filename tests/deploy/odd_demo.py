"""A demo on a log with broken, foreign and very long lines: what it is given, and what its report has to say."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from demo_process import DATACENTERS

EVENTS = 3_000
REJECTED = 6
TIERS = ("produced", "live", "offline", "warehouse")
HOPS = ("producer_to_live", "live_to_offline", "offline_to_warehouse", "end_to_end")
LATENCY_SECONDS_MAX = 120


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


def environment_of(directory: Path) -> dict[str, str]:
    """What the demo finds in its environment; its log of accesses is written to that folder."""
    log = directory / "access.log"
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
