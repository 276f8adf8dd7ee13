"""Many connections that send frames of the fuzzer to a real broker, a witness that does ordinary work, and what comes of it.

A frame counts once it was examined: answered, or its connection closed by the broker. A connection sends a few frames, the
last of which may be none, ends its side and reads until the broker does the same; requests that may wait for long (a join,
a fetch) are left waiting after `PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from dataclasses import dataclass
from random import Random
from typing import Any

import psutil
from frame_fuzzer import Frame, FrameFuzzer
from frame_rights import BROKER_ID, Epochs
from frame_values import TOPICS
from kazoo.client import KazooClient
from processes import DevCluster, DevProcess
from raw_client import read_frame

from headrace.broker.wire import batches, frames
from headrace.broker.wire.api import APIS
from headrace.broker.wire.fields import MalformedError
from headrace.broker.zk import paths

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, FIND_COORDINATOR, CREATE_TOPICS = 0, 1, 3, 8, 10, 19
WITNESS = "witness"
FRAMES_PER_CONNECTION_MAX = 12
PATIENCE_S = 0.5
SESSION_TIMEOUT_S = 20.0
LEARN_SHARE = 0.2
# For a short run; far below the size of two of the largest requests.
GROWTH_MAX = 16 << 20
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.segment.bytes": "4194304",
    "log.retention.bytes": "8388608",
    "log.retention.check.interval.ms": "5000",
    "offsets.topic.num.partitions": "5",
    "group.max.session.timeout.ms": "30000",
}


@dataclass
class Tally:
    """What became of the frames."""

    sent: int = 0
    answered: int = 0
    closed: int = 0
    left_waiting: int = 0
    connections: int = 0

    @property
    def examined(self) -> int:
        return self.answered + self.closed


class Witness:
    """An ordinary client over a blocking socket; every answer must be there in `SESSION_TIMEOUT_S`."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=SESSION_TIMEOUT_S)

    def ask(self, key: int, version: int, message: dict[str, Any]) -> dict[str, Any]:
        header = frames.encode_request_header(key, version, 3, WITNESS)
        self._socket.sendall(frames.frame(header, APIS[key].encode_request(version, message)))
        reply = read_frame(self._socket)
        _, offset = frames.read_response_header(key, version, reply)
        return APIS[key].decode_response(version, reply, offset)

    def close(self) -> None:
        self._socket.close()

    def make_topics(self) -> None:
        """Those of the fuzzer and the witness's own."""
        configs = {"fuzz-compacted": {"cleanup.policy": "compact"}, "fuzz-gzip": {"compression.type": "gzip"}}
        topics = [
            {
                "name": name,
                "num_partitions": 2,
                "replication_factor": 1,
                "configs": [{"name": k, "value": v} for k, v in configs.get(name, {}).items()],
            }
            for name in (*TOPICS, WITNESS)
        ]
        answer = self.ask(CREATE_TOPICS, 5, {"topics": topics, "timeout_ms": 20_000})
        assert all(topic["error_code"] == 0 for topic in answer["topics"]), answer

    def publish(self) -> int:
        """One record; its offset."""
        record = batches.Record(0, int(time.time() * 1000), None, b"seen", [])
        data = [{"index": 0, "records": bytes(batches.encode_batch([record]))}]
        message = {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": WITNESS, "partition_data": data}]}
        answer = self.ask(PRODUCE, 9, message)["responses"][0]["partition_responses"][0]
        assert answer["error_code"] == 0, answer
        return int(answer["base_offset"])

    def read(self, offset: int) -> None:
        """The record at that offset is the one that was published."""
        wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000}
        topics = [{"topic": WITNESS, "partitions": [wanted]}]
        message = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1000, "topics": topics}
        found = self.ask(FETCH, 11, message)["responses"][0]["partitions"][0]
        assert found["error_code"] == 0, found
        records = batches.decode_records(found["records"], 0, batches.read_header(found["records"]))
        assert [record.value for record in records] == [b"seen"]

    def session(self) -> None:
        """Metadata, a record published and read back, an offset committed."""
        assert self.ask(METADATA, 9, {"topics": [{"name": WITNESS}]})["topics"][0]["error_code"] == 0
        offset = self.publish()
        self.read(offset)
        committed = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        message = {"group_id": WITNESS, "topics": [{"name": WITNESS, "partitions": [committed]}]}
        self.ask(FIND_COORDINATOR, 2, {"key": WITNESS, "key_type": 0})
        deadline = time.monotonic() + SESSION_TIMEOUT_S
        while (code := self.ask(OFFSET_COMMIT, 5, message)["topics"][0]["partitions"][0]["error_code"]) != 0:
            assert code in (14, 15, 16), f"the commit ended with error {code}"
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.1)


