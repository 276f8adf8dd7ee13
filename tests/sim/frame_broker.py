"""A whole broker of `tests/world` to whose handlers frames are given by hand, one at a time, without sockets.

All behind the handlers is the broker's own: logs, groups, controller and, in memory, ZooKeeper; time is that of a virtual loop,
which `rest` moves. `serve` does with a frame what `server.sockets.connection` does: the gate may raise CloseConnectionError,
anything else is a defect and comes out. What tasks of the broker did not foresee comes out of `close`.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from frame_rights import BROKER_ID, Epochs
from node import Node
from virtual_time import VirtualLoop
from world import World, unforeseen_failures, until

from headrace.broker.handlers import table
from headrace.broker.handlers.call import Client
from headrace.broker.handlers.replies import CloseConnectionError
from headrace.broker.handlers.services import Services
from headrace.broker.log.results import LogSlice
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS
from headrace.broker.wire.fields import MalformedError
from headrace.broker.wire.frames import FrameDecoder, FrameError

SIZE_MAX = 1 << 20
PARKED_COUNT_MAX = 50
BEGAN_MS = 1_700_000_000_000
AT_ONCE_SECONDS = 1e-6
WORK_SECONDS_MAX = 0.1
"""How long a frame's work in threads and in ZooKeeper is waited for: longer than most of it takes."""
SETTINGS = {
    "log.index.size.max.bytes": "65536",
    "offsets.topic.num.partitions": "1",
    "socket.request.max.bytes": str(SIZE_MAX),
    "message.max.bytes": "100000",
    "log.segment.bytes": "1000000",
    # Frames name topics that there are not.
    "auto.create.topics.enable": "false",
}
OVERRIDES: dict[str, dict[str, str]] = {
    "fuzz-compacted": {"cleanup.policy": "compact"},
    "fuzz-gzip": {"compression.type": "gzip"},
}


