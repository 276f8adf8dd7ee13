"""A client's socket with TLS, its handshake done: what `server.transport.PlainTransport` is without.

OpenSSL reads and writes the socket itself, a record (16 KiB) at a time, and reads no record before the one that is asked for:
what waits stays in the kernel, where epoll sees it, but for the rest of a record whose room was too small, which the next
`receive_into` takes. Parts of files are read from the page cache into one buffer of this process and encrypted from there; where
OpenSSL gave the session's key to the kernel (kTLS), they go from the page cache by sendfile, as they do without TLS. A record
that the socket did not take is kept and offered again, as OpenSSL wants it. Must not know: requests, replies, whose turn it is.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections import deque
from contextlib import suppress

from headrace.broker.log.results import LogSlice
from headrace.broker.server.transport import PlainTransport, check_uncut, peer_of

RECORD_SIZE_MAX = 1 << 14
GATHERED_SIZE_MAX = 8 * RECORD_SIZE_MAX
# One event loop encrypts for all connections: what is gathered here is sent, or kept as a copy, before anybody else gathers.
_gathered = memoryview(bytearray(GATHERED_SIZE_MAX))
# linux/tls.h: the level and the name of the option that a socket has once the kernel encrypts what is sent.
SOL_TLS, TLS_TX, TLS_INFO_SIZE = 282, 1, 4
WAITING = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsTransport:
    """See the module's text."""

    __slots__ = ("_plain", "_socket", "_unsent", "fd", "peer")

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket = sock
        self._unsent: memoryview | None = None
        # What the kernel encrypts is sent as if it were not.
        self._plain = PlainTransport(sock) if is_offloaded(sock) else None
        self.fd = sock.fileno()
        self.peer = peer_of(sock)

    def receive_into(self, space: memoryview) -> int:
        """Fill the space with what has arrived; less is all there was, and 0 the end."""
        read, size, received = self._socket.read, len(space), 0
        try:
            while received < size:
                # The stubs say that this returns bytes, which it does without a buffer.
                count: int = read(size - received, space[received:])  # type: ignore[assignment]
                if count == 0:
                    if received:
                        # Its goodbye is no event of the socket's, and must be heard once more.
                        socket.socket.shutdown(self._socket, socket.SHUT_RD)
                    break
                received += count
        except WAITING:
            if not received:
                raise BlockingIOError from None
        return received

    def is_over(self) -> bool:
        """Whether the client has sent its last byte and all were received; nothing is received by this."""
        return not socket.socket.recv(self._socket, 1, socket.MSG_PEEK)

    def send(self, parts: deque[bytes | LogSlice], position: int) -> int:
        """Send what is in `parts` from `position` of the first one on; returns how many bytes of it went."""
        if self._unsent is not None:
            return self._send_unsent(self._unsent)
        if self._plain is not None and type(parts[0]) is LogSlice:
            return self._plain.send(parts, position)
        size, sent, write = self._gather(parts, position), 0, self._socket.send
        try:
            while sent < size:
                sent += write(_gathered[sent : min(sent + RECORD_SIZE_MAX, size)])
        except WAITING:
            self._unsent = memoryview(bytes(_gathered[sent : min(sent + RECORD_SIZE_MAX, size)]))
            if not sent:
                raise BlockingIOError from None
        return sent

    def close(self) -> None:
        """Say goodbye as far as that goes, and close."""
        with suppress(OSError, ValueError):
            self._socket.unwrap()
        self._socket.close()

    def _send_unsent(self, record: memoryview) -> int:
        try:
            sent = self._socket.send(record)
        except WAITING:
            raise BlockingIOError from None
        self._unsent = record[sent:] if sent < len(record) else None
        return sent

    def _gather(self, parts: deque[bytes | LogSlice], position: int) -> int:
        """Copy what comes next to one place; returns its size."""
        size = 0
        for part in parts:
            if type(part) is LogSlice:
                if self._plain is not None:
                    break
                left = part.size - position
                count = _read(part, position, _gathered[size : size + left]) if left > 0 else 0
            else:
                piece = memoryview(part)[position:]  # type: ignore[arg-type]
                left, count = len(piece), min(len(piece), GATHERED_SIZE_MAX - size)
                _gathered[size : size + count] = piece[:count]
            size += count
            if count < left or size == GATHERED_SIZE_MAX:
                break
            position = 0
        return size


def is_offloaded(sock: ssl.SSLSocket) -> bool:
    """Whether the kernel encrypts what is sent; OpenSSL asks it to where both have it and the cipher is one of theirs."""
    try:
        return any(sock.getsockopt(SOL_TLS, TLS_TX, TLS_INFO_SIZE))
    except OSError:
        return False


def _read(part: LogSlice, position: int, space: memoryview) -> int:
    """From the page cache."""
    check_uncut(part)
    assert part.file is not None
    start = part.position + position
    count = os.preadv(part.file.fileno(), [space], start)
    if count == 0:
        raise OSError(f"the log file ends at {start}, {part.size - position} bytes early")
    return count
