"""Broker 2 of a cluster as a script: it listens, takes what a controller says, and answers what a follower asks of it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self
from uuid import UUID

from raw_client import FETCH, LIST_OFFSETS, read_frame

from headrace.broker.errors import ErrorCode
from headrace.broker.wire import batches, frames
from headrace.broker.wire.api import APIS

BROKER_ID = 2
IDLE_SECONDS = 0.05
APPENDED_MS = 1_700_000_000_000

Message = dict[str, Any]
# By the key of the request: LeaderAndIsr, StopReplica, UpdateMetadata.
TO_A_CONTROLLER: Mapping[int, Message] = {4: {"topics": []}, 5: {"partition_errors": []}, 6: {}}


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
        one = batches.encode_batch([batches.Record(0, APPENDED_MS + offset, None, value, [])])
        batches.set_base_offset_and_epoch(one, 0, offset, epoch)
        found += one
    return bytes(found)


class ScriptedReplica:
    """Of the topic `topic_id`, or of all: `answers` says what a question gets, all others an empty answer after a moment;
    `asked` are the questions in their order, each once in a row, `requests_count` how many requests there were. `end_offset`
    is what ListOffsets tells. `spoil` makes other bytes of a whole answer to such a request; None closes the connection.
    """

    def __init__(self) -> None:
        self.topic_id: UUID | None = None
        self.answers: Mapping[Question, Message] = {}
        self.asked: list[Question] = []
        self.requests_count = 0
        self.end_offset = 0
        self.spoil: Callable[[bytes], bytes | None] = bytes
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
                reply = self._reply(read_frame(connection))
                if reply is None:
                    connection.shutdown(socket.SHUT_RDWR)
                else:
                    connection.sendall(reply)

    def _reply(self, frame: bytes) -> bytes | None:
        header = frames.read_request_header(frame)
        api = APIS[header.key]
        request = api.decode_request(header.version, frame, header.body_offset)
        count = self.requests_count
        if header.key == FETCH:
            answer = self._fetched(request)
        elif header.key == LIST_OFFSETS:
            answer = self._listed(request)
        else:
            answer = {"error_code": 0, **TO_A_CONTROLLER[header.key]}
        start = frames.encode_response_header(header.key, header.version, header.correlation_id)
        reply = bytes(frames.frame(start, api.encode_response(header.version, answer)))
        return reply if self.requests_count == count else self.spoil(reply)

    def _fetched(self, request: Message) -> Message:
        topics = [
            {
                "topic_id": topic["topic_id"],
                "partitions": [
                    self._told(partition, is_meant=self.topic_id in (None, topic["topic_id"]))
                    for partition in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ]
        told = [partition for topic in topics for partition in topic["partitions"]]
        if not any(p["records"] or p["error_code"] or "diverging_epoch" in p for p in told):
            time.sleep(IDLE_SECONDS)
        return {"error_code": 0, "session_id": 0, "responses": topics}

    def _told(self, wanted: Message, *, is_meant: bool) -> Message:
        empty = {"error_code": 0, "high_watermark": 0, "log_start_offset": 0, "records": b""}
        told = {"partition_index": wanted["partition"], **empty}
        if not is_meant:
            return told
        self.requests_count += 1
        question = Question(
            wanted["current_leader_epoch"], wanted["fetch_offset"], wanted["last_fetched_epoch"]
        )
        if self.asked[-1:] != [question]:
            self.asked.append(question)
        return {**told, **self.answers.get(question, {})}

    def _listed(self, request: Message) -> Message:
        topics = [
            {"name": topic["name"], "partitions": list(map(self._offset, topic["partitions"]))}
            for topic in request["topics"]
        ]
        return {"topics": topics}

    def _offset(self, wanted: Message) -> Message:
        offset = 0 if wanted["timestamp"] == -2 else self.end_offset
        found = {"offset": offset, "timestamp": -1, "leader_epoch": wanted["current_leader_epoch"]}
        return {"partition_index": wanted["partition_index"], "error_code": ErrorCode.NONE, **found}
