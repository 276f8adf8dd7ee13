"""The page of metrics: its text, how long it keeps others waiting, and what the system tells."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from headrace.broker.log.files import OsFiles
from headrace.broker.log.scrub_outcome import ScrubOutcome, write_outcome
from headrace.broker.server.status.metrics import BrokerMetrics
from headrace.broker.server.status.metrics_page import MetricsPage, lines
from headrace.broker.server.status.process_metrics import ProcessMetrics


class Families:
    """A collector of those families."""

    def __init__(self, *families: Metric) -> None:
        self.families = families

    def collect(self) -> Iterator[Metric]:
        yield from self.families


def test_the_text_is_that_of_the_library() -> None:
    odd = GaugeMetricFamily("a_gauge", "With \\ and\nlines.", labels=["topic", "kind"])
    odd.add_metric(['quoted "\\\n', "é"], float("nan"))
    odd.add_metric(["plain", "x"], 12345678)
    histogram = HistogramMetricFamily("sizes", "Sizes.")
    histogram.add_metric([], [("1.0", 1), ("+Inf", 2)], sum_value=0.25)
    families = (CounterMetricFamily("things", "Things.", 3), odd, histogram)
    registry = CollectorRegistry()
    registry.register(Families(*families))
    assert "".join(lines(families)).encode() == generate_latest(registry)


def test_others_have_the_loop_while_a_long_page_is_made() -> None:
    """The clock is later whenever it is read, so that each line takes a slice."""
    family = GaugeMetricFamily("a_gauge", "Text.", labels=["number"])
    for number in range(100):
        family.add_metric([str(number)], number)
    page = MetricsPage(Families(family), Families(), now=itertools.count().__next__)

    async def test() -> int:
        turns = 0
        is_over = False

        async def others() -> None:
            nonlocal turns
            while not is_over:
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(others())
            text = await page.text()
            is_over = True
        assert text.count(b"\n") == 102
        return turns

    assert asyncio.run(test()) >= 100


def test_a_page_is_handed_out_again_in_proportion_to_what_it_cost() -> None:
    clock = SimpleNamespace(now=0.0)
    made = 0

    class Slow:
        def collect(self) -> Iterator[Metric]:
            nonlocal made
            made += 1
            clock.now += 0.5
            yield GaugeMetricFamily("a_gauge", "Text.", made)

    page = MetricsPage(Slow(), Families(), now=lambda: clock.now)

    async def test() -> None:
        first, second = await asyncio.gather(page.text(), page.text())
        assert first == second
        clock.now += 4.9
        assert await page.text() == first
        clock.now += 0.2
        assert await page.text() != first

    asyncio.run(test())
    assert made == 2


def test_partitions_figures_are_made_as_the_page_takes_them() -> None:
    metrics = BrokerMetrics()
    read = []

    class Log:
        log_start_offset = high_watermark = last_stable_offset = size = 0

        @property
        def log_end_offset(self) -> int:
            read.append(self)
            return 7

    def led(number: int) -> Any:
        return SimpleNamespace(
            topic="t",
            partition=number,
            log=Log(),
            isr=(1,),
            isr_size_min=1,
            is_under_replicated=False,
            is_under_min_isr=False,
            is_reassigning=number < 3,
        )

    metrics.led = lambda: [led(number) for number in range(10)]
    for line in lines(metrics.collect()):
        if line.startswith("headrace_log_end_offset{"):
            assert line == 'headrace_log_end_offset{partition="0",topic="t"} 7.0\n'
            break
    assert len(read) == 1
    metrics.offline_replicas = lambda: 2
    metrics.transactions = lambda: {"Ongoing": 3}
    rest = list(lines(metrics.collect()))
    assert 'headrace_transactional_ids{state="Ongoing"} 3.0\n' in rest
    assert "headrace_reassigning_partitions 3.0\n" in rest
    assert "headrace_offline_replicas 2.0\n" in rest


def test_the_process_tells_its_files_their_limit_and_its_disks(tmp_path: Path) -> None:
    families = ProcessMetrics(lambda: [str(tmp_path), str(tmp_path / "gone")]).collect()
    found = {family.name: family.samples[0].value for family in families if family.samples}
    assert 0 < found["process_open_fds"] == found["headrace_open_files"] < found["process_max_fds"]
    assert found["process_resident_memory_bytes"] > 1 << 20
    assert found["process_cpu_seconds"] > 0
    free, capacity = (found[f"headrace_log_directory_{name}_bytes"] for name in ("free", "capacity"))
    assert 0 < free < capacity


def test_what_a_look_through_the_directories_found_is_told(tmp_path: Path) -> None:
    """Of a log on its way to another directory both folders; of one that is gone nothing."""
    old, new, untouched = (tmp_path / name for name in ("old", "new", "untouched"))
    for directory in (old, new, untouched):
        directory.mkdir()
        (directory / "meta.properties").write_text("")
        os.utime(directory / "meta.properties", (time.time() - 5000,) * 2)
    moving = "events-0." + "a" * 32 + "-future"
    (old / "events-0").mkdir()
    (new / moving).mkdir()
    places = {"events-0": 2, "gone-0": 1}
    write_outcome(OsFiles(), str(old), ScrubOutcome(finished_s=time.time() - 100, rotten_places=places))
    write_outcome(OsFiles(), str(new), ScrubOutcome(rotten_places={moving: 1}))
    (untouched / "scrub-outcome").write_text("no outcome")
    page = list(
        ProcessMetrics(lambda: [str(old), str(new), str(untouched), str(tmp_path / "gone")]).collect()
    )
    since, rotten = page[-2:]
    assert [(s.labels["directory"], round(s.value, -2)) for s in since.samples] == [
        (str(old), 100),
        (str(new), 5000),
        (str(untouched), 5000),
    ]
    assert [(s.labels, s.value) for s in rotten.samples] == [({"topic": "events", "partition": "0"}, 3)]


def replica_of(topic: str, rotten_places: int = 0) -> Any:
    return SimpleNamespace(topic=topic, partition=3, log=SimpleNamespace(rotten_places=rotten_places))


def test_damaged_logs_are_told_by_their_partition() -> None:
    metrics = BrokerMetrics()
    metrics.replicas = lambda: [replica_of("sound"), replica_of("damaged", rotten_places=2)]
    page = "".join(lines(metrics.collect()))
    assert 'headrace_log_rotten_places{partition="3",topic="damaged"} 2.0' in page
    assert "sound" not in page


def test_a_topic_that_is_gone_is_told_no_more() -> None:
    metrics = BrokerMetrics()
    for topic in ("kept", "deleted"):
        metrics.produced(topic, 1, 100)
        metrics.fetched(topic, 100)
    metrics.replicas = lambda: [replica_of("kept")]
    page = "".join(lines(metrics.collect()))
    assert 'headrace_produced_bytes_total{topic="kept"} 100.0' in page
    assert "deleted" not in page
    assert list(metrics.fetched_bytes) == ["kept"]


def test_each_listeners_certificate_tells_when_it_expires() -> None:
    metrics = BrokerMetrics()
    metrics.certificate_expirations = lambda: {"SSL": 1.8e9}
    assert 'headrace_certificate_expires_seconds{listener="SSL"} 1.8e+09' in "".join(lines(metrics.collect()))
