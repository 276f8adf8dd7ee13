"""The network between simulated hosts: each connection is a pair of real sockets with a seeded way in between.

A broker has its real acceptor, connections and turns on one end of the pair; `Line` is the other end, as a client or another
broker has it. Bytes take random time and stay in order. While `is_faulty`, connections break: before a request arrived or
after it, so that its answer is lost; and what was sent on a connection that its opener then closed arrives all the same now
and then, much later. A way that is cut in one direction holds what goes there until it is healed, as retransmission does; what
a paused host sends and what is sent to it waits likewise. A way may be slow in one direction, too.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Any

from virtual_time import VirtualLoop

from headrace.broker.wire.client.exchange import A, Exchange, ProtocolError, Q, Spoken
from headrace.broker.wire.client.view import Address

FIRST_ADDRESS = IPv4Address("10.0.0.1")
LOOK_AGAIN_SECONDS = 0.02
PIECE_SIZE = 64 * 1024
LATE_CHANCE, LATE_SECONDS_MAX = 0.5, 8.0
"""Of a request that is on its way when its sender closes the connection."""


class BrokerEnd(socket.socket):
    """The accepted side of a connection: a socket of the host, with the names that the simulation gives."""

    peer: tuple[str, int] = ("", 0)

    def getpeername(self) -> tuple[str, int]:
        return self.peer

    def setsockopt(self, level: int, option: int, value: Any, *rest: Any) -> None:
        """There is no TCP in between."""


class Listening:
    """A listening socket: readable while somebody waits to be accepted."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._backlog: deque[BrokerEnd] = deque()
        self.is_closed = False

    def fileno(self) -> int:
        return self._bell

    def getsockname(self) -> Address:
        return self._address

    def accept(self) -> tuple[BrokerEnd, tuple[str, int]]:
        if not self._backlog:
            os.eventfd_read(self._bell)
            raise BlockingIOError
        end = self._backlog.popleft()
        return end, end.peer

    def offer(self, end: BrokerEnd) -> None:
        if not self._backlog:
            os.eventfd_write(self._bell, 1)
        self._backlog.append(end)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            os.close(self._bell)
            for end in self._backlog:
                end.close()


class Network:
    """All hosts' ways to each other. `break_chance` is that of a request while `is_faulty`."""

    def __init__(self, loop: VirtualLoop, random: random.Random, break_chance: float) -> None:
        self.loop = loop
        self.random = random
        self.is_faulty = True
        self.broken_count = self.late_count = 0
        self._break_chance = break_chance
        self._listening: dict[Address, Listening] = {}
        self._lines: dict[Line, None] = {}
        self._cut: set[tuple[str, str]] = set()
        self._slow: dict[tuple[str, str], float] = {}
        self._paused_until: dict[str, float] = {}
        self._port = 50_000
        # By name of a host; sockets tell no names.
        self._addresses: dict[str, str] = {}

    def listen(self, address: Address) -> Listening:
        """A host's listening socket, in place of one that a dead process left."""
        self.hang_up(address)
        listening = self._listening[address] = Listening(address)
        return listening

    def hang_up(self, address: Address) -> None:
        """The process behind an address is gone: its connections break, new ones are refused."""
        if address in self._listening:
            self._listening.pop(address).close()
        for line in [line for line in self._lines if line.target == address]:
            line.break_off()

    def forget(self, source: str) -> None:
        """The process that opened these connections is gone."""
        for line in [line for line in self._lines if line.source == source]:
            line.close()

    def cut(self, source: str, target: str) -> None:
        """Nothing that `source` sends arrives at `target`, until `mend` or `heal`."""
        self._cut.add((source, target))

    def slow(self, source: str, target: str, seconds_max: float) -> None:
        """What `source` sends to `target` takes up to so much longer, until `mend` or `heal`."""
        self._slow[source, target] = seconds_max

    def mend(self, source: str, target: str) -> None:
        """This way is as good as any again."""
        self._cut.discard((source, target))
        self._slow.pop((source, target), None)

    def heal(self) -> None:
        self._cut.clear()
        self._slow.clear()

    def pause(self, host: str, seconds: float) -> None:
        """Nothing leaves the host nor arrives there meanwhile."""
        self._paused_until[host] = self.loop.time() + seconds

    def holds(self, source: str, target: str) -> bool:
        now = self.loop.time()
        return (source, target) in self._cut or any(
            self._paused_until.get(host, 0.0) > now for host in (source, target)
        )

    async def open(self, source: str, address: Address) -> Line:
        """A connection; raises ConnectionRefusedError."""
        await asyncio.sleep(self.delay())
        while self.holds(source, address[0]) or self.holds(address[0], source):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        listening = self._listening.get(address)
        if listening is None or listening.is_closed:
            raise ConnectionRefusedError(f"nobody listens at {address}")
        near, far = socket.socketpair()
        near.setblocking(False)
        end = BrokerEnd(fileno=far.detach())
        self._port += 1
        end.peer = (self._address_of(source), self._port)
        line = Line(self, source, address, near)
        self._lines[line] = None
        listening.offer(end)
        return line

    def _address_of(self, host: str) -> str:
        return self._addresses.setdefault(host, str(FIRST_ADDRESS + len(self._addresses)))

    def closed(self, line: Line) -> None:
        self._lines.pop(line, None)

    def delay(self) -> float:
        slow = self.is_faulty and self.random.random() < 0.02
        return self.random.uniform(0, 0.2 if slow else 0.002)

    def way(self, source: str, target: str) -> float:
        """How long something takes from one to the other."""
        longer = self._slow.get((source, target), 0.0)
        return self.delay() + (self.random.uniform(0, longer) if longer else 0.0)

    def is_late(self) -> bool:
        if self.is_faulty and self.random.random() < LATE_CHANCE:
            self.late_count += 1
            return True
        return False

    def breaks(self) -> bool:
        if self.is_faulty and self.random.random() < self._break_chance:
            self.broken_count += 1
            return True
        return False


