"""Connecting to a broker of a source by a name that has several addresses."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from headrace.mirror.connection import _connected


def listening() -> socket.socket:
    sock = socket.create_server(("127.0.0.1", 0))
    sock.settimeout(10)
    return sock


def reached(*ports: int) -> int:
    """The port that answers when a name has these, in that order."""

    async def run() -> int:
        async def resolved(*_: object, **__: object) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in ports]

        asyncio.get_running_loop().getaddrinfo = resolved  # type: ignore[method-assign]
        with await _connected(("broker", 9092)) as sock:
            return int(sock.getpeername()[1])

    return asyncio.run(run())


def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    with listening() as server, listening() as gone:
        port, closed_port = server.getsockname()[1], gone.getsockname()[1]
        gone.close()
        assert reached(closed_port, port) == port
        with pytest.raises(ConnectionRefusedError):
            reached(closed_port, closed_port)
