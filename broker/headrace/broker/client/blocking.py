"""One connection to one broker for code that blocks.

Every wait for the other side is bounded by the time-out. Not thread-safe; a process that forks makes its own. Answers are
views of one buffer: they are valid until the next request on this link.
"""

from __future__ import annotations

import itertools
import socket
from typing import Final

from headrace.broker.wire.client.exchange import Exchange
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.fields import Message
from headrace.broker.wire.schema import Api

_NUMBERS: Final = itertools.count()


class BlockingLink:
    """Connected when it is made, and agreed on versions unless it `negotiates` none; `number` is its own alone.

    After an OSError it is of no use but to be closed.
    """

    def __init__(
        self, address: Address, client_id: str, timeout_seconds: float, *, negotiates: bool = True
    ) -> None:
        self.number = next(_NUMBERS)
        self._exchange = Exchange(client_id, negotiates=negotiates)
        self._socket = _connected(address, timeout_seconds)
        try:
            if negotiates:
                self._carry(self._exchange.versions_request())
        except BaseException:
            self._socket.close()
            raise

    def ask(self, api: Api, highest: int, message: Message) -> Message:
        """Send a request in a version up to `highest` and return its decoded answer.

        Raises:
            OSError: the connection failed, timed out or was closed.
            MalformedError: the answer cannot be read.
            UnsupportedVersionError: the broker does not serve the request up to that version.
        """
        return self._carry(self._exchange.request(api, highest, message))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> BlockingLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _carry(self, request: bytes) -> Message:
        exchange, sock = self._exchange, self._socket
        sock.sendall(request)
        answer: Message | None = None
        while answer is None:
            answer = exchange.received(sock.recv_into(exchange.writable()))
        return answer


def _connected(address: Address, timeout_seconds: float) -> socket.socket:
    """A socket to the first that answers of all addresses that the name has."""
    sock = socket.create_connection(address, timeout=timeout_seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
