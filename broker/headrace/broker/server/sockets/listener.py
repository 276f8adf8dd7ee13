"""The connections of clients: those that `server.sockets.doors` lets in, until they close or are idle for too long.

Invariants: never more than `max.connections`, but for those of brokers by a listener of their own, for which others have to
go; a connection without traffic for `connections.max.idle.ms` is closed. Owns the set of connections.
"""

from __future__ import annotations

import select
import socket
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from heapq import nsmallest

from headrace.broker.addresses import address_text
from headrace.broker.auth.principal import USER, Principal
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.listeners import Listener
from headrace.broker.config.sections import Network
from headrace.broker.handlers.call import Client
from headrace.broker.handlers.services import Services
from headrace.broker.quotas.connections import Connections
from headrace.broker.server.access.log_ins import LogIns
from headrace.broker.server.sockets.connection import Connection
from headrace.broker.server.sockets.doors import Doors
from headrace.broker.server.sockets.handshake import Handshake
from headrace.broker.server.sockets.holdings import Holdings
from headrace.broker.server.sockets.tls_listeners import TlsListeners
from headrace.broker.server.sockets.tls_transport import TlsTransport
from headrace.broker.server.sockets.transport import PlainTransport, Transport
from headrace.broker.server.sockets.turns import Turns
from headrace.broker.server.status.metrics import BrokerMetrics
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)


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
        counts: Connections,
        metrics: BrokerMetrics,
        loop: AbstractEventLoop,
        now: Callable[[], float] = time.monotonic,
        tls: TlsListeners | None = None,
        log_ins: LogIns | None = None,
    ) -> None:
        self._broker = broker
        self._counts = counts
        self._metrics = metrics
        self._turns = Turns(loop, broker.together, now)
        self._holdings = Holdings(broker.config.network.socket_request_max_bytes)
        self._tls = tls
        self._log_ins = log_ins
        self._connections: set[Connection | Handshake] = set()
        self._doors = Doors(sockets, counts, metrics, loop, broker.clock, self._let_in)
        metrics.connections = lambda: len(self._connections)

    def start(self) -> None:
        """Begin to accept; who connected since `bind` waits in the backlog."""
        self._doors.open()

    def stop(self) -> None:
        """Stop to accept and give the addresses back; open connections stay."""
        self._doors.close()

    def limits_changed(self) -> None:
        """Others hold from now on."""
        self._close_excess()
        self._doors.changed()

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

    def _let_in(self, sock: socket.socket, host: str, listener: Listener) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._counts.opened(listener.name, host)
        self._metrics.connections_accepted += 1
        if listener.is_tls:
            self._shake_hands(sock, host, listener)
        else:
            self._serve(PlainTransport(sock), Client(host, listener.name), listener)
        self._close_excess()

    def _close_excess(self) -> None:
        """Brokers came in although the broker was full, or fewer connections may be now: others go, those least used."""
        excess = self._counts.excess_count
        if not excess:
            return
        others = [c for c in self._connections if not self._counts.is_protected(c.listener)]
        for connection in nsmallest(excess, others, key=lambda c: (c.is_used, c.idle_since_ms)):
            connection.close("max.connections is reached")

    def _serve(self, transport: Transport, client: Client, listener: Listener) -> Connection:
        connection = Connection(
            transport,
            client,
            self._broker,
            self._metrics,
            self._turns,
            self._holdings,
            self._closed,
            None if self._log_ins is None else self._log_ins.at(listener),
        )
        self._connections.add(connection)
        return connection

    def _shake_hands(self, sock: socket.socket, host: str, listener: Listener) -> None:
        def secured(handshake: Handshake, transport: TlsTransport, name: str) -> None:
            self._connections.discard(handshake)
            self._metrics.handshakes += 1
            client = Client(host, listener.name, principal=Principal(USER, name))
            connection = self._serve(transport, client, listener)
            # A request may have come with the end of the handshake, of which the socket tells nothing.
            connection.heard(select.EPOLLIN)
            self._turns.want(connection)

        assert self._tls is not None, "listeners with TLS have something to serve with"
        handshake = Handshake(
            sock,
            host,
            self._tls[listener.name],
            self._turns,
            secured=secured,
            closed=self._closed,
            failed=self._metrics.handshake_failed,
        )
        self._connections.add(handshake)

    def _closed(self, connection: Connection | Handshake) -> None:
        self._connections.discard(connection)
        self._counts.closed(connection.listener, connection.host)
        self._doors.changed()
