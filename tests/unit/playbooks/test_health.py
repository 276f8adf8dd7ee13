"""What the roll-out makes of a broker's answers."""

from __future__ import annotations

import importlib.util
import io
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.wire.api import k03_metadata
from headrace.broker.wire.frames import encode_response_header

PATH = Path(__file__).resolve().parents[3] / "playbooks" / "module_utils" / "headrace_health.py"
SPEC = importlib.util.spec_from_file_location("headrace_health_alone", PATH)
assert SPEC is not None
assert SPEC.loader is not None
health = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(health)


def metadata(**isr_sizes: int) -> bytes:
    """A broker's answer: topics of one partition each with three replicas, of which so many are in sync."""
    body = {
        "brokers": [{"node_id": 1, "host": "127.0.1.1", "port": 9092, "rack": None}],
        "controller_id": 1,
        "topics": [
            {
                "error_code": 0,
                "name": name,
                "is_internal": False,
                "partitions": [
                    {
                        "error_code": 0,
                        "partition_index": 0,
                        "leader_id": 1,
                        "replica_nodes": [1, 2, 3],
                        "isr_nodes": [1, 2, 3][:size],
                    }
                ],
            }
            for name, size in isr_sizes.items()
        ],
    }
    return encode_response_header(3, 1, 1) + k03_metadata.API.encode_response(1, body)


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that answers one request so; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_partitions_with_fewer_replicas_in_sync_than_they_have_are_named() -> None:
    found = health.under_replicated(io.BytesIO(metadata(whole=3, behind=2, alone=1)))
    assert found == ["behind-0", "alone-0"]


@pytest.mark.parametrize(
    ("isr_sizes", "expected"),
    [
        ({"a": 3, "b": 3}, None),
        ({"a": 3, "b": 2}, "1 partitions have replicas that are not in sync, b-0 among them"),
    ],
)
def test_a_broker_tells_of_its_whole_cluster(isr_sizes: dict[str, int], expected: Any) -> None:
    answer = metadata(**isr_sizes)
    with answering(struct.pack(">i", len(answer)) + answer) as port:
        assert health.out_of_sync("127.0.0.1", port) == expected


@pytest.mark.parametrize("answer", [b"", b"\0\0", struct.pack(">i", 100) + metadata(a=3)[:20]])
def test_an_answer_that_ends_too_early_is_no_proof(answer: bytes) -> None:
    with answering(answer) as port:
        assert "does not say which replicas" in (health.out_of_sync("127.0.0.1", port) or "")
