"""The listening sockets: bind, accept within the limits, sweep idle connections.

Invariants: never more than `max.connections` connections (and `max.connections.per.ip` of one address): what comes
above is accepted and closed at once with a warning; a connection without traffic for `connections.max.idle.ms` is
closed. Owns the set of connections.
"""

from __future__ import annotations

import errno
import socket
import time
from asyncio import AbstractEventLoop
from collections import Counter
from collections.abc import Callable

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.listeners import Listener, address_text
from headrace.broker.config.sections import Network
from headrace.broker.handlers.call import Client
from headrace.broker.handlers.services import Services
from headrace.broker.log.files import advice
from headrace.broker.server.connection import Connection
from headrace.broker.server.holdings import Holdings
from headrace.broker.server.metrics import BrokerMetrics
from headrace.broker.server.turns import Turns
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)
ACCEPTS_PER_TURN_MAX = 16
ACCEPT_PAUSE_S = 1.0
REPEAT_MS = 60_000
DESCRIPTORS_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def bind(listener: Listener, network: Network) -> socket.socket:
    """A listening, non-blocking socket of that address. Raises ConfigurationError when it cannot be had."""
    host = listener.host or "0.0.0.0"
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, listener.port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit the buffer sizes, early enough for the window scale.
        _set_buffers(sock, network)
        sock.bind(address)
    except OSError as error:
        place = f"{listener.name}://{address_text(listener.host, listener.port)}"
        raise ConfigurationError("listeners", place, f"an address that is free here ({error})") from None
    sock.listen(network.socket_listen_backlog_size)
    sock.setblocking(False)
    return sock


def _set_buffers(sock: socket.socket, network: Network) -> None:
    if network.socket_send_buffer_bytes != -1:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, network.socket_send_buffer_bytes)
    if network.socket_receive_buffer_bytes != -1:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, network.socket_receive_buffer_bytes)


class Acceptor:
    """Accepts clients of all listeners and owns their connections."""

    def __init__(
        self,
        sockets: list[tuple[Listener, socket.socket]],
        broker: Services,
        metrics: BrokerMetrics,
        loop: AbstractEventLoop,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sockets = sockets
        self._broker = broker
        self._metrics = metrics
        self._loop = loop
        self._turns = Turns(loop, broker.together, now)
        self._holdings = Holdings(broker.config.network.socket_request_max_bytes)
        self._connections: set[Connection] = set()
        self._by_host: Counter[str] = Counter()
        # When the next line about accepting that fails is due.
        self._next_complaint_ms = 0
        metrics.connections = lambda: len(self._connections)

    def start(self) -> None:
        """Begin to accept; who connected since `bind` waits in the backlog."""
        for listener, sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._accept, listener, sock)

    def stop(self) -> None:
        """Stop to accept and give the addresses back; open connections stay."""
        for _, sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets = []

    def close_all(self) -> None:
        """Close every connection, for good; replies that are there leave first."""
        for connection in list(self._connections):
            connection.close_after_replies()
        self._turns.close()

    def sweep(self) -> None:
        """Close the connections that were idle for too long; call every few seconds."""
        now_ms = self._broker.clock.monotonic_ms()
        idle_ms_max = self._broker.config.network.connections_max_idle_ms
        for connection in list(self._connections):
            if connection.is_used or connection.is_waiting:
                connection.is_used = False
                connection.idle_since_ms = now_ms
            elif 0 <= idle_ms_max <= now_ms - connection.idle_since_ms:
                logger.info("idle connection closed", peer=connection.peer)
                connection.close()

    def _accept(self, listener: Listener, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accept_failed(listener, listening, error)
                return
            self._admit(sock, address[0], listener)

    def _accept_failed(self, listener: Listener, listening: socket.socket, error: OSError) -> None:
        """Out of descriptors the listening socket stays readable: pause instead of spinning, say so once a minute."""
        now_ms = self._broker.clock.monotonic_ms()
        if now_ms >= self._next_complaint_ms:
            self._next_complaint_ms = now_ms + REPEAT_MS
            reason = f"{error.strerror}. {advice(error)}".rstrip()
            logger.error("cannot accept connections", listener=listener.name, reason=reason)
        if error.errno in DESCRIPTORS_EXHAUSTED:
            self._loop.remove_reader(listening.fileno())
            self._loop.call_later(ACCEPT_PAUSE_S, self._accept_again, listener, listening)

    def _accept_again(self, listener: Listener, listening: socket.socket) -> None:
        if self._sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listener, listening)

    def _admit(self, sock: socket.socket, host: str, listener: Listener) -> None:
        network = self._broker.config.network
        if len(self._connections) >= network.max_connections:
            logger.warning("connection refused", host=host, reason="max.connections is reached")
            sock.close()
            return
        if self._by_host[host] >= network.max_connections_per_ip:
            logger.warning("connection refused", host=host, reason="max.connections.per.ip is reached")
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        client = Client(host, listener.name)
        connection = Connection(
            sock, client, self._broker, self._metrics, self._turns, self._holdings, self._closed
        )
        self._connections.add(connection)
        self._by_host[host] += 1
        self._metrics.connections_accepted += 1

    def _closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._by_host[connection.host] -= 1
        if self._by_host[connection.host] <= 0:
            del self._by_host[connection.host]
