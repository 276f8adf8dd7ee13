"""The live page of 1,000 topics and 10,000 findings in a browser: what a first look and an update cost both sides, in CPU time.

CPU time, since the time on a clock is that of whatever else the machine does; on one that is quiet the two are the same.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from browser import Browser, chromium
from processes import eventually

from headrace.audit.judging.reconcile import reconcile
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import Counts, Finding
from headrace.audit.page.live import Query, View, page, parts
from headrace.audit.page.live_app import Board, build_app
from headrace.audit.records import Counted, CounterTier
from headrace.audit.report import as_json
from headrace.audit.windows import Stream
from headrace.broker.wire.partitions import TopicPartition
from headrace.load.tables import open_catalog
from headrace.registry.listening import Server, listen

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
TOPICS, PARTITIONS, FINDINGS = 1_000, 4, 10_000
NOW = 1_700_000_000_000
FIRST_S_MAX, UPDATE_S_MAX = 1.0, 0.2
IDLE_S, IDLE_SHARE_MAX, SETTLED_S = 6.0, 0.01, 15.0
HOPS = ("producer_to_live", "live_to_offline", "offline_to_warehouse")


def large_view() -> View:
    ledger = Ledger()
    tiers: tuple[CounterTier, CounterTier] = ("live", "offline")
    for number in range(TOPICS):
        for partition in range(PARTITIONS):
            for tier in tiers:
                name = f"topic-{number}" if tier == "live" else f"dc-east.topic-{number}"
                counted = Counted(
                    tier=tier,
                    datacenter="dc-east" if tier == "live" else "offline",
                    partition=TopicPartition(name, partition),
                    first=0,
                    next=100 if tier == "live" else 90,
                    tallies=(),
                    at_ms=NOW,
                )
                ledger.on_count(counted)
    outcome = reconcile(ledger, NOW)
    for number in range(TOPICS):
        topic = ("dc-east", f"topic-{number}")
        outcome.topics[topic] = Counts(produced=1000, live=1000, offline=1000, warehouse=990, lost=10)
        outcome.hops.update({(*topic, hop): Counts(lost=3) for hop in HOPS})  # type: ignore[misc]
    outcome.findings = [
        Finding(
            kind="loss",
            hop="live_to_offline",
            stream=Stream("dc-east", f"topic-{number % TOPICS}", f"producer-{number}"),
            first_sequence=number,
            last_sequence=number,
            count=1,
            window_start=NOW - number % 1000 * 10_000,
            window_end=NOW,
        )
        for number in range(FINDINGS)
    ]
    return View(number=1, at_ms=NOW, report=as_json(outcome, ledger, NOW))


def changed(view: View) -> View:
    """The next round: other numbers in every part that has many rows."""
    assert view.report is not None
    more = {
        name: [{**row, field: row[field] + 1} for row in view.report[name]]
        for name, field in (("topics", "live"), ("findings", "count"), ("partitions", "live"))
    }
    return replace(view, number=view.number + 1, report={**view.report, **more})


@contextmanager
def served(view: View) -> Iterator[tuple[str, Board]]:
    boards: list[Board] = []
    servers: list[Server] = []
    is_up = threading.Event()
    listener = listen(("127.0.0.1", 0))

    async def serve() -> None:
        boards.append(Board())
        boards[0].view = view
        servers.append(Server(build_app(boards[0]), shutdown_seconds=5))
        is_up.set()
        await servers[0].serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert is_up.wait(20)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", boards[0]
    finally:
        boards[0].loop.call_soon_threadsafe(boards[0].end)
        servers[0].stop()
        thread.join()


def cpu_of(browser: Browser) -> float:
    """CPU seconds of the page's main thread since it was opened: scripts, styles, layout and paint."""
    found = browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(float(each["value"]) for each in found if each["name"] == "TaskDuration")


def content(browser: Browser, selector: str) -> str:
    """What is written there; to ask for it lays nothing out."""
    return str(browser.ask("return document.querySelector(arguments[0])?.textContent ?? ''", selector))


def test_a_large_page_is_seen_within_a_second_and_follows_within_a_fifth() -> None:
    view = large_view()
    begun = time.process_time()
    page(view, Query())
    made = time.process_time() - begun
    following = changed(view)
    begun = time.process_time()
    parts(following, Query())
    remade = time.process_time() - begun
    with served(view) as (url, board), chromium() as browser:
        browser.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        browser.look_at(url, 1280)
        eventually(lambda: "As of" in content(browser, "#state"), what="the first event")
        first = cpu_of(browser)
        assert browser.faults() == {}
        before = cpu_of(browser)
        board.put_up(following)
        eventually(lambda: content(browser, "#findings td.number:nth-child(9)") == "2", what="the update")
        update = cpu_of(browser) - before
    print(
        f"first: server {made:.3f} s, browser {first:.3f} s; update: server {remade:.3f} s, browser {update:.3f} s"
    )
    assert made + first <= FIRST_S_MAX
    assert remade + update <= UPDATE_S_MAX


def test_a_server_that_nobody_looks_at_costs_next_to_nothing(tmp_path: Path) -> None:
    """After somebody has looked; that no cluster answered does not go on costing either."""
    open_catalog(str(tmp_path))
    command = [str(Path(sys.executable).with_name("headrace")), "audit", "serve", "--listen", "127.0.0.1:0"]
    command += ["--bootstrap", "127.0.0.1:1", "--warehouse", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as served:
        try:
            assert served.stdout is not None
            url = served.stdout.readline().split()[1]
            assert requests.get(url, timeout=60).ok
            time.sleep(SETTLED_S)
            before = cpu_seconds(served.pid)
            time.sleep(IDLE_S)
            used = cpu_seconds(served.pid) - before
        finally:
            served.terminate()
    print(f"idle: {used:.2f} s of CPU in {IDLE_S:.0f} s")
    assert used <= IDLE_S * IDLE_SHARE_MAX


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
