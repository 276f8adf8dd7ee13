"""One connection to one broker of another cluster, on the broker's own wire code.

Answers are received into one buffer that is used again: views into an answer are valid until the next request. Versions
are agreed on when the connection opens. Every wait is bounded by the time-out, every answer by `RESPONSE_SIZE_MAX`.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from headrace.broker.errors import UnsupportedVersionError
from headrace.broker.wire import frames
from headrace.broker.wire.api import k18_api_versions
from headrace.broker.wire.fields import MalformedError
from headrace.broker.wire.schema import Api

RESPONSE_SIZE_MAX = 192 * 1024 * 1024
PIECE_SIZE = 256 * 1024
BUFFER_SIZE_MIN, BUFFER_SIZE_KEPT = 64 * 1024, 16 * 1024 * 1024
Message = dict[str, Any]


class ProtocolError(Exception):
    """The other side closed the connection, or sent what is no answer."""


FAILURES = (OSError, TimeoutError, ProtocolError, MalformedError, UnsupportedVersionError)
"""What a request may raise; the connection is of no use afterwards."""


class Connection:
    """Made by `open`; one request at a time."""

    def __init__(self, sock: socket.socket, client_id: str, timeout_ms: int) -> None:
        self._sock = sock
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._size = bytearray(4)
        self._buffer = memoryview(bytearray(BUFFER_SIZE_MIN))

    @classmethod
    async def open(cls, address: tuple[str, int], client_id: str, timeout_ms: int) -> Connection:
        """Connect and agree on versions; raises FAILURES."""
        async with asyncio.timeout(timeout_ms / 1000):
            sock = await _connected(address)
        connection = cls(sock, client_id, timeout_ms)
        try:
            answer = await connection._ask(k18_api_versions.API, 0, {})
        except BaseException:
            connection.close()
            raise
        connection._versions = {
            k["api_key"]: (k["min_version"], k["max_version"]) for k in answer["api_keys"]
        }
        return connection

    def close(self) -> None:
        self._sock.close()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def version(self, api: Api, highest: int) -> int:
        """The highest version up to `highest` that the other side serves; -1 when it serves none."""
        low, high = self._versions.get(api.key, (0, -1))
        return min(high, highest) if low <= highest else -1

    async def ask(self, api: Api, highest: int, message: Message) -> Message:
        """Send a request in a version up to `highest` and return its decoded answer; raises FAILURES."""
        version = self.version(api, highest)
        if version < 0:
            raise UnsupportedVersionError(f"the broker does not serve {api.name} up to version {highest}")
        return await self._ask(api, version, message)

    async def _ask(self, api: Api, version: int, message: Message) -> Message:
        loop = asyncio.get_running_loop()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = frames.encode_request_header(api.key, version, self._correlation_id, self._client_id)
        async with asyncio.timeout(self._timeout_ms / 1000):
            await loop.sock_sendall(self._sock, frames.frame(header, api.encode_request(version, message)))
            frame = await self._receive(loop)
        correlation_id, offset = frames.read_response_header(api.key, version, frame)
        if correlation_id != self._correlation_id:
            raise ProtocolError(f"answer {correlation_id} to request {self._correlation_id}")
        return api.decode_response(version, frame, offset)

    async def _receive(self, loop: asyncio.AbstractEventLoop) -> memoryview:
        await self._fill(loop, memoryview(self._size))
        size = int.from_bytes(self._size, "big", signed=True)
        if not 0 <= size <= RESPONSE_SIZE_MAX:
            raise ProtocolError(f"an answer of {size} bytes")
        if size > len(self._buffer) or len(self._buffer) > BUFFER_SIZE_KEPT:
            # Rounded up, so that answers of about one size do not each bring new memory, which is slow.
            self._buffer = memoryview(bytearray(max(1 << (size - 1).bit_length(), BUFFER_SIZE_MIN)))
        frame = self._buffer[:size]
        await self._fill(loop, frame)
        return frame

    async def _fill(self, loop: asyncio.AbstractEventLoop, view: memoryview) -> None:
        position = 0
        while position < len(view):
            # The loop is woken once for a good piece of a large answer, not for each packet.
            wanted = min(len(view) - position, PIECE_SIZE)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            count = await loop.sock_recv_into(self._sock, view[position:])
            if count == 0:
                raise ProtocolError("the connection was closed")
            position += count


async def _connected(address: tuple[str, int]) -> socket.socket:
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
