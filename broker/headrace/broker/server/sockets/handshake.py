"""A client's connection until its TLS handshake is done: it takes turns, and is then given up or handed on.

Invariants: a handshake that takes longer than `HANDSHAKE_S_MAX`, or more than `HANDSHAKE_SIZE_MAX` bytes of the client, is
closed; so is a client that speaks no TLS, before OpenSSL sees a byte of it. What fails is told in one line and counted once; who
goes away without a byte (a load balancer that looks whether the port is open) is not. Nothing of a request is read.
"""

from __future__ import annotations

import socket
import ssl
from asyncio import TimerHandle
from collections.abc import Callable
from contextlib import suppress

from headrace.broker.server.sockets.tls_listeners import TlsListener
from headrace.broker.server.sockets.tls_transport import TlsTransport
from headrace.broker.server.sockets.transport import peer_of
from headrace.broker.server.sockets.turns import Turns
from headrace.broker.structured_log import get_logger
from headrace.broker.tls.principals import NoRuleError

logger = get_logger(__name__)
HANDSHAKE_S_MAX = 10.0
HANDSHAKE_SIZE_MAX = 1 << 16
# RFC 8446: a record's type and version and size, then its message's type and size.
_HEAD_SIZE = 9
_HANDSHAKE_RECORD = 0x16
_RECEIVE_SIZE = 1 << 14
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
        self._socket = sock
        self._listener = tls
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        # The first bytes, how many have come, and what is still to leave.
        self._head = b""
        self._received_size = 0
        self._unsent = b""
        self._is_watched = False
        self._turns = turns
        self._secured, self._closed, self._failed = secured, closed, failed
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
        self._socket.close()
        self._closed(self)

    def close_after_replies(self, reason: str | None = None) -> None:
        """There are none."""
        self.close(reason)

    def _step(self) -> None:
        """As far as what the client has sent, and what it takes, allows."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                if self._outgoing_is_stuck or not self._receive():
                    return
            else:
                self._flush()
                if not self._outgoing_is_stuck:
                    self._done()
                return

    def _receive(self) -> bool:
        """Hand OpenSSL what the client sent next; False while there is nothing, or after it was refused."""
        try:
            data = self._socket.recv(_RECEIVE_SIZE)
        except BlockingIOError:
            return False
        if not data and not self._received_size:
            self.close()
            return False
        self._head += data[: _HEAD_SIZE - len(self._head)]
        self._received_size += len(data)
        if not data:
            self._incoming.write_eof()
        elif self._head[0] != _HANDSHAKE_RECORD:
            self._fail(f"it does not speak TLS, as the listener {self.listener} does")
        elif _message_size(self._head) > HANDSHAKE_SIZE_MAX:
            self._fail(f"its first message would take more than {HANDSHAKE_SIZE_MAX} bytes")
        elif self._received_size > HANDSHAKE_SIZE_MAX:
            self._fail(f"it takes more than {HANDSHAKE_SIZE_MAX} bytes")
        else:
            self._incoming.write(data)
        return not self.is_closed

    @property
    def _outgoing_is_stuck(self) -> bool:
        return bool(self._unsent)

    def _flush(self) -> None:
        """Send what OpenSSL has to say; a full socket is waited for."""
        self._unsent += self._outgoing.read()
        if self._unsent:
            with suppress(BlockingIOError):
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        if self._is_watched != bool(self._unsent):
            self._is_watched = bool(self._unsent)
            self._turns.watch(self._fd, writable=self._is_watched)

    def _done(self) -> None:
        if refusal := self._listener.refusal(self._tls.cipher()):
            self._fail(refusal)
            return
        try:
            name = self._listener.principals.name_of(self._tls.getpeercert(binary_form=True))
        except NoRuleError as error:
            self._fail(str(error))
            return
        self._leave()
        transport = TlsTransport(self._socket, self._tls, self._incoming, self._outgoing)
        self._secured(self, transport, name)

    def _fail(self, reason: str) -> None:
        """Give it up, and let the client know as far as OpenSSL has words for it."""
        self._failed()
        with suppress(OSError):
            self._flush()
        self.close(f"the TLS handshake failed: {reason}")

    def _timed_out(self) -> None:
        if not self.is_closed:
            self._fail(f"it is not done after {HANDSHAKE_S_MAX:g} s")

    def _leave(self) -> None:
        self.is_closed = True
        self._timer.cancel()
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
