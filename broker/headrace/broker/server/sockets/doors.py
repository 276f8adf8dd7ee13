"""The listening sockets, and who comes in by them: how fast, how many, and from where (`quotas.connections`).

A listener that is full, or takes connections as fast as it may, takes no more for a while: who connects meanwhile waits in the
backlog of its socket, and the connection that was too early is held until its time (KIP-402, KIP-612). One that comes from an
address which makes too many a second is kept without being served, then closed, so that it does not come again at
once. Invariants: a door holds one connection at most; at most `KEPT_COUNT_MAX` connections are kept before they are closed.
Must not know what becomes of a connection that was let in.
"""

from __future__ import annotations

import errno
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Sequence

from headrace.broker.auth.hosts import host_text
from headrace.broker.clock import Clock
from headrace.broker.config.listeners import Listener
from headrace.broker.log.files import advice
from headrace.broker.quotas.connections import Connections
from headrace.broker.server.status.metrics import BrokerMetrics
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)
ACCEPTS_PER_TURN_MAX = 16
ACCEPT_PAUSE_S = 1.0
REPEAT_MS = 60_000
KEPT_COUNT_MAX = 1000
DESCRIPTORS_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
BY_LISTENER, BY_ADDRESS = "listener", "address"
LetIn = Callable[[socket.socket, str, Listener], None]
"""A connection, the address that it comes from, and by which listener."""


class Doors:
    """All of them. `let_in(sock, address, listener)` is told of each connection that may be; it counts it as opened."""

    def __init__(
        self,
        sockets: Sequence[tuple[Listener, socket.socket]],
        connections: Connections,
        metrics: BrokerMetrics,
        loop: AbstractEventLoop,
        clock: Clock,
        let_in: LetIn,
    ) -> None:
        self.connections = connections
        self.metrics = metrics
        self.loop = loop
        self.clock = clock
        self.let_in = let_in
        self._doors = [_Door(self, listener, sock) for listener, sock in sockets]
        self._kept: dict[socket.socket, TimerHandle] = {}
        # When the next line about connections that are not taken is due, by what is wrong.
        self._next_complaint_ms: dict[str, int] = {}

    def open(self) -> None:
        """Begin to accept; who connected since the sockets were bound waits in the backlog."""
        for door in self._doors:
            door.open()

    def close(self) -> None:
        """Let nobody in any more, and give the addresses back."""
        for door in self._doors:
            door.close()
        self._doors = []
        for sock in list(self._kept):
            self._close_kept(sock)

    def changed(self) -> None:
        """A connection is closed, or other limits hold: see who may come in now."""
        for door in self._doors:
            door.look_again()

    def is_due(self, complaint: str) -> bool:
        """Whether to say that again: once a minute is enough, however many connections come."""
        now_ms = self.clock.monotonic_ms()
        if now_ms < self._next_complaint_ms.get(complaint, 0):
            return False
        self._next_complaint_ms[complaint] = now_ms + REPEAT_MS
        return True

    def keep(self, sock: socket.socket, wait_ms: int) -> None:
        """Serve nothing on it, and close it after so long."""
        if len(self._kept) >= KEPT_COUNT_MAX:
            sock.close()
            return
        self._kept[sock] = self.loop.call_later(wait_ms / 1000, self._close_kept, sock)

    def _close_kept(self, sock: socket.socket) -> None:
        self._kept.pop(sock).cancel()
        sock.close()


class _Door:
    """One listening socket; `_held` waits for its time, then for a slot."""

    def __init__(self, doors: Doors, listener: Listener, sock: socket.socket) -> None:
        self._doors = doors
        self._listener = listener
        self._socket = sock
        self._held: tuple[socket.socket, str] | None = None
        self._pause: TimerHandle | None = None
        self._is_open = False

    def open(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._doors.loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        self._shut()
        if self._pause is not None:
            self._pause.cancel()
        if self._held is not None:
            self._held[0].close()
            self._held = None
        self._socket.close()

    def look_again(self) -> None:
        """Go on, unless it is not time yet or there is no slot."""
        if self._pause is not None or self._is_open or not self._has_slot():
            return
        if self._held is not None:
            held, self._held = self._held, None
            self._let_in(*held)
        if self._has_slot():
            self.open()

    def _has_slot(self) -> bool:
        return self._doors.connections.has_slot(self._listener.name)

    def _shut(self) -> None:
        if self._is_open:
            self._is_open = False
            self._doors.loop.remove_reader(self._socket.fileno())

    def _shut_for(self, seconds: float) -> None:
        self._shut()
        self._pause = self._doors.loop.call_later(seconds, self._pause_is_over)

    def _pause_is_over(self) -> None:
        self._pause = None
        self.look_again()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            if not self._has_slot():
                self._shut()
                if self._doors.is_due("full"):
                    logger.warning("no connections taken until one closes", listener=self._listener.name)
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._failed(error)
                return
            host = host_text(address[0])
            now_ms = self._doors.clock.monotonic_ms()
            wait_ms = self._doors.connections.listener_wait_ms(self._listener.name, now_ms)
            if wait_ms:
                self._doors.metrics.connection_throttled(self._listener.name, BY_LISTENER, wait_ms)
                self._held = sock, host
                self._shut_for(wait_ms / 1000)
                return
            self._let_in(sock, host)

    def _failed(self, error: OSError) -> None:
        """Out of descriptors the listening socket stays readable: pause instead of spinning."""
        if self._doors.is_due("failed"):
            reason = f"{error.strerror}. {advice(error)}".rstrip()
            logger.error("cannot accept connections", listener=self._listener.name, reason=reason)
        if error.errno in DESCRIPTORS_EXHAUSTED:
            self._shut_for(ACCEPT_PAUSE_S)

    def _let_in(self, sock: socket.socket, host: str) -> None:
        doors, name = self._doors, self._listener.name
        wait_ms = doors.connections.address_wait_ms(name, host, doors.clock.monotonic_ms())
        if wait_ms:
            doors.metrics.connection_throttled(name, BY_ADDRESS, wait_ms)
            doors.keep(sock, wait_ms)
        elif doors.connections.is_one_too_many(host):
            logger.warning("connection refused", host=host, reason="max.connections.per.ip is reached")
            sock.close()
        else:
            doors.let_in(sock, host, self._listener)
