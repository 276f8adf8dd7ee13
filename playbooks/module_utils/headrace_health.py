"""Asks a service whether it serves: one short exchange in the service's own protocol.

Each probe returns None when the service answers as it should and otherwise half a sentence that says what happened
instead. Only the standard library: a host needs nothing of headrace for it.
"""

from __future__ import annotations

import io
import socket
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable

PROBE_TIMEOUT_S = 2.0
POLL_INTERVAL_S = 0.1
# Size, ApiVersions (18) version 0, correlation id 1, no client id.
API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)
# Size, Metadata (3) version 1, correlation id 1, no client id, all topics.
METADATA_REQUEST = struct.pack(">ihhihi", 14, 3, 1, 1, -1, -1)
METADATA_SIZE_MAX = 64 << 20


def probe_tcp(address: str, port: int, path: str) -> str | None:
    with socket.create_connection((address, port), PROBE_TIMEOUT_S):
        return None


def probe_kafka(address: str, port: int, path: str) -> str | None:
    with socket.create_connection((address, port), PROBE_TIMEOUT_S) as connection:
        connection.sendall(API_VERSIONS_REQUEST)
        answer = receive(connection, 10)
    if len(answer) < 10:
        return "it closes the connection when asked for ApiVersions"
    _, correlation_id, error = struct.unpack(">iih", answer)
    return None if (correlation_id, error) == (1, 0) else f"it answers ApiVersions with error {error}"


def probe_zookeeper(address: str, port: int, path: str) -> str | None:
    with socket.create_connection((address, port), PROBE_TIMEOUT_S) as connection:
        connection.sendall(b"srvr")
        answer = receive(connection, 4096)
    return None if b"Mode:" in answer else f"it answers srvr with {answer.decode(errors='replace').strip()!r}"


def probe_http(address: str, port: int, path: str) -> str | None:
    url = f"http://{address}:{port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S):
            return None
    except urllib.error.HTTPError as error:
        return f"GET {path} answers {error.code}"


PROBES: dict[str, Callable[[str, int, str], str | None]] = {
    "tcp": probe_tcp,
    "kafka": probe_kafka,
    "zookeeper": probe_zookeeper,
    "http": probe_http,
}


def out_of_sync(address: str, port: int) -> str | None:
    """Half a sentence about partitions with fewer replicas in sync than they have, or None when there are none.

    Told by a broker, of all topics of its cluster.
    """
    try:
        with socket.create_connection((address, port), PROBE_TIMEOUT_S) as connection:
            connection.sendall(METADATA_REQUEST)
            head = receive(connection, 4)
            size = struct.unpack(">i", head)[0] if len(head) == 4 else 0
            answer = receive(connection, min(size, METADATA_SIZE_MAX))
        behind = under_replicated(io.BytesIO(answer))
    except OSError as error:
        return f"kafka at {address}:{port}: {error}"
    except struct.error:
        return f"kafka at {address}:{port}: it does not say which replicas are in sync"
    if not behind:
        return None
    return f"{len(behind)} partitions have replicas that are not in sync, {behind[0]} among them"


def under_replicated(answer: io.BytesIO) -> list[str]:
    """The partitions of a Metadata response (version 1) with fewer replicas in sync than they have; raises struct.error."""

    def number(kind: str) -> int:
        (value,) = struct.unpack(f">{kind}", answer.read(struct.calcsize(f">{kind}")))
        return int(value)

    def text() -> str:
        return answer.read(max(number("h"), 0)).decode(errors="replace")

    def numbers() -> list[int]:
        return [number("i") for _ in range(number("i"))]

    number("i")  # the correlation id
    for _ in range(number("i")):  # brokers: id, host, port, rack
        number("i"), text(), number("i"), text()
    number("i")  # the controller
    found = []
    for _ in range(number("i")):
        _, name, _ = number("h"), text(), number("b")
        for _ in range(number("i")):
            _, index, _ = number("h"), number("i"), number("i")
            replicas, isr = numbers(), numbers()
            if len(isr) < len(replicas):
                found.append(f"{name}-{index}")
    return found


def receive(connection: socket.socket, size: int) -> bytes:
    """Up to `size` bytes; fewer when the peer closes first."""
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            break
        received += part
    return received


def complaint(kind: str, address: str, port: int, path: str) -> str | None:
    """None when the service at that address is well, otherwise half a sentence about it."""
    try:
        return PROBES[kind](address, port, path)
    except (OSError, urllib.error.URLError) as error:
        return f"{getattr(error, 'reason', None) or error}"


def wait_until(well: Callable[[], str | None], timeout_s: float) -> str | None:
    """Poll until `well` has no complaint; the last complaint when time runs out."""
    deadline = time.monotonic() + timeout_s
    while True:
        last = well()
        if last is None or time.monotonic() >= deadline:
            return last
        time.sleep(POLL_INTERVAL_S)
