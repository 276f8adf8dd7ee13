"""Bytes to and from one broker for an event loop, in the clear or over TLS.

Owns the socket and its waits. Knows neither requests nor time-outs. TLS is done on the non-blocking socket itself, so that what
comes is decrypted where it is wanted: asyncio's own streams would copy it twice.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from headrace.broker.client.security import PLAINTEXT, ClientSecurity
from headrace.broker.client.tls_contexts import context_of, tls_error
from headrace.broker.wire.client.view import Address

PIECE_SIZE: Final = 256 * 1024
RECORD_SIZE: Final = 5 + 16 * 1024 + 256
"""Of the largest record of TLS: so much of one may have been taken from the socket, and wait for its rest."""
T = TypeVar("T")


class Carrier(Protocol):
    """One connection; both methods raise OSError, and the connection is of no use afterwards."""

    async def send(self, data: bytes) -> None: ...

    async def receive(self, into: memoryview, wanted: int) -> int:
        """How many bytes came, 0 at the end; `wanted` is how many are known to be missing."""
        ...

    def close(self) -> None: ...


async def connected(address: Address, security: ClientSecurity = PLAINTEXT) -> Carrier:
    """A connection to the first that answers of all addresses that the name has: `localhost` has two."""
    sock = await _connected(address)
    if not security.uses_tls:
        return PlainCarrier(sock)
    try:
        context = context_of(security)
        secured = context.wrap_socket(sock, server_hostname=address[0], do_handshake_on_connect=False)
    except BaseException:
        sock.close()
        raise
    carrier = TlsCarrier(secured, address)
    try:
        await carrier.shake_hands()
    except BaseException:
        carrier.close()
        raise
    return carrier


class PlainCarrier:
    """In the clear."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._low_water_mark = 1

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._sock, data)

    async def receive(self, into: memoryview, wanted: int) -> int:
        self._low_water_mark = _woken_for(self._sock, min(wanted, PIECE_SIZE), self._low_water_mark)
        return await asyncio.get_running_loop().sock_recv_into(self._sock, into)

    def close(self) -> None:
        self._sock.close()


class TlsCarrier:
    """Over TLS."""

    def __init__(self, sock: ssl.SSLSocket, address: Address) -> None:
        self._sock = sock
        self._address = address
        self._low_water_mark = 1

    async def shake_hands(self) -> None:
        """Once, before all else. Raises TlsError."""
        await self._done(self._sock.do_handshake)

    async def send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[await self._done(lambda: self._sock.send(left)) :]  # noqa: B023 it runs before the next turn

    async def receive(self, into: memoryview, wanted: int) -> int:
        # OpenSSL may hold the beginning of a record: what is still to come may be so much less than what is missing.
        least = max(min(wanted, PIECE_SIZE) - RECORD_SIZE, 1)
        self._low_water_mark = _woken_for(self._sock, least, self._low_water_mark)
        filled = await self._done(lambda: self._sock.recv_into(into))
        while 0 < filled < min(len(into), PIECE_SIZE):
            try:
                count = self._sock.recv_into(into[filled:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                # Who asks next is told.
                break
            if not count:
                break
            filled += count
        return filled

    def close(self) -> None:
        self._sock.close()

    async def _done(self, attempt: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        while True:
            try:
                return attempt()
            except ssl.SSLWantReadError:
                await self._ready(loop.add_reader, loop.remove_reader)
            except ssl.SSLWantWriteError:
                await self._ready(loop.add_writer, loop.remove_writer)
            except ssl.SSLError as error:
                raise tls_error(self._address, error) from error

    async def _ready(self, add: Callable[..., Any], remove: Callable[[int], Any]) -> None:
        number = self._sock.fileno()
        ready = asyncio.get_running_loop().create_future()
        add(number, _settle, ready)
        try:
            await ready
        finally:
            remove(number)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _woken_for(sock: socket.socket, size: int, before: int) -> int:
    """The loop is woken once for a good piece of a large answer, not for each packet."""
    if size != before:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
    return size


async def _connected(address: Address) -> socket.socket:
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
