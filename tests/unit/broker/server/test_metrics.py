"""The pages over HTTP and their server: what the address may be, how long a page keeps others waiting, what clients may do."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.server import metrics_server
from headrace.broker.server.metrics import BrokerMetrics
from headrace.broker.server.metrics_page import MetricsPage, lines
from headrace.broker.server.metrics_server import (
    CONNECTIONS_COUNT_MAX,
    REQUEST_SIZE_MAX,
    MakePage,
    MetricsServer,
)
from headrace.broker.server.process_metrics import ProcessMetrics


class Families:
    """A collector of those families."""

    def __init__(self, *families: Metric) -> None:
        self.families = families

    def collect(self) -> Iterator[Metric]:
        yield from self.families


async def figures() -> tuple[HTTPStatus, str, bytes]:
    return HTTPStatus.OK, "text/plain", b"figures\n"


def serve(
    test: Callable[[MetricsServer], Awaitable[None]], pages: Mapping[str, MakePage] | None = None
) -> None:
    """Run `test` beside a server whose page /metrics is `figures`."""

    async def run() -> None:
        server = MetricsServer(pages or {"/metrics": figures})
        await server.start("127.0.0.1:0")
        try:
            async with asyncio.timeout(60):
                await test(server)
        finally:
            await server.stop()

    asyncio.run(run())


async def connect(server: MetricsServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What arrives until the connection ends, in whatever way."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := await reader.read(1 << 20):
            found += piece
    return found


async def answer(server: MetricsServer, request: bytes) -> bytes:
    reader, writer = await connect(server)
    writer.write(request)
    found = await reader.read()
    writer.close()
    return found


@pytest.mark.parametrize("listener", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"])
def test_an_address_that_is_none_is_refused_in_a_sentence(listener: str) -> None:
    with pytest.raises(ConfigurationError, match=r"headrace\.metrics\.listener"):
        asyncio.run(MetricsServer({}).start(listener))


def test_an_address_in_use_is_refused_in_a_sentence() -> None:
    async def test(server: MetricsServer) -> None:
        with pytest.raises(ConfigurationError, match="an address that is free here"):
            await MetricsServer({}).start(f"127.0.0.1:{server.port}")

    serve(test)


def test_a_page_is_answered_with_its_length_and_type() -> None:
    async def test(server: MetricsServer) -> None:
        head, _, body = (await answer(server, b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")).partition(
            b"\r\n\r\n"
        )
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Length: 8" in head
        assert body == b"figures\n"
        assert (await answer(server, b"HEAD /metrics HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")

    serve(test)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"GET\r\n\r\n", b"404"),
        (b"\r\n\r\n", b"405"),
        (b"GET /metrics?name=a HTTP/1.1\r\n\r\n", b"200"),
        (b"x" * (REQUEST_SIZE_MAX + 1), b"431"),
    ],
)
def test_what_is_no_request_for_a_page_is_refused(request_bytes: bytes, status: bytes) -> None:
    async def test(server: MetricsServer) -> None:
        assert (await answer(server, request_bytes)).split(b" ")[1] == status

    serve(test)


def test_idle_connections_have_a_bound_and_keep_no_scraper_out() -> None:
    async def test(server: MetricsServer) -> None:
        idle = [await connect(server) for _ in range(3 * CONNECTIONS_COUNT_MAX)]
        assert (await answer(server, b"GET /metrics HTTP/1.1\r\n\r\n")).endswith(b"figures\n")
        assert len(server.connections) <= CONNECTIONS_COUNT_MAX
        assert await rest(idle[0][0]) == b""

    serve(test)


def test_a_connection_that_asks_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_S_MAX", 0.01)

    async def test(server: MetricsServer) -> None:
        reader, writer = await connect(server)
        writer.write(b"GET / HT")
        assert await rest(reader) == b""
        assert not server.connections

    serve(test)


def test_a_page_that_nobody_takes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "ANSWER_S_MAX", 0)

    async def test(server: MetricsServer) -> None:
        reader, writer = await connect(server)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert len(await rest(reader)) < 64 << 20
        assert not server.connections

    async def large() -> tuple[HTTPStatus, str, bytes]:
        return HTTPStatus.OK, "text/plain", bytes(64 << 20)

    serve(test, {"/metrics": large})


def test_a_page_that_fails_is_an_error_of_the_server() -> None:
    async def failing() -> tuple[HTTPStatus, str, bytes]:
        raise ValueError("a collector's fault")

    async def test(server: MetricsServer) -> None:
        assert (await answer(server, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 500")

    serve(test, {"/metrics": failing})


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
        log_start_offset = high_watermark = size = 0

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
        )

    metrics.led = lambda: [led(number) for number in range(10)]
    for line in lines(metrics.collect()):
        if line.startswith("headrace_log_end_offset{"):
            assert line == 'headrace_log_end_offset{partition="0",topic="t"} 7.0\n'
            break
    assert len(read) == 1


def test_the_process_tells_its_files_and_their_limit() -> None:
    found = {family.name: family.samples[0].value for family in ProcessMetrics().collect()}
    assert 0 < found["process_open_fds"] == found["headrace_open_files"] < found["process_max_fds"]
    assert found["process_resident_memory_bytes"] > 1 << 20
    assert found["process_cpu_seconds"] > 0
