"""Broker 2 of a cluster as a script: it listens, and answers what a follower asks of the partition that it would lead."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from raw_client import read_frame
from sessions import FETCH, LIST_OFFSETS, TIMESTAMP_MS, Message

from headrace.broker.errors import ErrorCode
from headrace.broker.wire import batches, frames
from headrace.broker.wire.api import APIS

BROKER_ID = 2
IDLE_SECONDS = 0.05


class Question(NamedTuple):
    """What a follower fetches: the leader epoch that it follows, where its log ends, and the epoch of its last batch."""

    leader_epoch: int
    offset: int
    last_epoch: int


def records_of(epochs: Sequence[int], start: int = 0) -> bytes:
    """The log of a leader that appended one message in each of these epochs, from the offset `start` on."""
    found = bytearray()
    for offset, epoch in enumerate(epochs[start:], start):
        value = b"message %d of epoch %d" % (offset, epoch)
        one = batches.encode_batch([batches.Record(0, TIMESTAMP_MS + offset, None, value, [])])
        batches.set_base_offset_and_epoch(one, 0, offset, epoch)
        found += one
    return bytes(found)


class ScriptedReplica:
    """`answers` says what a question gets, all others an empty answer after a moment; `asked` are the questions in their
    order, each once in a row. `end_offset` is what ListOffsets tells.
    """

    def __init__(self) -> None:
        self.answers: Mapping[Question, Message] = {}
        self.asked: list[Question] = []
        self.end_offset = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._socket.getsockname()
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._socket, *self._connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                frame = read_frame(connection)
                header = frames.read_request_header(frame)
                request = APIS[header.key].decode_request(header.version, frame, header.body_offset)
                answer = {FETCH: self._fetch, LIST_OFFSETS: self._list_offsets}[header.key](request)
                start = frames.encode_response_header(header.key, header.version, header.correlation_id)
                body = APIS[header.key].encode_response(header.version, answer)
                connection.sendall(frames.frame(start, body))

    def _fetch(self, request: Message) -> Message:
        topics = [
            {"topic_id": topic["topic_id"], "partitions": list(map(self._told, topic["partitions"]))}
            for topic in request["topics"]
        ]
        told = [partition for topic in topics for partition in topic["partitions"]]
        if not any(p["records"] or p["error_code"] or "diverging_epoch" in p for p in told):
            time.sleep(IDLE_SECONDS)
        return {"error_code": 0, "session_id": 0, "responses": topics}

    def _told(self, wanted: Message) -> dict[str, Any]:
        question = Question(
            wanted["current_leader_epoch"], wanted["fetch_offset"], wanted["last_fetched_epoch"]
        )
        if self.asked[-1:] != [question]:
            self.asked.append(question)
        empty = {"error_code": 0, "high_watermark": 0, "log_start_offset": 0, "records": b""}
        return {"partition_index": wanted["partition"], **empty, **self.answers.get(question, {})}

    def _list_offsets(self, request: Message) -> Message:
        topics = [
            {"name": topic["name"], "partitions": list(map(self._offset, topic["partitions"]))}
            for topic in request["topics"]
        ]
        return {"topics": topics}

    def _offset(self, wanted: Message) -> Message:
        offset = 0 if wanted["timestamp"] == -2 else self.end_offset
        found = {"offset": offset, "timestamp": -1, "leader_epoch": wanted["current_leader_epoch"]}
        return {"partition_index": wanted["partition_index"], "error_code": ErrorCode.NONE, **found}
