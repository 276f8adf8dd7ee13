"""What a start tells of the logs that it opens, and how late the loop is."""

from __future__ import annotations

import asyncio
import logging

import pytest
from virtual_time import LoopClock, VirtualLoop

from headrace.broker.log.progress import OpeningProgress
from headrace.broker.server.status.loop_delay import LoopDelay
from headrace.broker.server.status.metrics import BrokerMetrics
from headrace.broker.server.status.metrics_page import lines
from headrace.broker.server.status.start_report import StartReport


def test_the_log_tells_at_intervals_what_is_left(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace")
    progress = OpeningProgress()
    progress.logs_total, progress.bytes_total = 5, 1000
    with VirtualLoop() as loop:
        report = StartReport(progress, LoopClock(loop))
        task = loop.create_task(report.run())
        loop.run_until_complete(asyncio.sleep(2))
        progress.logs_opened = 2
        progress.checking("/data/a-0", 300)
        progress.checking("/data/a-0", 100)
        loop.run_until_complete(asyncio.sleep(2))
        task.cancel()
        report.over()
    begun, still, over = caplog.records
    assert (begun.message, still.message, over.message) == (
        "opening the logs",
        "still opening the logs",
        "logs opened",
    )
    assert vars(still)["facts"] == {
        "opened": 2,
        "left": 3,
        "segments_checked": 2,
        "bytes_checked": 400,
        "bytes_left": 600,
        "seconds": 3.0,
    }
    assert (progress.logs_left, progress.bytes_left) == (0, 0)


def test_the_page_shows_what_a_start_has_before_it() -> None:
    metrics = BrokerMetrics()
    metrics.opening.logs_total, metrics.opening.bytes_total = 5, 1000
    metrics.opening.checking("/data/a-0", 300)
    page = "".join(lines(metrics.collect()))
    assert "headrace_start_logs_left 5.0\n" in page
    assert "headrace_start_bytes_left 700.0\n" in page
    assert "headrace_recovered_segments_total 1.0\n" in page
    assert "headrace_recovered_bytes_total 300.0\n" in page


def test_the_longest_delay_of_the_loop_is_kept_for_a_minute() -> None:
    delay = LoopDelay()
    moments = iter([0.0, 3.0, 3.0, 6.5, *[10.0 + 3 * (n // 2) + 3 * (n % 2) for n in range(100)]])

    async def run(count: int) -> None:
        task = asyncio.get_running_loop().create_task(delay.run(now=moments.__next__))
        await asyncio.sleep(count * 3 + 1)
        task.cancel()

    with VirtualLoop() as loop:
        loop.run_until_complete(run(2))
        assert delay.seconds_max == 0.5
        loop.run_until_complete(run(30))
    assert delay.seconds_max == 0.0
