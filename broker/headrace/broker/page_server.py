"""HTTP for a process's metrics and probes, on an event loop and within bounds.

Invariants: at most `CONNECTIONS_COUNT_MAX` connections, of which the oldest makes room for a new one, so that idle ones
never keep a scraper out; a request that is not whole in `REQUEST_S_MAX`, and a page that is not taken in `ANSWER_S_MAX`,
end the connection; one request a connection. Must not know what the pages say.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle, Transport
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import cast

from headrace.broker.addresses import split_address
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks

logger = get_logger(__name__)
CONNECTIONS_COUNT_MAX = 32
REQUEST_SIZE_MAX = 16 << 10
REQUEST_S_MAX = 5.0
ANSWER_S_MAX = 10.0
TEXT = "text/plain; charset=utf-8"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of a page for Prometheus, in its text format."""
MakePage = Callable[[], Awaitable[tuple[HTTPStatus, str, bytes]]]
"""Makes a page: its status, its content type and its body."""


class PageServer:
    """Serves pages, by their paths, at one address; `start` and `stop` are each called once."""

    def __init__(self, pages: Mapping[str, MakePage]) -> None:
        self.pages = pages
        self.tasks = Tasks()
        # In the order in which they came.
        self.connections: dict[_Connection, None] = {}
        self._server: asyncio.Server | None = None

    async def start(self, setting: str, listener: str) -> None:
        """Listen at HOST:PORT, which that setting names. Raises ConfigurationError."""
        address = split_address(listener)
        if address is None:
            raise ConfigurationError(setting, listener, "HOST:PORT, for example 127.0.0.1:9404")
        host, port = address
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: _Connection(self), host or "0.0.0.0", port
            )
        except OSError as error:
            raise ConfigurationError(
                setting, listener, f"an address that is free here ({error.strerror})"
            ) from None

    @property
    def port(self) -> int:
        """The port it listens at."""
        assert self._server is not None, "start first"
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the address and every connection."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.abort()
        await self.tasks.stop()


class _Connection(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, server: PageServer) -> None:
        self._server = server
        self._request = bytearray()
        self._is_answered = False
        self._transport: Transport | None = None
        self._deadline: TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("Transport", transport)
        connections = self._server.connections
        if len(connections) >= CONNECTIONS_COUNT_MAX:
            next(iter(connections)).abort()
        connections[self] = None
        self._allow(REQUEST_S_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            return
        self._request += data
        if b"\r\n\r\n" in self._request or b"\n\n" in self._request:
            self._is_answered = True
            self._allow(ANSWER_S_MAX)
            self._server.tasks.start("metrics page", self._answer(*_asked(self._request)))
        elif len(self._request) > REQUEST_SIZE_MAX:
            self._is_answered = True
            self._send(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        self._server.connections.pop(self, None)
        if self._transport is not None:
            self._transport.abort()

    def _allow(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)

    async def _answer(self, method: str, path: str) -> None:
        if method not in ("GET", "HEAD"):
            self._send(HTTPStatus.METHOD_NOT_ALLOWED, extra="Allow: GET, HEAD\r\n")
            return
        make_page = self._server.pages.get(path)
        if make_page is None:
            paths = ", ".join(self._server.pages)
            self._send(HTTPStatus.NOT_FOUND, body=f"There is no such page; there are {paths}.\n".encode())
            return
        try:
            status, content_type, body = await make_page()
        except Exception as error:
            logger.failure("a page failed", error, path=path)
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        self._send(status, content_type, body, with_body=method == "GET")

    def _send(
        self,
        status: HTTPStatus,
        content_type: str = TEXT,
        body: bytes = b"",
        *,
        with_body: bool = True,
        extra: str = "",
    ) -> None:
        assert self._transport is not None, "it was made"
        if self._transport.is_closing():
            return
        body = body or f"{status.phrase}\n".encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\n{extra}Connection: close\r\n\r\n"
        )
        self._transport.write(head.encode())
        if with_body:
            self._transport.write(body)
        self._transport.close()


def _asked(request: bytearray) -> tuple[str, str]:
    """The method and the path, without its query, of a request."""
    words = request.split(b"\n", 1)[0].decode("latin-1").split()
    return words[0] if words else "", words[1].partition("?")[0] if len(words) > 1 else ""
