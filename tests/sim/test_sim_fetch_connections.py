"""Clients that come, fetch, wait and go at random: every answer is a fresh one, and nothing of them is left behind.

FETCH_SEEDS=0-999 pytest tests/sim/test_sim_fetch_connections.py
"""

from __future__ import annotations

import os
import socket
from random import Random
from typing import Any
from uuid import UUID

import pytest
from frame_broker import FrameBroker
from manual_loop import ManualLoop
from raw_client import read_frame

from headrace.broker.handlers.call import Client
from headrace.broker.server.sockets.connection import Connection
from headrace.broker.server.sockets.holdings import Holdings
from headrace.broker.server.sockets.transport import PlainTransport
from headrace.broker.server.sockets.turns import Turns
from headrace.broker.waiting.parking import Waiting
from headrace.broker.wire import batches, frames
from headrace.broker.wire.api import APIS

PRODUCE, FETCH, DELETE_RECORDS = 0, 1, 21
TOPICS = ("a", "b", "c")
PLACES = [(topic, partition) for topic in TOPICS for partition in range(2)]
STEPS_COUNT = 150
first, _, last = os.environ.get("FETCH_SEEDS", "0-7").partition("-")


class Visitor:
    """A client: its end of the socket, the broker's, and the Fetch that is not answered yet."""

    def __init__(self, near: socket.socket, connection: Connection) -> None:
        self.near = near
        self.connection = connection
        self.version = 11
        self.wishes: list[tuple[str, int]] = []
        self.offsets: dict[tuple[str, int], int] = {}
        self.asked: tuple[int, dict[str, Any]] | None = None


