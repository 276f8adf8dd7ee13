"""What all clients make a broker hold has one bound: who has held something for the longest goes first."""

from __future__ import annotations

import socket
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from manual_loop import ManualLoop

from headrace.broker.handlers import table
from headrace.broker.handlers.call import Client
from headrace.broker.handlers.table import Handler
from headrace.broker.quotas.usage import unlimited
from headrace.broker.server.sockets import holdings as holdings_module
from headrace.broker.server.sockets import transport
from headrace.broker.server.sockets.connection import Connection
from headrace.broker.server.sockets.holdings import LARGE_SIZE, Holdings
from headrace.broker.server.sockets.transport import PlainTransport
from headrace.broker.server.sockets.turns import Turns
from headrace.broker.server.status.metrics import BrokerMetrics
from headrace.broker.waiting.round import Round
from headrace.broker.wire.api import APIS

MB = 1 << 20
METADATA = 3


class Crowd:
    """Connections under one bound, and their clients' ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = ManualLoop()
        self.turns = Turns(self.loop, Round())  # type: ignore[arg-type]
        monkeypatch.setattr(holdings_module, "HELD_SIZE_MAX", 40 * MB)
        self.holdings = Holdings(10 * MB)
        self.reply_size = 10
        handler = Handler(METADATA, "M", 0, 1, APIS[METADATA], self.serve)
        monkeypatch.setattr(table, "HANDLERS", {METADATA: handler})
        monkeypatch.setattr(transport, "peer_of", lambda sock: "peer")
        network = SimpleNamespace(socket_request_max_bytes=100 * MB)
        self.metrics: Any = BrokerMetrics()
        self.broker: Any = SimpleNamespace(
            config=SimpleNamespace(network=network), metrics=self.metrics, client_usage=unlimited()
        )
        self.clients: list[socket.socket] = []
        self.connections: list[Connection] = []

    def serve(self, *_: Any) -> Any:
        return [bytes(self.reply_size)]

    def come(self) -> socket.socket:
        ours, client = socket.socketpair()
        ours.setblocking(False)
        client.setblocking(False)
        self.connections.append(
            Connection(
                PlainTransport(ours),
                Client("host", "PLAINTEXT"),
                self.broker,
                self.metrics,
                self.turns,
                self.holdings,
                lambda _: None,
            )
        )
        self.clients.append(client)
        return client

    def send(self, client: socket.socket, data: bytes) -> None:
        while data:
            try:
                data = data[client.send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                return
            self.loop.settle()

    def open(self) -> list[int]:
        return [number for number, connection in enumerate(self.connections) if not connection.is_closed]


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Crowd:
    return Crowd(monkeypatch)


def request(size: int) -> bytes:
    return struct.pack(">ihhih", size, METADATA, 1, 1, -1) + bytes(size - 10)


def test_parts_of_large_requests_are_bounded_and_the_oldest_go(crowd: Crowd) -> None:
    for _ in range(20):
        crowd.send(crowd.come(), request(9 * MB)[: 8 * MB])
        assert crowd.holdings.size <= 40 * MB
    assert crowd.open() == [16, 17, 18, 19]


def test_a_request_that_is_whole_holds_nothing_any_more(crowd: Crowd) -> None:
    for _ in range(10):
        crowd.send(crowd.come(), request(10 * MB))
        assert crowd.holdings.size == 0
    assert len(crowd.open()) == 10


def test_large_replies_that_nobody_reads_are_bounded(crowd: Crowd) -> None:
    crowd.reply_size = 10 * MB
    for _ in range(20):
        crowd.send(crowd.come(), request(100))
        assert crowd.holdings.size <= 40 * MB
    assert crowd.open() == [16, 17, 18, 19]


def test_a_large_reply_that_is_read_holds_nothing_any_more(crowd: Crowd) -> None:
    crowd.reply_size = LARGE_SIZE + 1
    client = crowd.come()
    crowd.send(client, request(100))
    assert crowd.holdings.size == LARGE_SIZE + 1
    received = 0
    while received < crowd.reply_size:
        received += len(client.recv(MB))
        crowd.loop.settle()
    assert crowd.holdings.size == 0


def test_small_requests_are_not_counted(crowd: Crowd) -> None:
    for _ in range(50):
        crowd.send(crowd.come(), request(MB)[: MB // 2])
    assert (crowd.holdings.size, len(crowd.open())) == (0, 50)


def test_the_largest_request_that_is_allowed_has_room() -> None:
    assert Holdings(1 << 30).size_max == 4 << 30