class Line:
    """A connection as the side has it that opened it."""

    def __init__(self, network: Network, source: str, target: Address, near: socket.socket) -> None:
        self.source, self.target = source, target
        self._network = network
        self._near = near
        self._loses_answer = False
        self._is_broken = False
        self._is_given_up = False
        self._received = bytearray()
        self._news = asyncio.Event()
        # What is on its way, and when the last of it arrives: to the broker (True), and back.
        self._on_way: dict[bool, deque[Callable[[], None]]] = {True: deque(), False: deque()}
        self._last_at = {True: 0.0, False: 0.0}
        network.loop.add_reader(near.fileno(), self._readable)

    def send(self, data: bytes) -> None:
        """Have the bytes arrive some time, unless the connection breaks."""
        if self._is_broken or self._is_given_up:
            raise ConnectionResetError("the connection broke")
        if self._network.breaks():
            self._loses_answer = self._network.random.random() < 0.6
            if not self._loses_answer:
                self._later(self.break_off, there=True)
                return
        self._later(lambda: self._arrive(data), there=True)

    async def receive(self) -> bytes:
        """What has arrived since; b"" at the end of the connection."""
        while not self._received and not (self._is_broken or self._is_given_up):
            self._news.clear()
            await self._news.wait()
        data = bytes(self._received)
        self._received.clear()
        return data

    def break_off(self) -> None:
        """The connection is over; who sits at this end hears of it."""
        if not self._is_broken:
            self._is_broken = True
            self._network.loop.remove_reader(self._near.fileno())
            self._near.close()
            self._network.closed(self)
            self._news.set()

    def close(self) -> None:
        """Who opened it wants nothing more of it; what was sent may arrive late."""
        if self._is_broken or self._is_given_up:
            return
        if self._on_way[True] and self._network.is_late():
            self._is_given_up = True
            self._news.set()
            self._network.loop.call_later(
                self._network.random.uniform(0, LATE_SECONDS_MAX), self._arrive_late
            )
        else:
            self.break_off()

    def _arrive_late(self) -> None:
        if self._network.holds(*self._ends(there=True)):
            self._network.loop.call_later(LOOK_AGAIN_SECONDS, self._arrive_late)
            return
        while self._on_way[True] and not self._is_broken:
            self._on_way[True].popleft()()
        self._network.loop.call_later(LOOK_AGAIN_SECONDS, self.break_off)

    def _arrive(self, data: bytes) -> None:
        try:
            sent = self._near.send(data)
        except OSError:
            # The broker's end is closed already.
            return
        assert sent == len(data), "requests of simulations are small"

    def _readable(self) -> None:
        try:
            data = self._near.recv(PIECE_SIZE)
        except OSError:
            data = b""
        if not data:
            self._network.loop.remove_reader(self._near.fileno())
        if not data or self._loses_answer:
            self._later(self.break_off, there=False)
        else:
            self._later(lambda: self._come_back(data), there=False)

    def _come_back(self, data: bytes) -> None:
        self._received += data
        self._news.set()

    def _later(self, work: Callable[[], None], *, there: bool) -> None:
        """After a way of random length, behind what went there before."""
        loop = self._network.loop
        length = self._network.way(*self._ends(there))
        at = self._last_at[there] = max(self._last_at[there], loop.time() + length)
        self._on_way[there].append(work)
        loop.call_at(at, self._go, there)

    def _ends(self, there: bool) -> tuple[str, str]:
        return (self.source, self.target[0]) if there else (self.target[0], self.source)

    def _go(self, there: bool) -> None:
        if self._is_broken or self._is_given_up or not self._on_way[there]:
            return
        if self._network.holds(*self._ends(there)):
            self._network.loop.call_later(LOOK_AGAIN_SECONDS, self._go, there)
        else:
            self._on_way[there].popleft()()


