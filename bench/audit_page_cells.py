"""The audit's live page with 1,000 topics and 10,000 findings: what a first look and an update take, and what nobody costs.

Seconds are CPU seconds of the server that makes the page and of the browser's main thread (scripts, styles, layout and paint)
together: on a machine that does nothing else they are those on a clock. Nobody looks at the page any more when its server's
CPU is measured, and no cluster answers it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import psutil
import requests
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from bench.large_page import FINDINGS, TOPICS, changed, large_view, served
from bench.machine import cpu_seconds
from bench.peers import STOP_SECONDS_MAX
from bench.runs import HEADRACE, RawRun, Workshop
from headrace.audit.page.live import Query, page, parts
from headrace.load.tables import open_catalog

PAGE = "audit page, 1,000 topics, 10,000 findings"
IDLE_SECONDS, SETTLE_SECONDS = 30.0, 15.0
WAIT_SECONDS_MAX, POLL_SECONDS = 60.0, 0.1
STATE = "return document.querySelector('#state')?.textContent ?? ''"
COUNT = "return document.querySelector('#findings td.number:nth-child(9)')?.textContent ?? ''"

name = "audit-page"
title = "The audit's page"
note = (
    f"{TOPICS:,} topics and {FINDINGS:,} findings in headless Chromium; CPU seconds of the page's server and of the browser's "
    f"main thread together; the page that nobody looks at was looked at once, and idles for {IDLE_SECONDS:.0f} s"
)
cells = (PAGE,)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take."""
    rounds = workshop.effort.rounds
    return rounds, rounds * (IDLE_SECONDS + SETTLE_SECONDS + 8.0)


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the cell round by round; its seconds are those of the first look."""
    for number in range(workshop.effort.rounds):
        first, update = _looks()
        with workshop.folder("unseen") as data:
            yield _unseen(number, data, first, update)


def _looks() -> tuple[float, float]:
    """CPU seconds of a first look and of an update."""
    view = large_view()
    made = _cpu_of(lambda: page(view, Query()))
    following = changed(view)
    remade = _cpu_of(lambda: parts(following, Query()))
    with served(view) as (url, board), _browser() as driver:
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        driver.get(url)
        _until(lambda: "As of" in driver.execute_script(STATE))
        first = _drawn(driver)
        board.put_up(following)
        _until(lambda: driver.execute_script(COUNT) == "2")
        update = _drawn(driver) - first
    return made + first, remade + update


def _cpu_of(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


@contextmanager
def _browser() -> Iterator[webdriver.Chrome]:
    program = shutil.which("chromedriver")
    if program is None:
        raise click.ClickException(
            "The audit's page is measured in Chromium: install the package chromium-driver."
        )
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options, Service(program))
    try:
        yield driver
    finally:
        driver.quit()


def _drawn(driver: webdriver.Chrome) -> float:
    """CPU seconds of the page's main thread since it was opened."""
    found = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(float(each["value"]) for each in found if each["name"] == "TaskDuration")


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the page does not show it in {WAIT_SECONDS_MAX:.0f} s")
        time.sleep(POLL_SECONDS)


def _unseen(number: int, data: Path, first: float, update: float) -> RawRun:
    open_catalog(str(data))
    command = [sys.executable, "-m", "headrace.cli", "audit", "serve", "--listen", "127.0.0.1:0"]
    command += ["--bootstrap", "127.0.0.1:1", "--warehouse", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            requests.get(server.stdout.readline().split()[1], timeout=WAIT_SECONDS_MAX).raise_for_status()
            time.sleep(SETTLE_SECONDS)
            process = psutil.Process(server.pid)
            before, begun = cpu_seconds(process), time.monotonic()
            time.sleep(IDLE_SECONDS)
            cpu, seconds = cpu_seconds(process) - before, time.monotonic() - begun
            memory_mib = process.memory_info().rss // 2**20
        finally:
            server.terminate()
            server.wait(STOP_SECONDS_MAX)
    return RawRun(
        cell=PAGE,
        peer=HEADRACE,
        round=number,
        messages=0,
        bytes=0,
        seconds=round(first, 4),
        cpu_seconds=round(first, 4),
        memory_mib=memory_mib,
        figures={"update_seconds": round(update, 4), "cpu_percent": round(100 * cpu / seconds, 3)},
    )
