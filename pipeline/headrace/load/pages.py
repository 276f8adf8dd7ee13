"""The pages of a process whose main thread works: its metrics and its probes, served by another thread.

Owns that thread and its event loop; who may connect, and for how long, is `PageServer`'s matter. The thread ends with the
process, or before it with `close`.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from http import HTTPStatus

import click
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from headrace.broker.build_info import BuildInfo
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.page_server import METRICS_TYPE, PageServer
from headrace.load.rounds import Rounds

SETTING = "--metrics-listener"


class Pages:
    """GET /metrics, /live and /ready at HOST:PORT. Raises ConfigurationError."""

    def __init__(self, listener: str, registry: CollectorRegistry, rounds: Rounds) -> None:
        registry.register(rounds)
        ProcessCollector(registry=registry)
        registry.register(BuildInfo())
        self._registry = registry
        self._rounds = rounds
        self._serving: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()
        self._thread = threading.Thread(target=self._run, args=(listener,), name="pages", daemon=True)
        self._thread.start()
        self._loop, self._over, self.port = self._serving.result()

    def close(self) -> None:
        """Close the address, and return when the thread is gone."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self, listener: str) -> None:
        try:
            asyncio.run(self._serve(listener))
        except Exception as error:
            self._serving.set_exception(error)

    async def _serve(self, listener: str) -> None:
        server = PageServer(
            {"/metrics": self._metrics, "/live": self._rounds.live, "/ready": self._rounds.ready}
        )
        await server.start(SETTING, listener)
        over = asyncio.Event()
        self._serving.set_result((asyncio.get_running_loop(), over, server.port))
        await over.wait()
        await server.stop()

    async def _metrics(self) -> tuple[HTTPStatus, str, bytes]:
        return HTTPStatus.OK, METRICS_TYPE, generate_latest(self._registry)


def serve_pages(listener: str | None, registry: CollectorRegistry, rounds: Rounds) -> None:
    """Open the metrics' port where one is wanted, for as long as the process lives. Raises click.BadParameter."""
    if listener is None:
        return
    try:
        Pages(listener, registry, rounds)
    except ConfigurationError as error:
        raise click.BadParameter(str(error), param_hint=SETTING) from error
