"""One connection to one broker for an event loop.

Every wait is bounded by the time-out. Answers are views of one buffer: they are valid until the next request on this link.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from headrace.broker.errors import UnsupportedVersionError
from headrace.broker.wire.client.exchange import A, Exchange, Q, Spoken
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.fields import MalformedError

PIECE_SIZE = 256 * 1024
FAILURES = (OSError, MalformedError, UnsupportedVersionError)
"""What a request may raise, OSError also for a time-out; the link is of no use afterwards."""


class AsyncLink:
    """Made by `open`; one request at a time."""

    def __init__(self, sock: socket.socket, exchange: Exchange, timeout_ms: int) -> None:
        self._sock = sock
        self._exchange = exchange
        self._timeout_ms = timeout_ms
        self._low_water_mark = 1

    @classmethod
    async def open(
        cls, address: Address, client_id: str, timeout_ms: int, *, negotiates: bool = True
    ) -> AsyncLink:
        """Connect, and agree on versions unless it `negotiates` none; raises FAILURES."""
        async with asyncio.timeout(timeout_ms / 1000):
            sock = await _connected(address)
        exchange = Exchange(client_id, negotiates=negotiates)
        link = cls(sock, exchange, timeout_ms)
        try:
            if negotiates:
                await link._carry(exchange.versions_request())
        except BaseException:
            link.close()
            raise
        return link

    def close(self) -> None:
        self._sock.close()

    async def __aenter__(self) -> AsyncLink:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def version(self, api: Spoken[Any, Any], highest: int) -> int:
        """The highest version up to `highest` that the other side serves; -1 when it serves none."""
        return self._exchange.version(api, highest)

    async def ask(self, api: Spoken[Q, A], highest: int, message: Q) -> A:
        """Send a request in a version up to `highest` and return its decoded answer; raises FAILURES."""
        answer: A = await self._carry(self._exchange.request(api, highest, message))
        return answer

    async def _carry(self, request: bytes) -> Any:
        loop, exchange = asyncio.get_running_loop(), self._exchange
        answer = None
        async with asyncio.timeout(self._timeout_ms / 1000):
            await loop.sock_sendall(self._sock, request)
            # Neither call lets go of the loop where the other side is quick: who asks again and again would keep it.
            await asyncio.sleep(0)
            while answer is None:
                self._be_woken_for(min(exchange.missing, PIECE_SIZE))
                answer = exchange.received(await loop.sock_recv_into(self._sock, exchange.writable()))
        return answer

    def _be_woken_for(self, size: int) -> None:
        """The loop is woken once for a good piece of a large answer, not for each packet."""
        if size != self._low_water_mark:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
            self._low_water_mark = size


async def _connected(address: Address) -> socket.socket:
    """A socket to the first that answers of all addresses that the name has: `localhost` has two."""
    failure: OSError = ConnectionError(f"{address[0]} has no address")
    loop = asyncio.get_running_loop()
    for family, kind, protocol, _, resolved in await loop.getaddrinfo(*address, type=socket.SOCK_STREAM):
        try:
            return await _connected_to(socket.socket(family, kind, protocol), resolved)
        except OSError as error:
            failure = error
    raise failure


async def _connected_to(sock: socket.socket, resolved: Any) -> socket.socket:
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, resolved)
    except BaseException:
        sock.close()
        raise
    return sock
