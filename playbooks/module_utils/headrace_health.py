"""Asks a service whether it serves: one short exchange in the service's own protocol.

Each probe returns None when the service answers as it should and otherwise half a sentence that says what happened
instead. Only the standard library: a host needs nothing of headrace for it.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable

PROBE_TIMEOUT_S = 2.0
POLL_INTERVAL_S = 0.1
# Size, ApiVersions (18) version 0, correlation id 1, no client id.
API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)
REASON_SIZE_MAX = 4 << 10


def probe_kafka(address: str, port: int, path: str) -> str | None:
    with socket.create_connection((address, port), PROBE_TIMEOUT_S) as connection:
        return ask_versions(connection)


def probe_kafka_tls(address: str, port: int, path: str) -> str | None:
    return over_tls(address, port, ask_versions)


def unverified() -> ssl.SSLContext:
    """Whether somebody answers is asked with it, and not who it is: nothing is told to it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def over_tls(address: str, port: int, ask: Callable[[socket.socket], str | None]) -> str | None:
    with socket.create_connection((address, port), PROBE_TIMEOUT_S) as connection:
        try:
            with unverified().wrap_socket(connection) as secured:
                return ask(secured)
        except ssl.SSLError as error:
            return f"TLS fails there ({error.reason or error})"


def ask_versions(connection: socket.socket) -> str | None:
    connection.sendall(API_VERSIONS_REQUEST)
    answer = receive(connection, 10)
    if len(answer) < 10:
        return "it closes the connection when asked for ApiVersions"
    _, correlation_id, error = struct.unpack(">iih", answer)
    return None if (correlation_id, error) == (1, 0) else f"it answers ApiVersions with error {error}"


def probe_zookeeper(address: str, port: int, path: str) -> str | None:
    with socket.create_connection((address, port), PROBE_TIMEOUT_S) as connection:
        return ask_srvr(connection)


def probe_zookeeper_tls(address: str, port: int, path: str) -> str | None:
    return over_tls(address, port, ask_srvr)


def ask_srvr(connection: socket.socket) -> str | None:
    connection.sendall(b"srvr")
    answer = receive(connection, 4096)
    return None if b"Mode:" in answer else f"it answers srvr with {answer.decode(errors='replace').strip()!r}"


def probe_http(address: str, port: int, path: str) -> str | None:
    return ask_http(f"http://{address}:{port}", path)


def probe_https(address: str, port: int, path: str) -> str | None:
    return ask_http(f"https://{address}:{port}", path)


def ask_http(place: str, path: str) -> str | None:
    try:
        with urllib.request.urlopen(place + path, timeout=PROBE_TIMEOUT_S, context=unverified()):
            return None
    except urllib.error.HTTPError as error:
        return f"GET {path} answers {error.code}{reason_of(error.read(REASON_SIZE_MAX))}"


def reason_of(body: bytes) -> str:
    """What an answer of JSON gives as its `reason`, to end a sentence with."""
    try:
        return f": {json.loads(body)['reason']}".rstrip(".")
    except (ValueError, LookupError, TypeError):
        return ""


PROBES: dict[str, Callable[[str, int, str], str | None]] = {
    "kafka": probe_kafka,
    "kafka_tls": probe_kafka_tls,
    "zookeeper": probe_zookeeper,
    "zookeeper_tls": probe_zookeeper_tls,
    "http": probe_http,
    "https": probe_https,
}


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
