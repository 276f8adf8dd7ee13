"""What a Produce handler reaches, with real logs, and requests for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from calls import call_of
from log_kit import NOW_MS, batch, open_log
from replica_kit import ScriptedHost, told

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import NotLeaderOrFollowerError
from headrace.broker.handlers.produce import handler
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.log.files import Buffer, OsFile
from headrace.broker.quotas.usage import unlimited
from headrace.broker.replication.partition import Partition
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.round import Round
from headrace.broker.wire import frames
from headrace.broker.wire.api.k00_produce import API


class World(SimpleNamespace):
    """What the handler reaches: led partitions, `events-0` and `more-0` to `more-2`, with real logs, and counters."""

    def __init__(self, folder: Path, isr: tuple[int, ...] = (1,), config: LogConfig | None = None) -> None:
        log, _ = open_log(folder, config)
        self.to_sync: list[Partition] = []
        host = ScriptedHost(1, self.to_sync.append)
        partition = Partition(host, "events", 0, UUID(int=1), log)
        partition.follow(told(epoch=4, isr=isr))

        followed = Partition(host, "followed", 0, UUID(int=2), log)
        followed.follow(told(2, 4, (1, 2)))
        self.more = [self._led(folder / f"{number}", number) for number in range(3)]
        held = {("events", 0): partition, ("followed", 0): followed}
        held |= {("more", led.partition): led for led in self.more}

        def leader_of(topic: str, index: int) -> Partition:
            found = held.get((topic, index))
            if found is None or not found.is_leader:
                raise NotLeaderOrFollowerError("led elsewhere")
            return found

        self.attempts: list[Any] = []
        self.deferred: Deferred[Any] = Deferred()
        self.woken: list[tuple[str, int]] = []
        self.ends_woken: list[tuple[str, int]] = []
        self.counted: list[tuple[str, int, int]] = []
        super().__init__(
            partition=partition,
            partitions=SimpleNamespace(
                leader_of=leader_of, get=lambda topic, index: held.get((topic, index))
            ),
            waiting=SimpleNamespace(
                wake=lambda topic, index: self.woken.append((topic, index)),
                wake_end=lambda topic, index: self.ends_woken.append((topic, index)),
                park=self.park,
            ),
            clock=SimpleNamespace(now_ms=lambda: NOW_MS, monotonic_ms=lambda: 0),
            metrics=SimpleNamespace(
                produced=lambda *counts: self.counted.append(counts), failed=lambda *_: None
            ),
            refused_writes=RefusedWrites(),
            together=Round(),
            client_usage=unlimited(),
            authorizer=None,
            metadata=SimpleNamespace(
                partition=lambda topic, index: SimpleNamespace(leader=7, leader_epoch=6),
                endpoint=lambda broker_id, listener: None,
                brokers={},
            ),
        )

    def park(self, keys: Any, timeout_ms: int, attempt: Any) -> Any:
        """Keeps the attempt for the test to make."""
        assert timeout_ms == 1000
        self.attempts.append(attempt)
        return self.deferred

    def _led(self, folder: Path, number: int) -> Partition:
        log, _ = open_log(folder)
        led = Partition(ScriptedHost(1, self.to_sync.append), "more", number, UUID(int=3), log)
        led.follow(told(epoch=4))
        return led


def request(
    version: int,
    correlation_id: int,
    records: bytes,
    *,
    topic: str = "events",
    index: int = 0,
    acks: int = 1,
    client_id: str = "unit",
    timeout_ms: int = 1000,
) -> bytes:
    partitions = [{"index": index, "records": records}]
    body = {
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": [{"name": topic, "partition_data": partitions}],
    }
    return frames.encode_request_header(0, version, correlation_id, client_id) + API.encode_request(
        version, body
    )


def codes(version: int, replies: bytes) -> list[int]:
    """The error codes of replies that each tell of one partition."""
    found = []
    while replies:
        size = 4 + int.from_bytes(replies[:4], "big")
        _, offset = frames.read_response_header(0, version, replies[4:size])
        answer = API.decode_response(version, replies[4:size], offset)
        found.append(answer["responses"][0]["partition_responses"][0]["error_code"])
        replies = replies[size:]
    return found


def serve_apart(world: Any, requests: Sequence[bytes]) -> bytes:
    replies = b""
    for data in requests:
        frame = memoryview(bytearray(data))
        parts, _ = handler.handle_run(world, call_of(frame), frame, ())
        assert isinstance(parts, list)
        replies += b"".join(parts)  # type: ignore[arg-type]
    return replies


def rotten() -> bytes:
    data = bytearray(batch())
    data[-1] ^= 1
    return bytes(data)


class CountedWrites(OsFile):
    """A file of the operating system that counts."""

    count = 0

    def write_all_at(self, buffers: Sequence[Buffer], position: int) -> None:
        CountedWrites.count += 1
        super().write_all_at(buffers, position)
