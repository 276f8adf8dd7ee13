"""A client's socket without encryption: bytes in, buffers and parts of files out, one system call at a time.

Whatever cannot go on at once raises BlockingIOError, whatever is over OSError. Must not know: requests, replies, whose
turn it is.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from typing import Protocol

from headrace.broker.addresses import address_text
from headrace.broker.log.results import LogSlice

BUFFERS_PER_CALL_MAX = 512
SENDFILE_SIZE_MAX = 1 << 20


class Transport(Protocol):
    """What a connection receives and sends by: without TLS, or with (`server.sockets.tls_transport`)."""

    fd: int
    peer: str

    def receive_into(self, space: memoryview, /) -> int: ...

    def is_over(self) -> bool: ...

    def send(self, parts: deque[bytes | LogSlice], position: int) -> int: ...

    def close(self) -> None: ...


class PlainTransport:
    """See the module's text; `receive_into(space)` and `close()` are the socket's own."""

    __slots__ = ("_send", "_socket", "close", "fd", "peer", "receive_into")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._send = sock.send
        self.receive_into = sock.recv_into
        self.close = sock.close
        self.fd = sock.fileno()
        self.peer = peer_of(sock)

    def is_over(self) -> bool:
        """Whether the client has sent its last byte and all were received; nothing is received by this."""
        return not self._socket.recv(1, socket.MSG_PEEK)

    def send(self, parts: deque[bytes | LogSlice], position: int) -> int:
        """Send what is in `parts` from `position` of the first one on; returns how many bytes of it went."""
        first = parts[0]
        if type(first) is LogSlice:
            return self._send_slice(first, position)
        if len(parts) == 1 and position == 0:
            return self._send(first)  # type: ignore[arg-type]
        return self._send_buffers(parts, position)

    def _send_buffers(self, parts: deque[bytes | LogSlice], position: int) -> int:
        """The buffers before the next slice with one call."""
        buffers: list[memoryview] = []
        for part in parts:
            if type(part) is LogSlice or len(buffers) == BUFFERS_PER_CALL_MAX:
                break
            buffers.append(memoryview(part))  # type: ignore[arg-type]
        buffers[0] = buffers[0][position:]
        # A slice follows its header in the same segment when the kernel knows that more is coming.
        flags = socket.MSG_MORE if len(buffers) < len(parts) else 0
        return self._socket.sendmsg(buffers, (), flags)

    def _send_slice(self, part: LogSlice, position: int) -> int:
        """From the page cache."""
        left = part.size - position
        if left <= 0:
            return 0
        check_uncut(part)
        assert part.file is not None
        start = part.position + position
        sent = os.sendfile(self.fd, part.file.fileno(), start, min(left, SENDFILE_SIZE_MAX))
        if sent == 0:
            raise OSError(f"the log file ends at {start}, {left} bytes early")
        return sent


def check_uncut(part: LogSlice) -> None:
    """Raises OSError when the log was cut since the slice was made."""
    assert part.file is not None
    if part.position + part.size > part.file.cut_at:
        # Other batches may lie there by now.
        raise OSError(f"the log was cut at {part.file.cut_at}, before this was sent")


def peer_of(sock: socket.socket) -> str:
    """HOST:PORT of the other end."""
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        return "unknown"
    return address_text(host, port)
