"""The registry's metrics and probes, at the address of its API: /metrics, /live and /ready.

Owns what is counted of answers. Invariant: every label's values are few and known beforehand; what a client asks for, such as a
subject, is never one.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.broker.build_info import BuildInfo
from headrace.broker.page_server import METRICS_TYPE
from headrace.registry.errors import RegistryError
from headrace.registry.service import Registry

PATHS: Final = ("/metrics", "/live", "/ready")


class Pages:
    """A prometheus_client collector, the pages' routes, and the middleware that counts what is answered.

    `certificate_expires_s` tells when the certificate that is served expires, in seconds since 1970; None without TLS.
    """

    def __init__(
        self, registry: Registry, certificate_expires_s: Callable[[], float | None] = lambda: None
    ) -> None:
        self._registry = registry
        self._certificate_expires_s = certificate_expires_s
        self._answers: Counter[str] = Counter()
        self._seconds = 0.0
        self._collected = CollectorRegistry()
        ProcessCollector(registry=self._collected)
        self._collected.register(self)

    def routes(self) -> list[Route]:
        return [
            Route(path, page, methods=["GET"])
            for path, page in zip(PATHS, (self._metrics, self._live, self._ready), strict=True)
        ]

    def counting(self, app: ASGIApp) -> ASGIApp:
        """The application, with each answer of its API counted."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] in PATHS:
                await app(scope, receive, send)
                return
            began = time.monotonic()

            async def noting(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self._answers[str(message["status"])] += 1
                    self._seconds += time.monotonic() - began
                await send(message)

            await app(scope, receive, noting)

        return counted

    def collect(self) -> Iterator[Metric]:
        """The page's families."""
        is_ready = self._registry.ready.is_set()
        yield from BuildInfo().collect()
        yield GaugeMetricFamily("headrace_registry_ready", "1 while /ready answers 200.", is_ready)
        if is_ready:
            yield GaugeMetricFamily(
                "headrace_registry_subjects",
                "Subjects that have versions.",
                len(self._registry.read().subjects()),
            )
        yield self._certificate()
        answers = CounterMetricFamily(
            "headrace_registry_answers", "Answers of the API, by HTTP status.", labels=["status"]
        )
        for status, count in self._answers.items():
            answers.add_metric([status], count)
        yield answers
        yield CounterMetricFamily(
            "headrace_registry_answer_seconds", "Time from a request to its answer's begin.", self._seconds
        )
        yield CounterMetricFamily(
            "headrace_registry_passed_over_records",
            "Records of the topics that are none of a registry's, or come after their writer's turn.",
            self._registry.passed_over,
        )

    def _certificate(self) -> Metric:
        family = GaugeMetricFamily(
            "headrace_certificate_expires_seconds",
            "When a listener's certificate expires, in seconds since 1970.",
            labels=["listener"],
        )
        expires_s = self._certificate_expires_s()
        if expires_s is not None:
            family.add_metric(["HTTPS"], expires_s)
        return family

    async def _metrics(self, _: Request) -> Response:
        return Response(generate_latest(self._collected), media_type=METRICS_TYPE)

    async def _live(self, _: Request) -> Response:
        return _json({"live": True})

    async def _ready(self, _: Request) -> Response:
        try:
            self._registry.read()
        except RegistryError as error:
            return _json({"ready": False, "reason": error.message}, error.status)
        return _json({"ready": True})


def _json(content: object, status: int = 200) -> Response:
    return Response(json.dumps(content) + "\n", status_code=status, media_type="application/json")
