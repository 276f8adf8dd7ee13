"""A connection whose client has to log in: what is held of it, for how long, how it ends; and thousands of odd beginnings."""

from __future__ import annotations

import logging
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from manual_loop import ManualLoop

from headrace.broker.auth.sasl.credentials import credential_for
from headrace.broker.auth.sasl.exchange import Authenticated, ServerExchange
from headrace.broker.auth.sasl.plain import PlainServer
from headrace.broker.auth.sasl.scram import Known, ScramServer
from headrace.broker.handlers import table
from headrace.broker.handlers.call import Client
from headrace.broker.handlers.log_in import LogIn
from headrace.broker.quotas.usage import unlimited
from headrace.broker.server.access.log_ins import LOG_IN_SIZE_MAX, LogInFigures
from headrace.broker.server.sockets import transport
from headrace.broker.server.sockets.connection import LOG_IN_S_MAX, Connection
from headrace.broker.server.sockets.holdings import Holdings
from headrace.broker.server.sockets.transport import PlainTransport
from headrace.broker.server.sockets.turns import Turns
from headrace.broker.server.status.metrics import KEY_COUNT
from headrace.broker.waiting.round import Round
from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS

HANDSHAKE, VERSIONS, AUTHENTICATE = 17, 18, 36
ALLOWED = (HANDSHAKE, VERSIONS, AUTHENTICATE)
DELAY_MS = 250
FUZZED_COUNT = 3000


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair of sockets has no addresses."""
    monkeypatch.setattr(transport, "peer_of", lambda sock: "peer")


class Mechanisms:
    names: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256")
    known = Known(credential_for("SCRAM-SHA-256", "secret", b"salt", 4096), Authenticated("alice"))

    def exchange(self, mechanism: str) -> ServerExchange:
        if mechanism == "PLAIN":
            return PlainServer({"alice": "secret"})
        return ScramServer(mechanism, lambda *_: self.known, "nonce")

    def session_ms_max(self, mechanism: str) -> int:
        return 0


class Bench:
    """A connection at a listener where clients log in, and the client's end of it."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.served: list[int] = []
        self.figures = LogInFigures()
        ours, self.client = socket.socketpair()
        ours.setblocking(False)
        self.client.settimeout(5)
        metrics: Any = SimpleNamespace(
            handling_seconds=[0.0] * KEY_COUNT,
            waiting_seconds=[0.0] * KEY_COUNT,
            bytes_in=0,
            bytes_out=0,
            muted_connections=0,
            request=lambda key, size: self.served.append(key),
            failed=lambda *_: None,
        )
        broker: Any = SimpleNamespace(
            config=SimpleNamespace(
                network=SimpleNamespace(socket_request_max_bytes=10_000_000),
                sasl=SimpleNamespace(connection_failed_authentication_delay_ms=DELAY_MS),
            ),
            metrics=metrics,
            client_usage=unlimited(),
            api_versions=table.VERSIONS,
            clock=SimpleNamespace(monotonic_ms=lambda: 0, now_ms=lambda: 0),
        )
        self.turns = Turns(self.loop, Round(), lambda: 0.0)  # type: ignore[arg-type]
        self.who = Client("host", "SASL_PLAINTEXT")
        self.connection = Connection(
            PlainTransport(ours),
            self.who,
            broker,
            metrics,
            self.turns,
            Holdings(0),
            lambda _: None,
            LogIn(Mechanisms(), self.figures, LOG_IN_SIZE_MAX),
        )

    def send(self, data: bytes) -> None:
        self.client.sendall(data)
        self.loop.settle()

    def ask(self, key: int, version: int, message: dict[str, Any]) -> dict[str, Any]:
        self.send(request(key, version, message))
        reply = self.client.recv(65536)[4:]
        _, offset = frames.read_response_header(key, version, reply)
        return APIS[key].decode_response(version, reply, offset)

    def is_closed(self) -> bool:
        return self.connection.is_closed

    @property
    def capacity(self) -> int:
        """Bytes that the connection's read buffer takes."""
        return self.connection._decoder.capacity

    def pass_time(self, delay_s: float) -> None:
        """Run what was to come after that time."""
        for timer in [t for t in self.loop.timers if t.delay_s == delay_s and not t.is_cancelled]:
            timer.callback()
        self.loop.settle()

    def end(self) -> None:
        self.connection.close()
        self.client.close()
        self.turns.close()


def request(key: int, version: int, message: dict[str, Any]) -> bytes:
    header = frames.encode_request_header(key, version, 7, "unit")
    return frames.frame(header, APIS[key].encode_request(version, message))


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.end()


def authenticate(bench: Bench, password: str) -> bytes:
    bench.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    return request(AUTHENTICATE, 1, {"auth_bytes": b"\0alice\0" + password.encode()})


