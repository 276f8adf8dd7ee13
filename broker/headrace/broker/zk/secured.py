"""Connections of kazoo to ZooKeeper over TLS, with a context of ours.

kazoo's own way takes stores from PEM files alone and waits for a socket that has nothing more to say while what it said
lies decrypted in memory.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """`failure` is why TLS was not agreed on, the last time that it was not."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context
        self.failure = ""

    def create_connection(self, address: Any, timeout: float, hostname: str, **_: Any) -> ssl.SSLSocket:
        sock = socket.create_connection(address, timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secured = self._context.wrap_socket(sock, server_hostname=hostname)
        except BaseException as error:
            sock.close()
            if isinstance(error, ssl.SSLError):
                self.failure = getattr(error, "verify_message", "") or error.reason or str(error)
            raise
        return secured

    def select(self, readable: Any, writable: Any, failing: Any, timeout: Any = None) -> Any:
        held = [each for each in readable if isinstance(each, ssl.SSLSocket) and each.pending()]
        if held:
            return held, [], []
        return super().select(readable, writable, failing, timeout)
