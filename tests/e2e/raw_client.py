"""A client that speaks frames over a blocking socket, for what no ordinary client would send."""

from __future__ import annotations

import socket
import struct
from typing import Any

from processes import DevCluster, DevProcess, eventually

from headrace.broker.wire import batches, frames
from headrace.broker.wire.api import APIS

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, OFFSET_FOR_LEADER_EPOCH = 0, 1, 2, 3, 18, 23


def read_frame(connection: socket.socket) -> bytes:
    """The next frame without its size; raises ConnectionResetError when the broker closes the connection instead."""
    return _exactly(connection, int.from_bytes(_exactly(connection, 4), "big"))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the broker closed the connection")
        data += piece
    return bytes(data)


class RawClient:
    """Speaks frames over a blocking socket."""

    def __init__(self, cluster: DevCluster | DevProcess | tuple[str, int]) -> None:
        """To the first broker of a cluster, or to an address."""
        address = cluster if isinstance(cluster, tuple) else cluster.addresses[0]
        self.socket = socket.create_connection(address, timeout=20)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(self, key: int, version: int, message: dict[str, Any], correlation_id: int = 1) -> bytes:
        header = frames.encode_request_header(key, version, correlation_id, "raw")
        return frames.frame(header, APIS[key].encode_request(version, message))

    def ask(self, key: int, version: int, message: dict[str, Any]) -> dict[str, Any]:
        self.send(self.request(key, version, message))
        return self.answer(key, version)[1]

    def answer(self, key: int, version: int) -> tuple[int, dict[str, Any]]:
        """(correlation id, message) of the next reply."""
        reply = self.reply()
        correlation_id, offset = frames.read_response_header(key, version, reply)
        return correlation_id, APIS[key].decode_response(version, reply, offset)

    def ask_or_none(self, key: int, version: int, message: dict[str, Any]) -> dict[str, Any] | None:
        """The answer, or None when the broker closed the connection."""
        try:
            return self.ask(key, version, message)
        except ConnectionError:
            return None

    def reply(self) -> bytes:
        return read_frame(self.socket)

    def is_closed_by_broker(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


def produce_request(topic: str, value: bytes, *, damage: str = "", version: int = 8) -> bytes:
    record = batches.Record(0, 1_700_000_000_000, None, value, [])
    batch = batches.encode_batch([record])
    if damage == "crc":
        batch[-1] ^= 1
    elif damage == "magic":
        batch[16] = 9
    elif damage == "length":
        batch[8:12] = struct.pack(">i", len(batch) + 100)
    message = {
        "acks": 1,
        "timeout_ms": 1000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}],
    }
    header = frames.encode_request_header(PRODUCE, version, 1, "raw")
    return frames.frame(header, APIS[PRODUCE].encode_request(version, message))


def produce(client: RawClient, topic: str, value: bytes, **options: Any) -> dict[str, Any]:
    client.send(produce_request(topic, value, **options))
    _, message = client.answer(PRODUCE, options.get("version", 8))
    partition: dict[str, Any] = message["responses"][0]["partition_responses"][0]
    return partition


def make_topic(client: RawClient, topic: str) -> None:
    def is_led() -> bool:
        answer = client.ask(METADATA, 5, {"topics": [{"name": topic}], "allow_auto_topic_creation": True})
        return bool(answer["topics"][0]["error_code"] == 0)

    eventually(is_led, what=f"topic {topic}")