def test_a_failure_is_answered_after_the_delay_and_ends_the_connection(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    message = authenticate(bench, "wrong")
    # What comes behind it is not looked at.
    bench.send(message + message)
    bench.client.setblocking(False)
    with pytest.raises(BlockingIOError):
        bench.client.recv(1)
    assert not bench.is_closed()
    bench.pass_time(DELAY_MS / 1000)
    assert b"Invalid username or password" in bench.client.recv(1000)
    assert bench.is_closed()
    assert [record.getMessage() for record in caplog.records] == ["connection closed"]
    assert "wrong" not in str(vars(caplog.records[0]))
    assert bench.figures.counts == {("PLAIN", False, False): 1}


def test_who_goes_away_within_the_delay_leaves_nothing(bench: Bench) -> None:
    bench.send(authenticate(bench, "wrong"))
    bench.client.close()
    bench.loop.settle()
    assert bench.is_closed()
    assert all(timer.is_cancelled for timer in bench.loop.timers)


def test_what_is_not_answered_ends_the_connection_after_the_delay(bench: Bench) -> None:
    bench.send(request(3, 0, {"topics": []}))
    assert not bench.is_closed()
    bench.pass_time(DELAY_MS / 1000)
    assert bench.is_closed()
    assert bench.client.recv(1) == b""


def test_a_log_in_that_takes_too_long_is_closed(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    bench.pass_time(LOG_IN_S_MAX)
    assert bench.is_closed()
    assert "did not log in within 30 s" in str(vars(caplog.records[-1]))


def test_who_has_logged_in_takes_its_time_and_may_ask_for_more(bench: Bench) -> None:
    bench.send(authenticate(bench, "secret"))
    assert bench.who.principal.name == "alice"
    bench.client.recv(1000)
    bench.pass_time(LOG_IN_S_MAX)
    assert not bench.is_closed()
    large = struct.pack(">ihhih", 200_000, 3, 1, 7, -1) + b"\0" * 100_000
    bench.send(large)
    assert not bench.is_closed()
    assert bench.capacity > 100_000


@pytest.mark.parametrize("size", [LOG_IN_SIZE_MAX + 1, 2**31 - 1, -1])
def test_nothing_is_set_aside_for_what_a_stranger_announces(bench: Bench, size: int) -> None:
    """CVE-2022-34917: memory is held for bytes that came, up to a bound, and never for those announced."""
    before = bench.capacity
    bench.send(struct.pack(">i", size))
    assert bench.is_closed()
    assert bench.capacity <= before


def test_a_stranger_holds_no_more_than_the_bound(bench: Bench) -> None:
    """CVE-2022-34917, with the bytes really sent."""
    bench.client.setblocking(False)
    bench.send(struct.pack(">i", LOG_IN_SIZE_MAX))
    for _ in range(LOG_IN_SIZE_MAX // 1000 - 1):
        bench.send(b"\xff" * 1000)
    assert not bench.is_closed()
    assert bench.capacity <= LOG_IN_SIZE_MAX + 4
    many = request(VERSIONS, 0, {}) * 10_000
    other = Bench()
    other.client.setblocking(False)
    sent = 0
    while sent < len(many) and not other.is_closed():
        with suppress(BlockingIOError, BrokenPipeError):
            sent += other.client.send(many[sent:])
        other.loop.settle()
        if other.loop.timers[-1].delay_s == DELAY_MS / 1000:
            break
    assert other.capacity <= LOG_IN_SIZE_MAX
    assert other.served.count(VERSIONS) == 1
    other.end()


def odd_frames(source: random.Random) -> bytes:
    """The beginning of a connection: valid requests of a log-in among odd ones, some of them cut, changed or joined."""
    found = b""
    for _ in range(source.randint(1, 4)):
        kind = source.randrange(6)
        if kind == 0:
            key = source.choice(sorted(APIS))
            version = source.randint(-1, 20)
            body = source.randbytes(source.randrange(60))
            found += frames.frame(struct.pack(">hhih", key, version, 7, -1), body)
        elif kind == 1:
            mechanism = source.choice(["PLAIN", "SCRAM-SHA-256", "GSSAPI", ""])
            found += request(HANDSHAKE, source.randint(0, 1), {"mechanism": mechanism})
        elif kind == 2:
            message = source.choice([b"", b"\0alice\0wrong", b"n,,n=alice,r=x", source.randbytes(30)])
            found += request(AUTHENTICATE, source.randint(0, 2), {"auth_bytes": message})
        elif kind == 3:
            found += request(VERSIONS, 0, {})
        elif kind == 4:
            found += frames.frame(source.randbytes(source.randrange(40)))
        else:
            found += source.randbytes(source.randrange(20))
    if source.random() < 0.2:
        position = source.randrange(len(found) + 1)
        found = found[:position] + source.randbytes(1) + found[position + 1 :]
    return found


@pytest.mark.filterwarnings("ignore")
def test_whatever_a_stranger_sends_nothing_else_is_served(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    source = random.Random(19)
    answered = 0
    for number in range(FUZZED_COUNT):
        bench = Bench()
        bench.send(odd_frames(source))
        assert set(bench.served) <= set(ALLOWED), number
        assert bench.who.principal.name == "ANONYMOUS", number
        assert bench.capacity <= LOG_IN_SIZE_MAX, number
        answered += bool(bench.served)
        bench.end()
    assert answered > FUZZED_COUNT // 4
    assert caplog.records == []
