"""Limits of connections beside Apache Kafka: who is let in, who waits, and who is closed when."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
from pairs import running_pair
from processes import eventually
from raw_client import read_frame
from sessions import API_VERSIONS, INCREMENTAL_ALTER_CONFIGS, Message, Pair, Session
from test_conformance_quotas import ALTER_QUOTAS, alteration
from zookeeper_process import ZooKeeperProcess

Address = tuple[str, int]
# One of the machine's own addresses for each test, so that none is held back for what another did.
TOO_FAST, TOO_MANY = "127.0.0.5", "127.0.0.6"


class Client:
    """A connection that comes from an address of its own."""

    def __init__(self, broker: Address, source: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection(broker, timeout=20, source_address=(source, 0))

    def is_served(self, within_s: float = 20) -> bool:
        """Whether a request is answered in that time, and the connection not closed."""
        frame = Session(("", 0)).frame(API_VERSIONS, 0, {})
        self._socket.settimeout(within_s)
        with suppress(ConnectionError, TimeoutError):
            self._socket.sendall(frame)
            return bool(read_frame(self._socket))
        return False

    def wait_until_closed(self) -> None:
        with suppress(ConnectionError):
            while self._socket.recv(100):
                pass

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def sessions(pair: Pair) -> Iterator[list[Session]]:
    """headrace's and Kafka's."""
    made = [Session(pair.headrace.addresses[0]), Session(pair.kafka.address)]
    yield made
    for session in made:
        session.close()


def brokers(pair: Pair) -> list[Address]:
    return [pair.headrace.addresses[0], pair.kafka.address]


def configure(session: Session, **configs: str | None) -> int:
    """Set or remove what a broker is configured with; the error."""
    changes = [
        {"name": name.replace("_", "."), "config_operation": 1 if value is None else 0, "value": value}
        for name, value in configs.items()
    ]
    wish: Message = {"resource_type": 4, "resource_name": "1", "configs": changes}
    (answer,) = session.look(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [wish]})["responses"]
    return int(answer["error_code"])


def limit(session: Session, address: str | None, rate: float | None) -> None:
    entry = alteration({"ip": address}, {"connection_creation_rate": rate})
    session.look(ALTER_QUOTAS, 1, {"entries": [entry], "validate_only": False})


def test_an_address_connects_so_often_and_is_closed_late_above_that(
    pair: Pair, sessions: list[Session]
) -> None:
    seen = []
    for session, broker in zip(sessions, brokers(pair), strict=True):
        limit(session, TOO_FAST, 0)
        eventually(partial(_lets_in, broker, False), what="the limit")
        limit(session, TOO_FAST, 1)
        began = time.monotonic()
        eventually(partial(_lets_in, broker, True), what="another limit")
        clients = [Client(broker, TOO_FAST) for _ in range(12)]
        assert Client(broker, "127.0.0.1").is_served(), "others are let in"
        clients[-1].wait_until_closed()
        waited_s = time.monotonic() - began
        seen.append(([client.is_served(3) for client in clients].count(True), waited_s))
        limit(session, TOO_FAST, None)
        eventually(partial(_lets_in, broker, True), what="no limit")
    ours, theirs = seen
    # Ten a burst, one of them for the look before, which the second that one has to wait is counted from.
    assert ours[0] == theirs[0] == 9
    # How much longer than that it takes is the machine's matter.
    assert all(0.9 < waited_s < 10 for _, waited_s in seen)


def test_an_address_has_so_many_connections(pair: Pair, sessions: list[Session]) -> None:
    for session, broker in zip(sessions, brokers(pair), strict=True):
        assert configure(session, max_connections_per_ip_overrides=f"{TOO_MANY}:2,localhost:1000") == 0
        eventually(partial(_serves, broker, 2), what="the limit")
        assert configure(session, max_connections_per_ip_overrides=None) == 0
        eventually(partial(_serves, broker, 3), what="no limit")


def _lets_in(broker: Address, wanted: bool) -> bool:
    client = Client(broker, TOO_FAST)
    try:
        return client.is_served(2) == wanted
    finally:
        client.close()


def _serves(broker: Address, count: int) -> bool:
    """Whether just so many of three connections of an address are served at a time."""
    with ExitStack() as stack:
        clients = []
        for _ in range(3):
            clients.append(Client(broker, TOO_MANY))
            stack.callback(clients[-1].close)
        return sum(client.is_served() for client in clients) == count


@pytest.mark.parametrize(
    "configs",
    [
        {"max_connections": "0"},
        {"max_connections": "-1"},
        {"max_connections_per_ip": "0"},
        {"max_connections_per_ip_overrides": "no such form"},
        {"max_connection_creation_rate": "0"},
        {"max_connection_creation_rate": "many"},
        {"listener_name_plaintext_max_connections": "0"},
        {"listener_name_plaintext_max_connection_creation_rate": "-1"},
    ],
)
def test_limits_that_make_no_sense_are_refused(sessions: list[Session], configs: dict[str, str]) -> None:
    ours, theirs = (configure(session, **configs) for session in sessions)
    assert ours == theirs != 0


def test_limits_of_a_listener_are_taken(sessions: list[Session]) -> None:
    names = "listener_name_plaintext_max_connections", "listener_name_plaintext_max_connection_creation_rate"
    for value in ("1000000", None):
        ours, theirs = (configure(session, **dict.fromkeys(names, value)) for session in sessions)
        assert ours == theirs == 0


@pytest.fixture(scope="module")
def narrow(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Brokers that take few connections, measured over two windows."""
    limits = {"max.connections": "8", "quota.window.num": "2"}
    with running_pair(kafka_jars, zookeeper, tmp_path_factory.mktemp("narrow"), set=limits) as both:
        yield both


@pytest.mark.long
def test_who_finds_a_broker_full_waits_until_somebody_leaves(narrow: Pair) -> None:
    for broker in brokers(narrow):
        inside: list[Client] = []
        while True:
            client = Client(broker)
            if not client.is_served(2):
                break
            inside.append(client)
        assert 5 <= len(inside) <= 8
        inside.pop().close()
        # What it asked is answered when its turn has come.
        assert client.is_served(10)
        late = Client(broker)
        assert not late.is_served(1)
        for each in (*inside, client, late):
            each.close()


@pytest.mark.long
def test_a_listener_takes_so_many_connections_a_second_and_lets_the_others_wait(narrow: Pair) -> None:
    seen = []
    for broker in brokers(narrow):
        session = Session(broker)
        rate = {"listener_name_plaintext_max_connection_creation_rate": "4"}
        assert configure(session, **rate) == 0
        time.sleep(3)
        began = time.monotonic()
        for _ in range(12):
            client = Client(broker)
            assert client.is_served()
            client.close()
        seen.append(time.monotonic() - began)
        configure(session, **dict.fromkeys(rate))
        session.close()
    ours, theirs = seen
    # Four at once, and a quarter of a second for each other.
    assert 1.5 < ours < 3.5
    assert ours == pytest.approx(theirs, abs=1)