class SimulatedLink:
    """`client.asynchronous.AsyncLink` over a line: the real exchange of encoded requests and answers."""

    def __init__(self, line: Line, exchange: Exchange, timeout_ms: int) -> None:
        self._line = line
        self._exchange = exchange
        self._timeout_ms = timeout_ms

    @classmethod
    async def open(
        cls,
        network: Network,
        source: str,
        address: Address,
        client_id: str,
        timeout_ms: int,
        *,
        negotiates: bool = True,
    ) -> SimulatedLink:
        async with asyncio.timeout(timeout_ms / 1000):
            line = await network.open(source, address)
            link = cls(line, Exchange(client_id, negotiates=negotiates), timeout_ms)
            try:
                if negotiates:
                    await link._carry(link._exchange.versions_request())
            except BaseException:
                link.close()
                raise
        return link

    async def __aenter__(self) -> SimulatedLink:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def version(self, api: Spoken[Any, Any], highest: int) -> int:
        """As `AsyncLink.version`."""
        return self._exchange.version(api, highest)

    async def ask(self, api: Spoken[Q, A], highest: int, message: Q, /) -> A:
        answer: A = await self._carry(self._exchange.request(api, highest, message))
        return answer

    async def ask_all(self, api: Spoken[Q, A], version: int, messages: Sequence[Q]) -> list[A]:
        """Send requests at once; their answers, in order: fewer when the connection breaks, and is of no use then."""
        exchanges = [Exchange("pipelined", negotiates=False) for _ in messages]
        pairs = zip(exchanges, messages, strict=True)
        requests = b"".join(exchange.request(api, version, message) for exchange, message in pairs)
        answers: list[A] = []
        data = b""
        with suppress(OSError):
            async with asyncio.timeout(self._timeout_ms / 1000):
                self._line.send(requests)
                for exchange in exchanges:
                    answer = None
                    while answer is None:
                        data = data or await self._line.receive()
                        if not data:
                            raise ProtocolError("the connection broke")
                        size = min(exchange.missing, len(data))
                        exchange.writable()[:size] = data[:size]
                        answer = exchange.received(size)
                        data = data[size:]
                    answers.append(answer)
        return answers

    def close(self) -> None:
        self._line.close()

    async def _carry(self, request: bytes) -> Any:
        answer = None
        async with asyncio.timeout(self._timeout_ms / 1000):
            self._line.send(request)
            while answer is None:
                answer = self._take(await self._line.receive())
        return answer

    def _take(self, data: bytes) -> Any:
        if not data:
            raise ProtocolError("the connection broke")
        answer = None
        while data:
            space = self._exchange.writable()
            size = min(len(space), len(data))
            space[:size] = data[:size]
            answer = self._exchange.received(size)
            data = data[size:]
        return answer