class House:
    """One broker with real connections, and whoever visits it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.broker = FrameBroker(TOPICS)
        bounds = {"parked_max": random.choice((3, 100)), "kept_max": random.choice((8, 1000))}
        self.waiting = self.broker.services.waiting = Waiting(self.broker.loop, **bounds)
        metadata = self.broker.services.metadata
        self.topic_ids = {topic: metadata.topic_id(topic) for topic in TOPICS}
        self.loop = ManualLoop()
        self.turns = Turns(self.loop, self.broker.services.together)  # type: ignore[arg-type]
        self.visitors: list[Visitor] = []
        self.server = socket.create_server(("127.0.0.1", 0))

    @property
    def requests(self) -> int:
        return sum(self.broker.metrics.requests)

    # What happens

    def come(self) -> None:
        near = socket.create_connection(self.server.getsockname(), timeout=5)
        far, _ = self.server.accept()
        far.setblocking(False)
        client = Client("127.0.0.1", "PLAINTEXT")
        connection = Connection(
            PlainTransport(far),
            client,
            self.broker.services,
            self.broker.metrics,
            self.turns,
            Holdings(0),
            lambda _: None,
        )
        self.visitors.append(Visitor(near, connection))

    def go(self, visitor: Visitor) -> None:
        self.visitors.remove(visitor)
        if self.random.random() < 0.5:
            visitor.connection.close()
        visitor.near.close()
        while not visitor.connection.is_closed:
            self.loop.settle()

    def fetch(self, visitor: Visitor) -> None:
        if self.random.random() < 0.15 or not visitor.wishes:
            visitor.version = self.random.choice((3, 4, 11, 12, 16))
            draw = self.random.sample if self.random.random() < 0.8 else self.random.choices
            visitor.wishes = draw([*PLACES, ("nowhere", 0)], k=self.random.choice((1, 3, 5)))
        visitor.asked = visitor.version, self._request(visitor)
        before = self.requests
        visitor.near.sendall(frame(FETCH, *visitor.asked))
        while self.requests == before:
            self.loop.settle()

    def _request(self, visitor: Visitor) -> dict[str, Any]:
        version, random = visitor.version, self.random
        topics: list[dict[str, Any]] = []
        for name, partition in visitor.wishes:
            log = self.broker.logs.get(name, partition)
            offset = 0 if log is None else log.high_watermark
            drawn = random.random()
            if drawn < 0.3:
                # What came meanwhile is not known to it.
                offset = visitor.offsets.get((name, partition), offset)
            elif drawn < 0.4:
                offset = random.choice((0, offset + 1))
            visitor.offsets[name, partition] = offset
            wish = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            key = {"topic_id": self.topic_ids.get(name, UUID(int=7))} if version >= 13 else {"topic": name}
            topics.append({**key, "partitions": [wish]})
        message = {
            "max_wait_ms": random.choice((0, 20, 200)),
            "min_bytes": random.choice((1, 1, 200)),
            "topics": topics,
        }
        if version < 15:
            message["replica_id"] = -1
        if version >= 4:
            message["isolation_level"] = random.choice((0, 0, 0, 1))
        return message

    def produce(self) -> None:
        for name, partition in self.random.sample(PLACES, self.random.choice((1, 1, 3))):
            records = [batches.Record(0, 1_700_000_000_000, None, b"v" * self.random.choice((1, 200)), [])]
            data = {"index": partition, "records": bytes(batches.encode_batch(records))}
            topics = [{"name": name, "partition_data": [data]}]
            self._answer(PRODUCE, 7, {"acks": 1, "timeout_ms": 1000, "topic_data": topics})

    def delete_records(self) -> None:
        name, partition = self.random.choice(PLACES)
        partitions = [{"partition_index": partition, "offset": -1}]
        topics = [{"name": name, "partitions": partitions}]
        self._answer(DELETE_RECORDS, 1, {"topics": topics, "timeout_ms": 1000})

    def _answer(self, key: int, version: int, message: dict[str, Any]) -> bytes:
        """What a client that comes for this alone is answered."""
        self.broker.client = Client("127.0.0.1", "PLAINTEXT")
        handled = memoryview(bytearray(frame(key, version, message)))[4:]
        reply = self.broker.serve(handled)
        assert reply
        return reply

    # What holds

    def settle(self, ms: int = 0) -> None:
        """All that has to follow follows, and who is answered is answered with what is so now."""
        self.broker.rest(ms)
        self.loop.settle()
        for visitor in self.visitors:
            if visitor.asked is not None and not visitor.connection.is_waiting:
                (version, message), visitor.asked = visitor.asked, None
                now = self._answer(FETCH, version, {**message, "max_wait_ms": 0})
                assert read_frame(visitor.near) == now
        waits = [visitor for visitor in self.visitors if visitor.connection.is_waiting]
        assert self.waiting.parked_count == len(waits)
        watches = {watch for each in self.waiting._by_key.values() for watch in each}
        assert self.waiting.kept_count == sum(len(watch.keys) for watch in watches if watch.is_kept)
        assert len([watch for watch in watches if watch.is_kept]) <= len(self.visitors)
        assert {watch for watch in watches if not watch.is_kept and watch.attempt is None} == set()

    def step(self) -> None:
        free = [visitor for visitor in self.visitors if visitor.asked is None]
        drawn = self.random.random()
        if not self.visitors or drawn < 0.08:
            self.come()
        elif drawn < 0.13:
            self.go(self.random.choice(self.visitors))
        elif drawn < 0.6 and free:
            self.fetch(self.random.choice(free))
        elif drawn < 0.74:
            self.produce()
        elif drawn < 0.86:
            self.delete_records()
        self.settle(self.random.choice((0, 0, 30, 300)))

    def close(self) -> None:
        for visitor in list(self.visitors):
            self.go(visitor)
        self.turns.close()
        self.server.close()
        self.broker.close()


def frame(key: int, version: int, message: dict[str, Any]) -> bytes:
    header = frames.encode_request_header(key, version, 7, "visitor")
    return frames.frame(header, APIS[key].encode_request(version, message))


@pytest.mark.parametrize("seed", range(int(first), int(last or first) + 1))
def test_random_visitors(seed: int) -> None:
    house = House(seed)
    for _ in range(STEPS_COUNT):
        house.step()
    house.close()
    assert (house.waiting.parked_count, house.waiting.kept_count, house.waiting._by_key) == (0, 0, {})
