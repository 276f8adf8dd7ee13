"""A client's connection until its TLS handshake is done: it takes turns, and is then given up or handed on.

Invariants: a handshake that takes longer than `HANDSHAKE_S_MAX`, or more than `HANDSHAKE_SIZE_MAX` bytes of the client, is
closed; so is a client that speaks no TLS, before OpenSSL sees a byte of it. What fails is told in one line and counted once; who
goes away without a byte (a load balancer that looks whether the port is open) is not. Nothing of a request is read.
"""

from __future__ import annotations

import fcntl
import select
import socket
import ssl
import struct
import termios
from asyncio import TimerHandle
from collections.abc import Callable
from contextlib import suppress

from headrace.broker.server.tls_listeners import TlsListener
from headrace.broker.server.tls_transport import TlsTransport
from headrace.broker.server.transport import peer_of
from headrace.broker.server.turns import Turns
from headrace.broker.structured_log import get_logger
from headrace.broker.tls.principals import NoRuleError

logger = get_logger(__name__)
HANDSHAKE_S_MAX = 10.0
HANDSHAKE_SIZE_MAX = 1 << 16
# RFC 8446: a record's type and version and size, then its message's type and size.
_HEAD_SIZE = 9
_HANDSHAKE_RECORD = 0x16
# linux/tcp.h: where tcp_info has the bytes received.
_RECEIVED_AT, _TCP_INFO_SIZE = 128, 136
REASONS = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted here",
    "HTTP_REQUEST": "it speaks HTTP",
    "NO_SHARED_CIPHER": "it has no cipher suite in common with ssl.cipher.suites and the kind of this broker's key",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has shown no certificate, which ssl.client.auth=required asks for",
    "UNSUPPORTED_PROTOCOL": "it speaks none of ssl.enabled.protocols",
    "WRONG_VERSION_NUMBER": "it speaks none of ssl.enabled.protocols",
}
ALERTS = {
    "BAD_CERTIFICATE": "takes this broker's certificate for a bad one",
    "CERTIFICATE_EXPIRED": "says that this broker's certificate has expired",
    "CERTIFICATE_UNKNOWN": "does not take this broker's certificate",
    "UNKNOWN_CA": "does not trust who signed this broker's certificate",
}


class Handshake:
    """One of them. `secured(transport, principal_name)` and `closed()` are called once, one of them."""

    def __init__(
        self,
        sock: socket.socket,
        host: str,
        tls: TlsListener,
        turns: Turns,
        *,
        secured: Callable[[Handshake, TlsTransport, str], None],
        closed: Callable[[Handshake], None],
        failed: Callable[[], None],
    ) -> None:
        self._raw = sock
        self._tls = tls
        self._turns = turns
        self._secured, self._closed, self._failed = secured, closed, failed
        self._socket: ssl.SSLSocket | None = None
        self._fd = sock.fileno()
        self.host = host
        self.listener = tls.name
        self.peer = peer_of(sock)
        self.is_due = False
        self.served_until = 0.0
        self.is_closed = False
        # Its own time is shorter than that of idle connections.
        self.is_used = self.is_waiting = True
        self.idle_since_ms = 0
        turns.join(self._fd, self)
        self._timer: TimerHandle = turns.later(HANDSHAKE_S_MAX, self._timed_out)

    def heard(self, events: int) -> None:
        """Its turn follows."""

    def turn(self, end: float) -> bool:
        """One step; nothing is to be done at once after it."""
        if not self.is_closed:
            try:
                self._step()
            except (OSError, ValueError) as error:
                self._fail(reason_of(error))
        return False

    def settled(self, share_s: float) -> bool:
        """A handshake joins nothing."""
        return False

    def close(self, reason: str | None = None) -> None:
        """Give it up; a reason is worth a warning line."""
        if self.is_closed:
            return
        if reason is not None:
            logger.warning("connection closed", peer=self.peer, reason=reason)
        self._leave()
        (self._socket or self._raw).close()
        self._closed(self)

    def close_after_replies(self, reason: str | None = None) -> None:
        """There are none."""
        self.close(reason)

    def _step(self) -> None:
        sock = self._socket
        if sock is None:
            sock = self._begin()
            if sock is None:
                return
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self._turns.watch(self._fd, writable=False)
            if _taken_size(sock) > HANDSHAKE_SIZE_MAX:
                self._fail(f"its handshake takes more than {HANDSHAKE_SIZE_MAX} bytes")
        except ssl.SSLWantWriteError:
            self._turns.watch(self._fd, writable=True)
        else:
            self._done(sock)

    def _begin(self) -> ssl.SSLSocket | None:
        """Look at what the client sent first; None while that is too little, or after it was refused."""
        try:
            head = self._raw.recv(_HEAD_SIZE, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        if not head:
            self.close()
            return None
        if head[0] != _HANDSHAKE_RECORD:
            self._fail(f"it does not speak TLS, as the listener {self._tls.name} does")
        elif _message_size(head) > HANDSHAKE_SIZE_MAX:
            self._fail(f"its first message would take more than {HANDSHAKE_SIZE_MAX} bytes")
        elif len(head) == _HEAD_SIZE or self._is_half_closed():
            self._socket = self._tls.context.wrap_socket(
                self._raw, server_side=True, do_handshake_on_connect=False
            )
            return self._socket
        return None

    def _is_half_closed(self) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLRDHUP)
        return bool(poll.poll(0))

    def _done(self, sock: ssl.SSLSocket) -> None:
        if refusal := self._tls.refusal(sock.cipher()):
            self._fail(refusal)
            return
        try:
            name = self._tls.principals.name_of(sock.getpeercert(binary_form=True))
        except NoRuleError as error:
            self._fail(str(error))
            return
        self._leave()
        self._secured(self, TlsTransport(sock), name)

    def _fail(self, reason: str) -> None:
        self._failed()
        self.close(f"the TLS handshake failed: {reason}")

    def _timed_out(self) -> None:
        if not self.is_closed:
            self._fail(f"it is not done after {HANDSHAKE_S_MAX:g} s")

    def _leave(self) -> None:
        self.is_closed = True
        self._timer.cancel()
        with suppress(OSError):
            # A client that was gone before its socket was wrapped has none any more.
            self._turns.leave(self._fd)


def _message_size(head: bytes) -> int:
    """What the first message says of its size; 0 while that is not known, or is in the next record."""
    is_whole = len(head) == _HEAD_SIZE and int.from_bytes(head[3:5], "big") >= 4
    return int.from_bytes(head[6:9], "big") if is_whole else 0


def reason_of(error: OSError | ValueError) -> str:
    """Why a handshake failed, in words of this broker; OpenSSL's own where there are none."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{REASONS['CERTIFICATE_VERIFY_FAILED']} ({error.verify_message})"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
        return "the client went away"
    reason = getattr(error, "reason", None)
    if not reason:
        return str(getattr(error, "strerror", None) or error)
    if reason in REASONS:
        return REASONS[reason]
    _, is_alert, alert = reason.partition("_ALERT_")
    if is_alert:
        return f"the client {ALERTS.get(alert, 'ends it: ' + alert.lower().replace('_', ' '))}"
    return str(reason.lower().replace("_", " "))


def _taken_size(sock: socket.socket) -> int:
    """How many bytes were received and are not in the kernel any more."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
    if len(info) < _TCP_INFO_SIZE:
        return 0
    (received,) = struct.unpack_from("Q", info, _RECEIVED_AT)
    (unread,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.FIONREAD, b"\0\0\0\0"))
    return int(received - unread)
