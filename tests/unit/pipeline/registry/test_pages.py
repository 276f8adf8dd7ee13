"""The registry's metrics and probes beside its API."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from headrace.registry.app import build_app
from headrace.registry.errors import not_ready


class Registry:
    """One that has no subjects once it has read its topic."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.passed_over = 2

    def read(self) -> Any:
        if not self.ready.is_set():
            raise not_ready("topic _schemas has not been read yet")
        return SimpleNamespace(subjects=lambda **_: [])


def test_the_certificate_tells_when_it_expires() -> None:
    async def ask(app: Any) -> str:
        return (await get(app, "/metrics"))[1]

    secured = build_app(cast("Any", Registry()), lambda: 1.8e9)
    told = 'headrace_certificate_expires_seconds{listener="HTTPS"} 1.8e+09'
    assert told in asyncio.run(ask(secured))
    assert "headrace_certificate_expires_seconds{" not in asyncio.run(ask(build_app(cast("Any", Registry()))))


async def get(app: Any, path: str) -> tuple[int, str]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]).decode()


def test_pages_are_answered_before_the_topic_is_read_and_count_no_answers() -> None:
    async def ask() -> None:
        registry = Registry()
        app = build_app(cast("Any", registry))
        assert (await get(app, "/live"))[0] == 200
        status, text = await get(app, "/ready")
        assert status == 503
        assert '"reason": "The registry is not ready: topic _schemas has not been read yet' in text
        assert (await get(app, "/subjects"))[0] == 503
        registry.ready.set()
        assert (await get(app, "/ready"))[0] == 200
        assert (await get(app, "/subjects"))[0] == 200
        assert (await get(app, "/nowhere"))[0] == 404
        _, page = await get(app, "/metrics")
        counted = [line for line in page.splitlines() if line.startswith("headrace_registry_answers_total{")]
        assert sorted(counted) == [
            f'headrace_registry_answers_total{{status="{status}"}} 1.0' for status in (200, 404, 503)
        ]
        assert "headrace_registry_ready 1.0" in page
        assert "headrace_registry_passed_over_records_total 2.0" in page
        assert "process_cpu_seconds_total " in page

    asyncio.run(ask())
