"""One connection to one broker for code that blocks.

Every wait for the other side is bounded by the time-out. Not thread-safe; a process that forks makes its own. Answers are
views of one buffer: they are valid until the next request on this link. Where the security wants it, a link logs in before
its first request, and again before its session is over (KIP-368).
"""

from __future__ import annotations

import itertools
import random
import socket
import ssl
import time
from typing import Final

from headrace.broker.client.identities import advanced, identity_of, nonce
from headrace.broker.client.security import PLAINTEXT, ClientSecurity
from headrace.broker.client.tls_contexts import context_of, tls_error
from headrace.broker.wire.client.exchange import Exchange
from headrace.broker.wire.client.login import log_in, renewal_after_ms
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.fields import Message
from headrace.broker.wire.schema import Api

_NUMBERS: Final = itertools.count()


class BlockingLink:
    """Connected and logged in when it is made, and agreed on versions unless it `negotiates` none; `number` is its own alone.

    After an OSError it is of no use but to be closed.
    """

    def __init__(
        self,
        address: Address,
        client_id: str,
        timeout_seconds: float,
        *,
        negotiates: bool = True,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        self.number = next(_NUMBERS)
        self._address = address
        self._security = security
        self._timeout_seconds = timeout_seconds
        self._login_due: float | None = None
        self._exchange = Exchange(client_id, negotiates=negotiates)
        self._socket = _connected(address, timeout_seconds, security)
        try:
            if negotiates:
                self._carry(self._exchange.versions_request())
            if security.uses_sasl:
                self._log_in()
        except BaseException:
            self._socket.close()
            raise

    def ask(self, api: Api, highest: int, message: Message, timeout_seconds: float | None = None) -> Message:
        """Send a request in a version up to `highest` and return its decoded answer; None: within the link's own time-out.

        Raises:
            OSError: the connection failed, timed out or was closed.
            MalformedError: the answer cannot be read.
            UnsupportedVersionError: the broker does not serve the request up to that version.
        """
        if self._login_due is not None and time.monotonic() >= self._login_due:
            self._log_in()
        request = self._exchange.request(api, highest, message)
        if timeout_seconds is None:
            return self._carry(request)
        self._socket.settimeout(timeout_seconds)
        answer = self._carry(request)
        self._socket.settimeout(self._timeout_seconds)
        return answer

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> BlockingLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _log_in(self) -> None:
        steps = log_in(identity_of(self._security), nonce())
        asked = advanced(steps, None)
        while not isinstance(asked, int):
            asked = advanced(steps, self._carry(self._exchange.request(*asked)))
        after_ms = renewal_after_ms(asked, random.random())
        self._login_due = None if after_ms is None else time.monotonic() + after_ms / 1000

    def _carry(self, request: bytes) -> Message:
        exchange, sock = self._exchange, self._socket
        try:
            sock.sendall(request)
            answer: Message | None = None
            while answer is None:
                answer = exchange.received(sock.recv_into(exchange.writable()))
        except ssl.SSLError as error:
            raise tls_error(self._address, error) from error
        return answer


def _connected(address: Address, timeout_seconds: float, security: ClientSecurity) -> socket.socket:
    """A socket to the first that answers of all addresses that the name has, over TLS where the security wants it."""
    context = context_of(security) if security.uses_tls else None
    sock = socket.create_connection(address, timeout=timeout_seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return sock
    try:
        return context.wrap_socket(sock, server_hostname=address[0])
    except ssl.SSLError as error:
        sock.close()
        raise tls_error(address, error) from error
    except BaseException:
        sock.close()
        raise
