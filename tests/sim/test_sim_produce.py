"""Produce requests of one connection, gathered and one by one: the same replies, and the same logs byte for byte.

Producers of all kinds write to partitions of all kinds in random order: plain, compacted and recompressed topics, the broker's
own and ones that are not there; idempotent batches, repeated, skipped and damaged ones, old formats, transactions, several
partitions a request. Each seed's requests reach two brokers: one serves what came together at once, one each alone.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from random import Random
from typing import Any

import pytest
from frame_batches import TIMESTAMP_MS, odd_records
from frame_broker import FrameBroker

from headrace.broker.handlers.replies import CloseConnectionError
from headrace.broker.wire import frames
from headrace.broker.wire.api.k00_produce import API
from headrace.broker.wire.batches import Record, encode_batch

SEEDS = [f"{os.environ.get('FUZZ_SEED', 'headrace')}-{number}" for number in range(6)]
WAKE_UPS_COUNT = 60
TOPICS = ["plain", "other", "fuzz-compacted", "fuzz-gzip"]
ELSEWHERE = ["unknown", "__consumer_offsets", "ä"]


class Client:
    """What one connection sends: mostly a batch a request, each to another partition."""

    def __init__(self, seed: str) -> None:
        self._random = random = Random(seed)
        self._version = random.choice((7, 8, 9, 11))
        self._sequences: dict[tuple[str, int], int] = {}
        self._sent: dict[tuple[str, int], list[bytes]] = {}
        self._id = 0

    def wake_up(self) -> list[bytes]:
        """The requests that one read brings."""
        return [self._request() for _ in range(self._random.choice((1, 3, 20, 150)))]

    def _request(self) -> bytes:
        random = self._random
        self._id += 1
        version = random.choice(range(12)) if random.random() < 0.02 else self._version
        topics = [self._topic() for _ in range(random.choice((0, 2, 3)) if random.random() < 0.05 else 1)]
        acks = random.choice((1, -1, 7)) if random.random() < 0.1 else 1
        body: dict[str, Any] = {
            "acks": acks,
            "timeout_ms": random.choice((0, 1000)),
            "topic_data": topics,
        }
        if random.random() < 0.02 and version >= 3:
            body["transactional_id"] = "t"
        client_id = random.choice(("another", None, "")) if random.random() < 0.02 else "unit"
        return frames.encode_request_header(0, version, self._id, client_id) + API.encode_request(
            version, body
        )

    def _topic(self) -> dict[str, Any]:
        random = self._random
        name = random.choice(
            ELSEWHERE if random.random() < 0.02 else TOPICS[: 2 if random.random() < 0.95 else 4]
        )
        count = random.choice((0, 2, 3)) if random.random() < 0.03 else 1
        return {
            "name": name,
            "partition_data": [
                {"index": index, "records": self._records(name, index)}
                for index in (random.randrange(2 if random.random() < 0.98 else 4) for _ in range(count))
            ],
        }

    def _records(self, topic: str, index: int) -> bytes | None:
        random, key = self._random, (topic, index)
        sent = self._sent.setdefault(key, [])
        chance = random.random()
        if chance < 0.04:
            return odd_records(random)
        if chance < 0.08 and sent:
            return random.choice(sent[-7:])
        count, sequence = random.randint(1, 3), self._sequences.get(key, 0)
        is_idempotent, skips = chance < 0.7, chance < 0.1
        records = [
            Record(0, TIMESTAMP_MS + random.randint(-9, 9), b"k", random.randbytes(40), [])
            for _ in range(count)
        ]
        data = encode_batch(
            records,
            producer_id=4 if is_idempotent else -1,
            producer_epoch=0 if is_idempotent else -1,
            base_sequence=sequence + skips if is_idempotent else -1,
            transactional=is_idempotent and chance < 0.12,
        )
        if chance > 0.97:
            data[-1] ^= 1
        elif is_idempotent and chance >= 0.12:
            self._sequences[key] = sequence + count
            sent.append(bytes(data))
        return bytes(data)


@pytest.fixture
def brokers() -> Iterator[tuple[FrameBroker, FrameBroker]]:
    together, apart = FrameBroker(TOPICS), FrameBroker(TOPICS)
    yield together, apart
    together.close()
    apart.close()


def serve_all(broker: FrameBroker, requests: Sequence[bytes], *, together: bool) -> tuple[bytes, list[int]]:
    """The replies, and how many requests were served at once each time."""
    waiting = deque(memoryview(bytearray(request)) for request in requests)
    replies, counts = b"", list[int]()
    while waiting:
        frame = waiting.popleft()
        try:
            reply, more_count = broker.handle(frame, waiting if together else ())
        except CloseConnectionError as error:
            return replies + str(error).encode(), counts
        sent = broker.reply(reply, seconds=60)
        assert sent
        replies += sent
        counts.append(1 + more_count)
        for _ in range(more_count):
            waiting.popleft()
    return replies, counts


def serve_in_round(broker: FrameBroker, requests: Sequence[bytes]) -> tuple[bytes, int]:
    """The replies where no turn has more than three requests, and how many turns joined the round."""
    waiting = deque(memoryview(bytearray(request)) for request in requests)
    together, refusal = broker.services.together, b""
    together.is_open, joins = True, together.joins
    replies: list[Any] = []
    while waiting:
        frame = waiting.popleft()
        try:
            reply, more_count = broker.handle(frame, tuple(waiting)[:2])
        except CloseConnectionError as error:
            refusal = str(error).encode()
            break
        replies.append(reply)
        for _ in range(more_count):
            waiting.popleft()
    together.end()
    sent = [broker.reply(reply, seconds=60) for reply in replies]
    assert all(sent)
    return b"".join(data for data in sent if data) + refusal, together.joins - joins


def logs_of(broker: FrameBroker) -> dict[str, bytes]:
    return {path: broker.files.read(path) for path in broker.files.paths(".log")}


@pytest.mark.parametrize("seed", SEEDS)
def test_gathered_requests_come_to_the_same_as_one_by_one(
    brokers: tuple[FrameBroker, FrameBroker], seed: str
) -> None:
    together, apart = brokers
    client = Client(seed)
    counts: list[int] = []
    for _ in range(WAKE_UPS_COUNT):
        requests = client.wake_up()
        replies, served = serve_all(together, requests, together=True)
        assert replies == serve_all(apart, requests, together=False)[0]
        counts += served
    files = logs_of(together)
    assert files == logs_of(apart)
    assert sum(map(len, files.values())) > 100_000
    assert max(counts) > 10, "hardly anything was gathered"


@pytest.mark.parametrize("seed", SEEDS)
def test_turns_that_join_a_round_come_to_the_same_as_one_by_one(
    brokers: tuple[FrameBroker, FrameBroker], seed: str
) -> None:
    together, apart = brokers
    client = Client(seed)
    joins_count = 0
    for _ in range(WAKE_UPS_COUNT):
        requests = client.wake_up()
        replies, joins = serve_in_round(together, requests)
        assert replies == serve_all(apart, requests, together=False)[0]
        joins_count += joins
    assert logs_of(together) == logs_of(apart)
    assert joins_count > WAKE_UPS_COUNT, "hardly anything joined"


def test_requests_for_every_partition_in_turn_are_served_at_once(
    brokers: tuple[FrameBroker, FrameBroker],
) -> None:
    records = bytes(encode_batch([Record(0, TIMESTAMP_MS, None, b"v", [])]))
    places = [(topic, index) for topic in TOPICS[:2] for index in range(2)]
    requests = []
    for number, (topic, index) in enumerate(chain.from_iterable([places] * 8)):
        partitions = [{"index": index, "records": records}]
        body = {"acks": 1, "timeout_ms": 1, "topic_data": [{"name": topic, "partition_data": partitions}]}
        requests.append(frames.encode_request_header(0, 9, number, "unit") + API.encode_request(9, body))
    together, apart = brokers
    replies, counts = serve_all(together, requests, together=True)
    assert counts == [32]
    assert replies == serve_all(apart, requests, together=False)[0]
    assert logs_of(together) == logs_of(apart)
