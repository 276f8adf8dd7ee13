"""TLS on real sockets: partial records, large answers to slow readers, slices of files, and every way to end."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tls_kit import authority, pem_settings, signed

from headrace.broker.log.results import LogSlice
from headrace.broker.server.sockets.tls_transport import GATHERED_SIZE_MAX, TlsTransport
from headrace.broker.tls.contexts import client_context, server_context

CA = authority()


@dataclass
class Pair:
    """A transport and its client, a socket of the standard library that blocks; `sock` is the transport's own."""

    transport: TlsTransport
    client: ssl.SSLSocket
    sock: socket.socket


@pytest.fixture(params=["TLSv1.2", "TLSv1.3"])
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    settings = pem_settings(tmp_path, signed(CA), [CA.certificate])
    listening = socket.create_server(("127.0.0.1", 0))
    raw = socket.create_connection(listening.getsockname())
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    accepted, _ = listening.accept()
    listening.close()
    client_settings = settings | {"ssl.enabled.protocols": request.param}
    shaken: list[ssl.SSLSocket] = []
    thread = threading.Thread(
        target=lambda: shaken.append(
            client_context(client_settings).wrap_socket(raw, server_hostname="localhost")
        )
    )
    thread.start()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = server_context(settings).wrap_bio(incoming, outgoing, server_side=True)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            accepted.sendall(outgoing.read())
            incoming.write(accepted.recv(1 << 14))
    accepted.sendall(outgoing.read())
    thread.join()
    accepted.setblocking(False)
    shaken[0].settimeout(10)
    transport = TlsTransport(accepted, tls, incoming, outgoing)
    yield Pair(transport, shaken[0], accepted)
    transport.close()
    shaken[0].close()


def slice_of(tmp_path: Path, content: bytes, position: int = 0) -> LogSlice:
    path = tmp_path / "segment"
    path.write_bytes(b"-" * position + content)
    fd = os.open(path, os.O_RDONLY)
    file: Any = SimpleNamespace(fileno=lambda: fd, cut_at=1 << 60)
    return LogSlice(file=file, position=position, size=len(content))


def size_of(part: bytes | LogSlice) -> int:
    return part.size if isinstance(part, LogSlice) else len(part)


def send_all(transport: TlsTransport, parts: deque[bytes | LogSlice]) -> tuple[int, int]:
    """As a channel does; the number of calls, and of those that the socket had no room for."""
    position, calls, blocked = 0, 0, 0
    while parts:
        calls += 1
        try:
            position += transport.send(parts, position)
        except BlockingIOError:
            blocked += 1
            os.sched_yield()
            continue
        while parts and position >= size_of(parts[0]):
            position -= size_of(parts.popleft())
    return calls, blocked


def receive(transport: TlsTransport, space: memoryview) -> int:
    while True:
        try:
            return transport.receive_into(space)
        except BlockingIOError:
            os.sched_yield()