class FrameBroker:
    """One broker that leads two partitions of each of `topics`, and that of groups' offsets."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._around = ExitStack()
        self._failures = self._around.enter_context(unforeseen_failures())
        self.loop = self._around.enter_context(VirtualLoop())
        self.topics = topics
        world = World(self.loop, seed=0, broker_count=0)
        world.network.is_faulty = False
        self._znodes = world.ensemble.znodes
        self.node = Node(self.loop, world.ensemble, world.network, BROKER_ID, SETTINGS, began_ms=BEGAN_MS)
        self.client = Client("127.0.0.1", "PLAINTEXT")
        self.parked: deque[tuple[Deferred[Any], Client]] = deque()
        self.loop.run_until_complete(self._start())
        assert self.node.broker is not None
        assert self.node.broker.acceptor is not None
        assert self.node.broker.logs is not None
        assert self.node.broker.partitions is not None
        self.broker = self.node.broker
        self.services: Services = self.node.broker.acceptor._broker
        self.logs = self.node.broker.logs
        self.partitions = self.node.broker.partitions
        self.files = self.node.disk
        self.clock, self.metrics = self.broker.clock, self.broker.metrics
        self._make_topics()

    async def _start(self) -> None:
        self.node.start()
        await until(lambda: self.node.is_serving)

    def _make_topics(self) -> None:
        topics = [
            {"name": name, "num_partitions": 2, "replication_factor": 1, "configs": _configs_of(name)}
            for name in self.topics
        ]
        made = self.ask(19, 5, {"topics": topics, "timeout_ms": 10_000, "validate_only": False})
        assert [topic["error_code"] for topic in made["topics"]] == [0] * len(topics), made
        self.ask(10, 2, {"key": "any", "key_type": 0})
        led = 2 * len(topics) + 1
        self.loop.run_until_complete(until(lambda: len(list(self.partitions.led())) == led))

    @property
    def epochs(self) -> Epochs:
        """That of its office, and that of its registration, which no answer tells."""
        registration = self._znodes[f"/brokers/ids/{BROKER_ID}"]
        return Epochs(controller=int(self._znodes["/controller_epoch"].data), broker=registration.czxid)

    def replicas(self, topic: str, partition: int) -> dict[str, Any]:
        """What the znodes say of a partition: its replicas, those that come and go, and its state."""
        path, number = f"/brokers/topics/{topic}", str(partition)
        told = json.loads(self._znodes[path].data)
        return {
            "replicas": told["partitions"][number],
            "adding": told["adding_replicas"].get(number, []),
            "removing": told["removing_replicas"].get(number, []),
            "state": json.loads(self._znodes[f"{path}/partitions/{number}/state"].data),
        }

    def configure(self) -> None:
        """Give the topics the configurations again that they had at first."""
        resources = [
            {"resource_type": 2, "resource_name": name, "configs": _configs_of(name)} for name in self.topics
        ]
        done = self.ask(33, 1, {"resources": resources, "validate_only": False})
        assert {answer["error_code"] for answer in done["responses"]} == {0}, done

    def ask(
        self, key: int, version: int, message: dict[str, Any], client_id: str = "witness"
    ) -> dict[str, Any]:
        """The answer to one who waits for it."""
        frame = frames.encode_request_header(key, version, 5, client_id)
        data = memoryview(bytearray(frame + APIS[key].encode_request(version, message)))
        reply = self.reply(self.handle(data)[0], seconds=60)
        assert reply, f"{APIS[key].name} was not answered"
        answer = _without_size(reply)
        correlation_id, offset = frames.read_response_header(key, version, answer)
        assert correlation_id == 5
        return APIS[key].decode_response(version, answer, offset)

    def rest(self, ms: int = 0) -> None:
        """Let time pass."""
        self.loop.run_until_complete(asyncio.sleep(ms / 1000 + AT_ONCE_SECONDS))

    def stream(self) -> FrameDecoder:
        """A connection's receive buffer."""
        return FrameDecoder(SIZE_MAX)

    def receive(self, decoder: FrameDecoder, data: bytes) -> tuple[list[memoryview], bool]:
        """The frames that these bytes complete, and whether the connection ends with them."""
        frames: list[memoryview] = []
        position = 0
        while position < len(data):
            room = decoder.writable()
            size = min(len(room), len(data) - position)
            room[:size] = data[position : position + size]
            position += size
            try:
                frames += [memoryview(bytearray(frame)) for frame in decoder.received(size)]
            except FrameError as error:
                return [*frames, *error.frames], True
        return frames, False

    def handle(self, frame: memoryview, following: Sequence[memoryview] = ()) -> tuple[Any, int]:
        """What the gate answers to a frame, and how many of the following it answers as well."""

        # As if the loop ran, which gets no further meanwhile.
        asyncio._set_running_loop(self.loop)
        try:
            now = self.loop.time()
            _, reply, more_count = table.serve(self.services, self.client, frame, following, now)
        finally:
            asyncio._set_running_loop(None)
        return reply, more_count

    def serve(self, frame: memoryview) -> bytes | None:
        """The reply to a frame when there is one soon; b"" when the connection is closed for it."""
        try:
            reply, _ = self.handle(frame)
            found = self.reply(reply, WORK_SECONDS_MAX)
        except (MalformedError, CloseConnectionError):
            return b""
        if found is None and isinstance(reply, Deferred):
            self._park(reply)
        return None if found is None else _without_size(found)

    def reply(self, reply: Any, seconds: float) -> bytes | None:
        """The frames that a handler's reply comes to, if it is there in that time. Raises what the handler does."""
        if not isinstance(reply, Deferred):
            return None if reply is None else _joined(reply)
        future = self.loop.create_future()
        reply.then(future.set_result, future.set_exception)
        self.rest()
        if not future.done():
            self.loop.run_until_complete(asyncio.wait([future], timeout=seconds))
        return _joined(future.result()) if future.done() else None

    def _park(self, reply: Deferred[Any]) -> None:
        self.parked.append((reply, self.client))
        if len(self.parked) > PARKED_COUNT_MAX:
            oldest, client = self.parked.popleft()
            oldest.cancel()
            client.gone()
        # A client sends nothing more while it waits: what comes next is another's.
        self.client = Client("127.0.0.1", "PLAINTEXT")

    def close(self) -> None:
        """SIGTERM, and what nobody foresaw until then."""
        with self._around:
            self.loop.run_until_complete(self.node.stop())
        assert not self._failures, self._failures[0]


def _configs_of(topic: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in OVERRIDES.get(topic, {}).items()]


def _joined(parts: Sequence[bytes | LogSlice]) -> bytes:
    return b"".join(part.read() if isinstance(part, LogSlice) else bytes(part) for part in parts)


def _without_size(frame: bytes) -> bytes:
    assert len(frame) == 4 + int.from_bytes(frame[:4], "big"), "a reply whose size is not that of its frame"
    return frame[4:]
