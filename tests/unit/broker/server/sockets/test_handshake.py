"""Handshakes that come in pieces, too slowly, too large, in plain text, or without a certificate that is trusted."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from manual_loop import ManualLoop
from tls_kit import CERTIFICATE_PADDING, Identity, authority, pem_settings, signed

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.server.sockets.handshake import HANDSHAKE_S_MAX, HANDSHAKE_SIZE_MAX, Handshake
from headrace.broker.server.sockets.tls_listeners import TlsListeners
from headrace.broker.server.sockets.tls_transport import TlsTransport
from headrace.broker.server.sockets.turns import Turns
from headrace.broker.tls.contexts import client_context
from headrace.broker.waiting.round import Round

CA = authority()


@dataclass
class World:
    """A handshake and its client, whose ends of the wire are memory and a socket."""

    settings: dict[str, str]
    client_settings: dict[str, str]
    loop: ManualLoop = field(default_factory=ManualLoop)
    secured: list[tuple[TlsTransport, str]] = field(default_factory=list)
    closed: int = 0
    failed: int = 0

    def __post_init__(self) -> None:
        loop: Any = self.loop
        self.turns = Turns(loop, Round())
        listening = socket.create_server(("127.0.0.1", 0))
        self.client = socket.create_connection(listening.getsockname())
        self.client.setblocking(False)
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted, _ = listening.accept()
        listening.close()
        accepted.setblocking(False)
        config, _ = BrokerConfig.from_properties(
            {"listeners": "SSL://127.0.0.1:9093", "security.inter.broker.protocol": "SSL", **self.settings}
        )
        self.handshake = Handshake(
            accepted,
            "127.0.0.1",
            TlsListeners(config)["SSL"],
            self.turns,
            secured=lambda _, transport, name: self.secured.append((transport, name)),
            closed=lambda _: self._count("closed"),
            failed=lambda: self._count("failed"),
        )
        self.inward, self.outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = client_context(self.client_settings)
        self.tls = context.wrap_bio(self.inward, self.outward, server_hostname="localhost")

    def _count(self, what: str) -> None:
        setattr(self, what, getattr(self, what) + 1)

    def step(self) -> bytes:
        """What the client says next, having heard what there is."""
        with suppress(BlockingIOError, ConnectionError):
            self.inward.write(self.client.recv(1 << 16))
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outward.read()

    def run(self) -> None:
        for _ in range(6):
            if said := self.step():
                self.client.sendall(said)
            self.loop.settle()

    def end(self) -> None:
        self.client.close()
        self.handshake.close()
        for transport, _ in self.secured:
            transport.close()
        self.turns.close()


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Any]:
    made: list[World] = []

    def make(client: Identity | None = None, **settings: str) -> World:
        server = pem_settings(tmp_path / "server", signed(CA, "broker"), [CA.certificate])
        named = {name.replace("_", "."): value for name, value in settings.items()}
        theirs = pem_settings(tmp_path / "client", client or signed(CA, "alice"), [CA.certificate])
        if client is None:
            theirs = {name: value for name, value in theirs.items() if "keystore" not in name}
        made.append(World(server | named, theirs))
        return made[-1]

    yield make
    for world in made:
        world.end()


def reason_of(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = (r for r in caplog.records if r.getMessage() == "connection closed")
    reason: str = vars(record)["facts"]["reason"]
    return reason.removeprefix("the TLS handshake failed: ")


def test_a_handshake_gives_a_transport_and_a_principal(worlds: Any) -> None:
    world = worlds()
    world.run()
    ((transport, name),) = world.secured
    assert name == "ANONYMOUS"
    assert (world.closed, world.failed) == (0, 0)
    world.tls.write(b"request")
    world.client.sendall(world.outward.read())
    space = memoryview(bytearray(20))
    assert transport.receive_into(space) == 7
    (timer,) = world.loop.timers
    assert timer.is_cancelled


@pytest.mark.parametrize("auth", ["none", "requested", "required"])
def test_the_principal_of_a_client_certificate(worlds: Any, auth: str) -> None:
    world = worlds(
        signed(CA, "CN=alice,OU=front ends"),
        ssl_client_auth=auth,
        ssl_principal_mapping_rules="RULE:^CN=(.*?),OU=front ends$/$1/U,DEFAULT",
    )
    world.run()
    assert [name for _, name in world.secured] == ["ANONYMOUS" if auth == "none" else "ALICE"]


def test_a_certificate_for_which_no_rule_has_a_name(worlds: Any, caplog: pytest.LogCaptureFixture) -> None:
    rules = "RULE:^CN=broker$/broker/"
    world = worlds(signed(CA, "mallory"), ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    world.run()
    assert (world.secured, world.closed, world.failed) == ([], 1, 1)
    assert reason_of(caplog) == "no rule of ssl.principal.mapping.rules has a name for CN=mallory"


def test_a_handshake_that_comes_byte_by_byte(worlds: Any) -> None:
    world = worlds()
    for _ in range(6):
        for byte in world.step():
            world.client.sendall(bytes((byte,)))
            world.loop.settle()
    assert len(world.secured) == 1


def test_a_slow_handshake_is_closed_after_its_time(worlds: Any, caplog: pytest.LogCaptureFixture) -> None:
    world = worlds()
    world.client.sendall(world.step()[:-1])
    world.loop.settle()
    (timer,) = world.loop.timers
    assert timer.delay_s == HANDSHAKE_S_MAX
    timer.callback()
    assert (world.secured, world.closed, world.failed) == ([], 1, 1)
    assert reason_of(caplog) == "it is not done after 10 s"
    world.loop.settle()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it does not speak TLS, as the listener SSL does"),
        (b"\0\0\0\x12\0\x12\0\0", "it does not speak TLS, as the listener SSL does"),
        (b"\x16\x03\x01\x40\x00\x01\x01\x00\x01", "its first message would take more than 65536 bytes"),
        (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", "length too short"),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", "unexpected message"),
        (b"\x16\x03", "the client went away"),
    ],
)
def test_what_is_no_handshake(worlds: Any, caplog: pytest.LogCaptureFixture, said: bytes, told: str) -> None:
    world = worlds()
    world.client.sendall(said)
    if told == "the client went away":
        world.client.shutdown(socket.SHUT_WR)
    world.loop.settle()
    assert (world.secured, world.closed, world.failed) == ([], 1, 1)
    assert reason_of(caplog) == told


def test_garbage_in_place_of_a_hello(worlds: Any) -> None:
    world = worlds()
    world.client.sendall(b"\x16\x03\x01\x02\x00" + os.urandom(512))
    world.loop.settle()
    assert (world.secured, world.closed, world.failed) == ([], 1, 1)


def test_no_more_is_taken_than_the_bound(worlds: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A chain that OpenSSL itself would take: its own bound for certificates is above ours."""
    padded = signed(CA, "alice", extension=CERTIFICATE_PADDING)
    assert len(padded.certificate.public_bytes(Encoding.DER)) > HANDSHAKE_SIZE_MAX
    world = worlds(padded, ssl_client_auth="required")
    for _ in range(6):
        for piece in chunks(world.step(), 4096):
            with suppress(ConnectionError):
                world.client.sendall(piece)
            world.loop.settle()
    assert (world.secured, world.closed, world.failed) == ([], 1, 1)
    assert reason_of(caplog) == f"it takes more than {HANDSHAKE_SIZE_MAX} bytes"


