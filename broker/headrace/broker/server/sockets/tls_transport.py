"""A client's socket with TLS, its handshake done: what `server.sockets.transport.PlainTransport` is without.

OpenSSL reads and writes memory; this moves what is encrypted between that and the socket, as much as there is with one call:
clients write records as small as a field, and to let OpenSSL read each from the socket costs twice as much. What a client
sent and nobody took yet waits here, where epoll does not see it: `receive_into` fills its space unless both are empty.
Parts of files are read from the page cache into one buffer of this process and encrypted from there. What was encrypted and did
not fit into the socket is kept, and counts as sent once all of it went. Must not know: requests, replies, whose turn it is.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections import deque
from contextlib import suppress

from headrace.broker.log.results import LogSlice
from headrace.broker.server.sockets.transport import check_uncut, peer_of

RECEIVED_SIZE_MAX = 1 << 17
GATHERED_SIZE_MAX = 1 << 17
# One event loop encrypts for all connections: what is gathered here is encrypted before anybody else gathers.
_gathered = memoryview(bytearray(GATHERED_SIZE_MAX))


class TlsTransport:
    """See the module's text; `tls` reads `incoming` and writes `outgoing`."""

    __slots__ = ("_accepted_size", "_incoming", "_outgoing", "_socket", "_tls", "_unsent", "fd", "peer")

    def __init__(
        self, sock: socket.socket, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        self._socket = sock
        self._tls, self._incoming, self._outgoing = tls, incoming, outgoing
        # What the socket did not take, encrypted, and of how many bytes it is the rest.
        self._unsent = memoryview(b"")
        self._accepted_size = 0
        self.fd = sock.fileno()
        self.peer = peer_of(sock)

    def receive_into(self, space: memoryview) -> int:
        """Fill the space with what has arrived; less is all there was, and 0 the end."""
        read, size, received = self._tls.read, len(space), 0
        is_empty = False
        while received < size:
            try:
                # The stubs say that this returns bytes, which it does without a buffer.
                count: int = read(size - received, space[received:])  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                if is_empty:
                    break
                try:
                    is_empty = self._fetch() < RECEIVED_SIZE_MAX
                except BlockingIOError:
                    if not received:
                        raise
                    break
            except ssl.SSLEOFError:
                return self._end(received)
            else:
                if count == 0:
                    return self._end(received)
                received += count
        if self._outgoing.pending:
            self._answer()
        if not received:
            raise BlockingIOError
        return received

    def is_over(self) -> bool:
        """Whether the client has sent its last byte and all were received; nothing is received by this."""
        if self._incoming.pending or self._tls.pending():
            return False
        return not self._socket.recv(1, socket.MSG_PEEK)

    def send(self, parts: deque[bytes | LogSlice], position: int) -> int:
        """Send what is in `parts` from `position` of the first one on; returns how many bytes of it went."""
        if not self._unsent:
            self._encrypt(self._gather(parts, position))
        with suppress(BlockingIOError):
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        if self._unsent:
            raise BlockingIOError
        accepted_size, self._accepted_size = self._accepted_size, 0
        return accepted_size

    def close(self) -> None:
        """Say goodbye as far as that goes, and close."""
        with suppress(OSError, ValueError):
            if not self._unsent:
                with suppress(ssl.SSLWantReadError):
                    self._tls.unwrap()
                self._socket.send(self._outgoing.read())
        self._socket.close()

    def _fetch(self) -> int:
        """Move what the socket has, the end included, to where OpenSSL reads it; returns its size."""
        data = self._socket.recv(RECEIVED_SIZE_MAX)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return len(data)

    def _end(self, received: int) -> int:
        """Nothing comes behind what was received: a goodbye that is no event of the socket's must be heard once more."""
        if received:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)
        return received

    def _answer(self) -> None:
        """What OpenSSL has to say by itself leaves with what is sent next, or now."""
        if not self._unsent:
            self._unsent = memoryview(self._outgoing.read())
            with suppress(BlockingIOError):
                self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def _encrypt(self, size: int) -> None:
        """What was gathered, of that size, is what is to be sent."""
        done = 0
        while done < size:
            done += self._tls.write(_gathered[done:size])
        self._accepted_size = size
        self._unsent = memoryview(self._outgoing.read())

    def _gather(self, parts: deque[bytes | LogSlice], position: int) -> int:
        """Copy what comes next to one place; returns its size."""
        size = 0
        for part in parts:
            if type(part) is LogSlice:
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


def _read(part: LogSlice, position: int, space: memoryview) -> int:
    """From the page cache."""
    check_uncut(part)
    assert part.file is not None
    start = part.position + position
    count = os.preadv(part.file.fileno(), [space], start)
    if count == 0:
        raise OSError(f"the log file ends at {start}, {part.size - position} bytes early")
    return count
