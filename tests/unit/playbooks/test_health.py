"""What the roll-out makes of a service's answers."""

from __future__ import annotations

import importlib.util
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[3] / "playbooks" / "module_utils" / "headrace_health.py"
SPEC = importlib.util.spec_from_file_location("headrace_health_alone", PATH)
assert SPEC is not None
assert SPEC.loader is not None
health = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(health)


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that answers one request so; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"ready": false, "reason": "it waits for the cluster."}', ": it waits for the cluster"),
        (b'{"ready": false}', ""),
        (b"Service Unavailable\n", ""),
    ],
)
def test_a_service_that_is_not_ready_says_why(body: bytes, expected: str) -> None:
    head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n" % len(body)
    with answering(head + body) as port:
        assert health.probe_http("127.0.0.1", port, "/ready") == f"GET /ready answers 503{expected}"