def chunks(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


def test_who_looks_whether_the_port_is_open_is_no_failure(
    worlds: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world = worlds()
    world.client.close()
    with caplog.at_level(logging.DEBUG):
        world.loop.settle()
    assert (world.closed, world.failed, caplog.records) == (1, 0, [])


def test_a_client_that_resets(worlds: Any, caplog: pytest.LogCaptureFixture) -> None:
    world = worlds()
    world.client.sendall(world.step())
    world.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    world.client.close()
    world.loop.settle()
    assert (world.secured, world.closed, world.failed) == ([], 1, 1)


def test_a_client_that_does_not_trust_the_broker(
    worlds: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = worlds()
    stranger = pem_settings(tmp_path / "stranger", signed(CA), [authority("strange").certificate])
    tls = client_context(stranger).wrap_bio(world.inward, world.outward, server_hostname="localhost")
    world.tls = tls
    with pytest.raises(ssl.SSLCertVerificationError):
        world.run()
    world.client.sendall(world.outward.read())
    world.loop.settle()
    assert reason_of(caplog) == "the client does not trust who signed this broker's certificate"


def test_a_suite_of_tls_1_3_that_is_not_wanted(worlds: Any, caplog: pytest.LogCaptureFixture) -> None:
    world = worlds(ssl_cipher_suites="TLS_AES_256_GCM_SHA384")
    refusal = world.handshake._listener.refusal
    assert refusal(("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)) is None
    assert "TLS_AES_128_GCM_SHA256 is none of ssl.cipher.suites" in refusal(
        ("TLS_AES_128_GCM_SHA256", "TLSv1.3", 128)
    )
    world.run()
    assert len(world.secured) == 1


def test_a_request_that_comes_with_the_end_of_the_handshake(worlds: Any) -> None:
    world = worlds()
    world.client.sendall(world.step())
    world.loop.settle()
    last = world.step()
    world.tls.write(b"request")
    world.client.sendall(last + world.outward.read())
    world.loop.settle()
    ((transport, _),) = world.secured
    space = memoryview(bytearray(20))
    assert transport.receive_into(space) == 7
