"""Who comes in by the listening sockets, when, and who has to wait in front of them."""

from __future__ import annotations

import errno
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.config.listeners import Listener
from headrace.broker.quotas.buckets import Windows
from headrace.broker.quotas.connections import ConnectionLimits, Connections, ListenerLimits
from headrace.broker.server.sockets import doors as doors_module
from headrace.broker.server.sockets.doors import REPEAT_MS, Doors
from headrace.broker.server.status.metrics import BrokerMetrics

OUTSIDE = "OUTSIDE"
DOOR = 7


class Client:
    """The socket of a client that connects."""

    def __init__(self, host: str = "10.0.0.1") -> None:
        self.host = host
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class ListeningSocket:
    """Those in `waiting` are in its backlog; or else it can accept nobody."""

    def __init__(self) -> None:
        self.waiting: list[Client] = []
        self.failure: OSError | None = None
        self.is_closed = False

    def fileno(self) -> int:
        return DOOR

    def accept(self) -> Any:
        if self.failure is not None:
            raise self.failure
        if not self.waiting:
            raise BlockingIOError
        client = self.waiting.pop(0)
        return client, (client.host, 5555)

    def close(self) -> None:
        self.is_closed = True


class Loop:
    """Readers, and what is to be called later: (when in milliseconds, what)."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.readers: dict[int, Any] = {}
        self.later: list[tuple[int, Any]] = []

    def add_reader(self, number: int, callback: Any) -> None:
        assert number not in self.readers
        self.readers[number] = callback

    def remove_reader(self, number: int) -> None:
        del self.readers[number]

    def call_later(self, delay_s: float, callback: Any, *arguments: Any) -> Any:
        due = (self.now_ms + round(delay_s * 1000), lambda: callback(*arguments))
        self.later.append(due)
        return SimpleNamespace(cancel=lambda: self.later.remove(due) if due in self.later else None)

    def pass_ms(self, passed_ms: int) -> None:
        end_ms = self.now_ms + passed_ms
        while due := sorted([at for at in self.later if at[0] <= end_ms], key=lambda at: at[0]):
            self.later.remove(due[0])
            self.now_ms = due[0][0]
            due[0][1]()
        self.now_ms = end_ms


class World:
    def __init__(self, **limits: Any) -> None:
        self.socket, self.loop, self.metrics = ListeningSocket(), Loop(), BrokerMetrics()
        self.connections = Connections(
            ConnectionLimits(listeners={OUTSIDE: ListenerLimits()}, **limits), Windows(count=2)
        )
        self.inside: list[Client] = []
        self.hosts: list[str] = []
        sockets: Any = [(Listener(OUTSIDE, "localhost", 9092), self.socket)]
        clock: Any = SimpleNamespace(monotonic_ms=lambda: self.loop.now_ms)
        loop: Any = self.loop
        self.doors = Doors(sockets, self.connections, self.metrics, loop, clock, self._let_in)
        self.doors.open()

    def _let_in(self, client: Any, host: str, listener: Listener) -> None:
        self.inside.append(client)
        self.hosts.append(host)
        self.connections.opened(listener.name, host)

    def come(self, *clients: Client) -> None:
        self.socket.waiting += clients
        self.look()

    def look(self) -> None:
        if DOOR in self.loop.readers:
            self.loop.readers[DOOR]()

    def leave(self, client: Client) -> None:
        self.inside.remove(client)
        self.connections.closed(OUTSIDE, client.host)
        self.doors.changed()


def test_out_of_descriptors_it_pauses_and_says_once_a_minute_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.socket.failure = OSError(errno.EMFILE, "Too many open files")
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            world.look()
            assert DOOR not in world.loop.readers, "it must not spin"
            world.loop.pass_ms(1000)
        assert len(caplog.records) == 1
        world.loop.pass_ms(REPEAT_MS)
        world.look()
    assert len(caplog.records) == 2
    reason = vars(caplog.records[0])["facts"]["reason"]
    assert reason.startswith("Too many open files. Let the broker open more files")


def test_a_full_broker_lets_clients_wait_in_the_backlog(caplog: pytest.LogCaptureFixture) -> None:
    world = World(count_max=2)
    first, second, third, fourth = (Client() for _ in range(4))
    world.come(first, second, third, fourth)
    assert world.inside == [first, second]
    assert world.socket.waiting == [third, fourth]
    assert not third.is_closed
    assert [record.getMessage() for record in caplog.records] == ["no connections taken until one closes"]
    world.leave(first)
    world.look()
    assert world.inside == [second, third]


def test_who_comes_too_early_is_let_in_when_it_is_time() -> None:
    world = World(rate=2)
    clients = [Client() for _ in range(5)]
    world.come(*clients)
    # Two windows, one of them whole: two a second.
    assert world.inside == clients[:2]
    assert world.socket.waiting == clients[3:], "one is held"
    world.loop.pass_ms(499)
    assert world.inside == clients[:2]
    world.loop.pass_ms(1)
    assert world.inside == clients[:3]
    assert world.metrics.connection_throttles[OUTSIDE, "listener"][0] == 1
    world.doors.close()
    assert world.socket.is_closed


def test_who_was_held_waits_for_a_slot_as_well() -> None:
    world = World(rate=2, count_max=2)
    first, second, third = (Client() for _ in range(3))
    world.come(first, second)
    world.leave(first)
    world.come(third)
    world.connections.opened(OUTSIDE, "10.0.0.9")
    world.loop.pass_ms(5000)
    assert world.inside == [second]
    world.leave(second)
    assert world.inside == [third]


def test_an_address_that_connects_too_often_is_kept_and_then_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors_module, "KEPT_COUNT_MAX", 2)
    world = World()
    world.connections.limit_address("10.0.0.1", 1)
    clients = [Client() for _ in range(4)]
    other = Client("10.0.0.2")
    world.come(*clients, other)
    assert world.inside == [clients[0], other], "others are let in"
    assert [client.is_closed for client in clients[1:]] == [False, False, True]
    world.loop.pass_ms(1000)
    assert all(client.is_closed for client in clients[1:])
    world.loop.pass_ms(1000)
    world.come(again := Client())
    assert again in world.inside, "refused connections do not count"
    world.come(kept := Client())
    world.doors.close()
    assert kept.is_closed


def test_an_address_has_so_many_connections_and_no_more() -> None:
    world = World(per_address_max=1, per_address_overrides={"10.0.0.2": 2})
    one, two = [Client() for _ in range(2)], [Client("10.0.0.2") for _ in range(3)]
    world.come(*one, *two)
    assert world.inside == [one[0], two[0], two[1]]
    assert [one[1].is_closed, two[2].is_closed] == [True, True]


def test_an_address_of_ipv4_is_one_whatever_the_socket_tells() -> None:
    world = World()
    world.connections.limit_address("10.0.0.1", 1)
    first, second = Client("::ffff:10.0.0.1"), Client("10.0.0.1")
    world.come(first, second)
    assert world.inside == [first]


def test_a_client_has_the_address_that_java_would_write() -> None:
    world = World()
    world.come(Client("2001:db8::1"), Client("::ffff:10.0.0.7"))
    assert world.hosts == ["2001:db8:0:0:0:0:0:1", "10.0.0.7"]
