"""A broker on a real socket whose answers a script gives, for clients of the protocol."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS

API_VERSIONS = 18
Answer = dict[str, Any] | bytes
"""A message, or bytes to send as they are, after which the connection ends."""
Script = Callable[[int, dict[str, Any]], Answer]


@dataclass(slots=True)
class ScriptedBroker:
    """`asked` are the keys and messages of all requests in their order, those for versions included."""

    script: Script
    listener: socket.socket
    address: tuple[str, int]
    asked: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    tls: ssl.SSLContext | None = None
    _connection: socket.socket | None = None
    _ended: bool = False

    @property
    def keys(self) -> list[int]:
        return [key for key, _ in self.asked]

    def accept(self) -> None:
        """Serve one connection after the other until the end."""
        with contextlib.suppress(OSError):
            while not self._ended:
                connection, _ = self.listener.accept()
                if self.tls is not None:
                    try:
                        connection = self.tls.wrap_socket(connection, server_side=True)
                    except OSError:
                        connection.close()
                        continue
                with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
                    self._connection = connection
                    while (
                        not self._ended
                        and (size := stream.read(4))
                        and self._serve(connection, stream.read(int.from_bytes(size, "big")))
                    ):
                        pass

    def end(self) -> None:
        """Accept nothing more, and leave a client alone that keeps its connection open."""
        self._ended = True
        for end in (self.listener, self._connection):
            with contextlib.suppress(OSError):
                if end:
                    end.shutdown(socket.SHUT_RDWR)

    def _serve(self, connection: socket.socket, request: bytes) -> bool:
        header = frames.read_request_header(request)
        api = APIS[header.key]
        message = api.decode_request(header.version, request, header.body_offset)
        self.asked.append((header.key, message))
        answer = self.script(header.key, message)
        if isinstance(answer, bytes):
            connection.sendall(answer)
            return False
        number = frames.encode_response_header(header.key, header.version, header.correlation_id)
        connection.sendall(frames.frame(number, api.encode_response(header.version, answer)))
        return True


@contextlib.contextmanager
def scripted_broker(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedBroker]:
    """Runs in a thread until the block ends; serves one connection at a time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        broker = ScriptedBroker(script, listener, listener.getsockname(), tls=tls)
        thread = threading.Thread(target=broker.accept)
        thread.start()
        try:
            yield broker
        finally:
            broker.end()
            thread.join()


def versions(served: dict[int, tuple[int, int]]) -> dict[str, Any]:
    """An answer to ApiVersions: key → first and last version."""
    keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in served.items()]
    return {"error_code": 0, "api_keys": keys}
