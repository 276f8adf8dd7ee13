"""Pages over HTTP: what the address may be, what clients may do, how long they are waited for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import pytest

from headrace.broker import page_server
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.page_server import CONNECTIONS_COUNT_MAX, REQUEST_SIZE_MAX, MakePage, PageServer


async def figures() -> tuple[HTTPStatus, str, bytes]:
    return HTTPStatus.OK, "text/plain", b"figures\n"


def serve(test: Callable[[PageServer], Awaitable[None]], pages: Mapping[str, MakePage] | None = None) -> None:
    """Run `test` beside a server whose page /metrics is `figures`."""

    async def run() -> None:
        server = PageServer(pages or {"/metrics": figures})
        await server.start("--pages", "127.0.0.1:0")
        try:
            async with asyncio.timeout(60):
                await test(server)
        finally:
            await server.stop()

    asyncio.run(run())


async def connect(server: PageServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What arrives until the connection ends, in whatever way."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := await reader.read(1 << 20):
            found += piece
    return found


async def answer(server: PageServer, request: bytes) -> bytes:
    reader, writer = await connect(server)
    writer.write(request)
    found = await reader.read()
    writer.close()
    return found


@pytest.mark.parametrize("listener", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"])
def test_an_address_that_is_none_is_refused_in_a_sentence(listener: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^--pages=.* is not allowed: give HOST:PORT"):
        asyncio.run(PageServer({}).start("--pages", listener))


def test_an_address_in_use_is_refused_in_a_sentence() -> None:
    async def test(server: PageServer) -> None:
        with pytest.raises(ConfigurationError, match="an address that is free here"):
            await PageServer({}).start("--pages", f"127.0.0.1:{server.port}")

    serve(test)


def test_a_page_is_answered_with_its_length_and_type() -> None:
    async def test(server: PageServer) -> None:
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
    async def test(server: PageServer) -> None:
        assert (await answer(server, request_bytes)).split(b" ")[1] == status

    serve(test)


def test_idle_connections_have_a_bound_and_keep_no_scraper_out() -> None:
    async def test(server: PageServer) -> None:
        idle = [await connect(server) for _ in range(3 * CONNECTIONS_COUNT_MAX)]
        assert (await answer(server, b"GET /metrics HTTP/1.1\r\n\r\n")).endswith(b"figures\n")
        assert len(server.connections) <= CONNECTIONS_COUNT_MAX
        assert await rest(idle[0][0]) == b""

    serve(test)


def test_a_connection_that_asks_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "REQUEST_S_MAX", 0.01)

    async def test(server: PageServer) -> None:
        reader, writer = await connect(server)
        writer.write(b"GET / HT")
        assert await rest(reader) == b""
        assert not server.connections

    serve(test)


def test_a_page_that_nobody_takes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "ANSWER_S_MAX", 0)

    async def test(server: PageServer) -> None:
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

    async def test(server: PageServer) -> None:
        assert (await answer(server, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 500")

    serve(test, {"/metrics": failing})
