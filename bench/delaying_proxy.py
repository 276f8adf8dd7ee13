"""A long road to a broker: what goes either way arrives later by half a round trip, as fast as it was sent.

    python -m bench.delaying_proxy 127.0.0.1:19092 127.0.0.1:9092 50

listens on the first address for the broker at the second, 50 ms away and back. The broker advertises the first one.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

PIECE_SIZE = 1024 * 1024
PIECES_MAX = 1_000
"""Under way at once: more than any window."""


class Road(asyncio.BufferedProtocol):
    """One end of a connection; what it hears goes to the other end after the delay."""

    def __init__(self, delay_seconds: float) -> None:
        self._delay = delay_seconds
        self._buffer = bytearray(PIECE_SIZE)
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._is_due = False
        self.other: Road | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        self._under_way.append((loop.time() + self._delay, bytes(memoryview(self._buffer)[:count])))
        if len(self._under_way) == PIECES_MAX and self.transport is not None:
            self.transport.pause_reading()
        if not self._is_due:
            self._is_due = True
            loop.call_later(self._delay, self._deliver)

    def _deliver(self) -> None:
        loop = asyncio.get_running_loop()
        other = self.other.transport if self.other is not None else None
        if len(self._under_way) >= PIECES_MAX and self.transport is not None:
            self.transport.resume_reading()
        now = loop.time()
        while self._under_way and self._under_way[0][0] <= now:
            piece = self._under_way.popleft()[1]
            if other is not None and not other.is_closing():
                other.write(piece)
        self._is_due = bool(self._under_way)
        if self._is_due:
            loop.call_at(self._under_way[0][0], self._deliver)

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            asyncio.get_running_loop().call_later(self._delay, self.other.transport.close)


async def serve(listen: tuple[str, int], to: tuple[str, int], delay_ms: float) -> None:
    """Until cancelled; says `ready` once it listens."""
    loop = asyncio.get_running_loop()
    half = delay_ms / 2000

    class Near(Road):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            far = Road(half)
            self.other, far.other = far, self
            assert self.transport is not None
            self.transport.pause_reading()
            connecting.add(task := loop.create_task(self._connect(far)))
            task.add_done_callback(connecting.discard)

        async def _connect(self, far: Road) -> None:
            assert self.transport is not None
            try:
                await loop.create_connection(lambda: far, *to)
            except OSError:
                self.transport.close()
            else:
                self.transport.resume_reading()

    connecting: set[asyncio.Task[None]] = set()
    server = await loop.create_server(lambda: Near(half), *listen)
    print("ready", flush=True)
    await server.serve_forever()


@contextmanager
def road(listen: str, to: str, delay_ms: float) -> Iterator[None]:
    """A proxy from one HOST:PORT to another in a process of its own, ready when this is entered."""
    command = [sys.executable, "-m", "bench.delaying_proxy", listen, to, str(delay_ms)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise OSError(f"the delaying proxy cannot listen on {listen}")
        yield
    finally:
        process.terminate()
        process.wait(10)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    asyncio.run(serve(_address(sys.argv[1]), _address(sys.argv[2]), float(sys.argv[3])))
