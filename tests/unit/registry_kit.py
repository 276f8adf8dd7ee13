"""A schema registry by script: what each path is answered with, and what it was asked."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MISSING = (404, {"error_code": 40403, "message": "Schema not found"})


@dataclass
class ScriptedRegistry:
    """`answers` holds by path (without its query) the status and body, which is sent as JSON unless it is bytes."""

    answers: dict[str, tuple[int, Any]]
    url: str = ""
    asked: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)
    """Method, path with its query, and headers."""
    posted: list[Any] = field(default_factory=list)


@contextmanager
def scripted_registry(
    answers: dict[str, tuple[int, Any]], tls: ssl.SSLContext | None = None
) -> Iterator[ScriptedRegistry]:
    registry = ScriptedRegistry(answers)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(registry))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    registry.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(registry: ScriptedRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append((self.command, self.path, dict(self.headers.items())))
            status, answer = registry.answers.get(self.path.partition("?")[0], MISSING)
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", body.decode())
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            registry.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