class Flood:
    """Connections that send frames until enough were examined."""

    def __init__(self, cluster: DevCluster | DevProcess, seed: str, *, connections: int) -> None:
        self._address = cluster.addresses[0]
        self._zookeeper = cluster.zookeeper
        self._connections = connections
        self._fuzzer = FrameFuzzer(seed)
        self._random = Random(seed)
        self.tally = Tally()

    def run(self, count: int) -> None:
        """Until `count` more frames were examined."""
        self._fuzzer.know(epochs_in(self._zookeeper))
        asyncio.run(self._run(self.tally.examined + count))

    async def _run(self, until: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._connections):
                group.create_task(self._client(until))

    async def _client(self, until: int) -> None:
        loop = asyncio.get_running_loop()
        while self.tally.examined < until:
            burst = self._burst()
            sock = socket.socket()
            sock.setblocking(False)
            # A reset instead of a goodbye: no port is kept waiting for a minute.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await loop.sock_connect(sock, self._address)
                    await self._send(loop, sock, burst)
            except TimeoutError:
                self.tally.left_waiting += 1
            finally:
                sock.close()

    def _burst(self) -> list[Frame]:
        burst: list[Frame] = []
        for _ in range(self._random.randint(1, FRAMES_PER_CONNECTION_MAX)):
            frame = self._fuzzer.next()
            burst.append(frame)
            if frame.is_last:
                break
        return burst

    async def _send(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, burst: list[Frame]) -> None:
        self.tally.connections += 1
        self.tally.sent += len(burst)
        received = bytearray()
        try:
            await loop.sock_sendall(sock, b"".join([frame.data for frame in burst]))
            sock.shutdown(socket.SHUT_WR)
            while data := await loop.sock_recv(sock, 1 << 16):
                received += data
        except OSError:  # the broker was first to close
            pass
        finally:
            self._count(burst, received)
        self.tally.closed += burst[-1].is_last

    def _count(self, burst: list[Frame], received: bytearray) -> None:
        position = 0
        for frame in burst:
            if len(received) - position < 8:
                break
            size = int.from_bytes(received[position : position + 4], "big")
            self.tally.answered += 1
            if self._random.random() < LEARN_SHARE:
                self._learn(frame, bytes(received[position + 4 : position + 4 + size]))
            position += 4 + size

    def _learn(self, frame: Frame, reply: bytes) -> None:
        """Replies to requests without one (acks=0) shift the rest: what cannot be read is passed over."""
        try:
            _, offset = frames.read_response_header(frame.key, frame.version, reply)
            self._fuzzer.learn(APIS[frame.key].decode_response(frame.version, reply, offset))
        except (MalformedError, KeyError, ValueError, UnicodeDecodeError):
            return


def epochs_in(zookeeper: str) -> Epochs:
    """What the znodes tell of the controller and of the broker's registration."""
    client = KazooClient(zookeeper)
    client.start(SESSION_TIMEOUT_S)
    try:
        controller, _ = client.get(paths.CONTROLLER_EPOCH)
        _, registration = client.get(paths.broker(BROKER_ID))
    finally:
        client.stop()
        client.close()
    return Epochs(controller=int(controller), broker=registration.czxid)


def resident_size(process: psutil.Process) -> int:
    size: int = process.memory_info().rss
    return size