def read_exactly(client: ssl.SSLSocket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = client.recv(size - len(found))
        assert piece, f"the end after {len(found)} of {size} bytes"
        found += piece
    return found


def test_what_arrives_fills_the_space_over_records(pair: Pair) -> None:
    content = os.urandom(50_000)
    pair.client.sendall(content)
    found, space = b"", memoryview(bytearray(60_000))
    while len(found) < len(content):
        found += bytes(space[: receive(pair.transport, space)])
    assert found == content
    with pytest.raises(BlockingIOError):
        pair.transport.receive_into(space)


def test_what_is_left_for_the_next_look_is_not_forgotten(pair: Pair) -> None:
    """The kernel has nothing left of it, so that no event tells of it: a full space has to be followed by another look."""
    pair.client.sendall(b"abcdef")
    pair.client.sendall(b"ghi")
    space = memoryview(bytearray(4))
    assert receive(pair.transport, space) == 4
    with pytest.raises(BlockingIOError):
        pair.sock.recv(1, socket.MSG_PEEK)
    # Who looks for the end meanwhile must not take it for nothing.
    assert not pair.transport.is_over()
    assert pair.transport.receive_into(space) == 4
    assert bytes(space) == b"efgh"
    assert not pair.transport.is_over()
    assert pair.transport.receive_into(space) == 1
    with pytest.raises(BlockingIOError):
        pair.transport.is_over()


def test_small_records_are_received_many_at_a_time(pair: Pair) -> None:
    for number in range(100):
        pair.client.sendall(b"%02d" % number)
    received: list[int] = []

    def recv(size: int) -> bytes:
        received.append(size)
        return pair.sock.recv(size)

    pair.transport._socket = SimpleNamespace(  # type: ignore[assignment]
        recv=recv, send=pair.sock.send, close=pair.sock.close
    )
    space, size = memoryview(bytearray(1000)), 0
    while size < 200:
        size += receive(pair.transport, space)
    # TCP brings them in a few pieces.
    assert len(received) < 50


def test_half_a_record_is_nothing_yet(pair: Pair) -> None:
    pair.client.sendall(b"x" * 100)
    record = pair.sock.recv(1 << 16, socket.MSG_PEEK)
    left, right = socket.socketpair()
    right.setblocking(False)
    space = memoryview(bytearray(200))
    with left, right:
        # The bytes of a whole record come in two pieces, by a road that the test has in its hands.
        os.dup2(right.fileno(), pair.transport.fd)
        left.sendall(record[:-1])
        for _ in range(3):
            with pytest.raises(BlockingIOError):
                pair.transport.receive_into(space)
        left.sendall(record[-1:])
        assert receive(pair.transport, space) == 100


def test_answers_of_bytes_and_slices(pair: Pair, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    parts: deque[bytes | LogSlice] = deque([b"head", slice_of(tmp_path, content, 7), b"", b"tail" * 9000])
    expected = b"head" + content + b"tail" * 9000
    received: list[bytes] = []
    thread = threading.Thread(target=lambda: received.append(read_exactly(pair.client, len(expected))))
    thread.start()
    send_all(pair.transport, parts)
    thread.join()
    assert received == [expected]


def test_a_small_answer_is_one_record(pair: Pair, tmp_path: Path) -> None:
    parts: deque[bytes | LogSlice] = deque([b"head", slice_of(tmp_path, b"batch"), b"tail"])
    assert pair.transport.send(parts, 0) == 13
    assert pair.client.recv(100) == b"headbatchtail"


def test_a_slow_reader_gets_every_byte(pair: Pair, tmp_path: Path) -> None:
    """The socket is full again and again; the record that it did not take is offered again, whatever comes behind it."""
    content = os.urandom(6_000_000)
    parts: deque[bytes | LogSlice] = deque([slice_of(tmp_path, content), os.urandom(100_000)])
    expected = content + bytes(parts[1])  # type: ignore[arg-type]
    received: list[bytes] = []

    def read_slowly() -> None:
        found = b""
        while len(found) < len(expected):
            found += read_exactly(pair.client, min(500_000, len(expected) - len(found)))
        received.append(found)

    thread = threading.Thread(target=read_slowly)
    # Nobody reads until the socket has been full.
    sent = 0
    with suppress(BlockingIOError):
        while sent < len(content):
            sent += pair.transport.send(parts, sent)
    assert 0 < sent < len(content)
    thread.start()
    position = sent
    while parts:
        try:
            position += pair.transport.send(parts, position)
        except BlockingIOError:
            os.sched_yield()
        while parts and position >= size_of(parts[0]):
            position -= size_of(parts.popleft())
    thread.join()
    assert received == [expected]


def test_no_more_is_gathered_than_the_bound(pair: Pair) -> None:
    parts: deque[bytes | LogSlice] = deque([b"x" * (GATHERED_SIZE_MAX * 3)])
    assert 0 < pair.transport.send(parts, 0) <= GATHERED_SIZE_MAX


def test_a_log_that_was_cut_ends_the_connection(pair: Pair, tmp_path: Path) -> None:
    part = slice_of(tmp_path, b"x" * 100)
    part.file.cut_at = 50  # type: ignore[union-attr]
    with pytest.raises(OSError, match="the log was cut at 50"):
        pair.transport.send(deque([b"head", part]), 0)


def test_a_file_that_ends_early(pair: Pair, tmp_path: Path) -> None:
    part = slice_of(tmp_path, b"x" * 100)
    os.truncate(tmp_path / "segment", 0)
    with pytest.raises(OSError, match="the log file ends at 0, 100 bytes early"):
        pair.transport.send(deque([part]), 0)


def test_a_goodbye_behind_data_is_heard_next(pair: Pair) -> None:
    """A close_notify without a FIN is no event of the socket's: the transport makes it one."""
    pair.client.sendall(b"last words")
    pair.client.settimeout(0)
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    space = memoryview(bytearray(100))
    assert receive(pair.transport, space) == 10
    assert pair.transport.is_over()
    assert pair.transport.receive_into(space) == 0


@pytest.mark.parametrize("polite", [True, False])
def test_the_end(pair: Pair, polite: bool) -> None:
    if polite:
        pair.client.settimeout(0)
        with pytest.raises(ssl.SSLWantReadError):
            pair.client.unwrap()
    # What the broker said of its own is read, else the kernel would reset the connection.
    pair.client.settimeout(0)
    with suppress(ssl.SSLWantReadError, OSError):
        pair.client.recv(1)
    pair.client.close()
    assert receive(pair.transport, memoryview(bytearray(10))) == 0
    assert pair.transport.is_over()


def test_nothing_is_received_by_looking_for_the_end(pair: Pair) -> None:
    with pytest.raises(BlockingIOError):
        pair.transport.is_over()
    pair.client.sendall(b"more")
    while True:
        try:
            assert not pair.transport.is_over()
            break
        except BlockingIOError:
            os.sched_yield()
    assert receive(pair.transport, memoryview(bytearray(10))) == 4


def test_closing_says_goodbye(pair: Pair) -> None:
    pair.transport.close()
    assert pair.client.recv(10) == b""


def test_garbage_in_place_of_a_record(pair: Pair) -> None:
    os.write(pair.client.fileno(), b"\x17\x03\x03\x00\x20" + b"x" * 32)
    with pytest.raises(OSError, match=r"(?i)mac"):
        receive(pair.transport, memoryview(bytearray(10)))
