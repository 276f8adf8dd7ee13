"""Comparing a broker's own copies with their source, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headrace.broker.errors import ErrorCode, OffsetOutOfRangeError
from headrace.broker.wire.batches import Record, encode_batch
from headrace.broker.wire.client.replica_fetch import FetchedPartition, ReplicaFetchAnswer
from headrace.mirror.config import Tunables
from headrace.mirror.equality.checks import CheckPlan
from headrace.mirror.fetch.window import Limit
from headrace.mirror.memory.lead import Lead
from headrace.mirror.questions import Located
from headrace.mirror.rounds.checker import ATTEMPTS_COUNT, IDLE_SECONDS, RETRY_SECONDS, Checker

KEY = ("t", 0)
RATE = 1 << 20


def log_of(*values: bytes) -> list[bytes]:
    """Batches of ten messages."""
    return [
        bytes(encode_batch([Record(0, 5, None, value, [])] * 10, base_offset=10 * at))
        for at, value in enumerate(values)
    ]


class Log:
    """The copy's."""

    log_start_offset = 0

    def __init__(self, batches: Sequence[bytes]) -> None:
        self.batches = batches

    def read(self, offset: int, *, size_max: int, upper_offset: int) -> Any:
        if offset < self.log_start_offset:
            raise OffsetOutOfRangeError("gone")
        return SimpleNamespace(read=lambda: b"".join(self.batches[offset // 10 :]))

    @contextmanager
    def storage_errors(self) -> Iterator[None]:
        yield


class Link:
    """To the source's leader, which serves one batch at a time."""

    def __init__(self, batches: Sequence[bytes]) -> None:
        self.batches = batches
        self.codes: list[int] = []
        self.start = 0

    def close(self) -> None: ...

    def version(self, api: Any, highest: int) -> int:
        return highest

    async def ask(self, api: Any, highest: int, message: Any) -> Any:
        if api.key == 2:
            found = {"partition_index": 0, "error_code": 0, "offset": self.start}
            return {"topics": [{"name": "t", "partitions": [found]}]}
        ((_, question),) = message.asked
        code = self.codes.pop(0) if self.codes else 0
        if question.offset < self.start:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        data = memoryview(bytearray(self.batches[question.offset // 10]))
        return ReplicaFetchAnswer(0, 0, [((b"", 0), FetchedPartition(code, 30, 0, None, data))])


class World:
    """One copy of three batches; what the copier is told is in `told`."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, source: Sequence[bytes], copy: Sequence[bytes]
    ) -> None:
        self.log, self.link = Log(copy), Link(source)
        self.told: list[tuple[int, int, tuple[int, str] | None]] = []
        self.now_ms = 0
        self.losses: list[tuple[int, int]] = []
        located = Located(topic_id=UUID(int=1), leader=1, leader_epoch=0, is_compacted=False)
        self.copier = SimpleNamespace(
            awaits_metadata=False,
            located_at=located,
            progress=SimpleNamespace(source_end_offset=30),
            checked=lambda first, end, difference, _: self.told.append((first, end, difference)),
        )
        self.partition = SimpleNamespace(
            topic="dc-east.t", partition=0, leader_epoch=3, is_leader=True, high_watermark=30, log=self.log
        )
        self.plan = CheckPlan(RATE)
        self.source = SimpleNamespace(
            config=SimpleNamespace(name="dc-east"),
            copiers={KEY: self.copier},
            checks=self.plan,
            addresses={1: ("east", 9092)},
            client_id="test",
            tunables=Tunables(),
            limit=Limit(None),
            bytes_copied=0,
        )
        clock = SimpleNamespace(now_ms=lambda: self.now_ms, monotonic_ms=lambda: self.now_ms)
        configurations = SimpleNamespace(of_topic=lambda _: {})
        host = SimpleNamespace(clock=clock, configurations=configurations)
        lead = Lead(cast("Any", self.partition), 3)
        self.checker = Checker(cast("Any", host), cast("Any", self.source), lambda _: lead)

        async def opened(*_: Any) -> Link:
            return self.link

        async def findings(_: Checker) -> Any:
            return {("dc-east", "t", 0): self.losses} if self.losses else {}

        self.source.link_to = opened
        monkeypatch.setattr(Checker, "_findings", findings)

    def steps(self, count: int) -> list[float]:
        async def go() -> list[float]:
            return [await self.checker.step() for _ in range(count)]

        return asyncio.run(go())


def test_an_equal_copy_is_read_once_a_pass_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(b"a", b"b", b"c")
    world = World(monkeypatch, log, log)
    assert world.steps(5) == [1.0] * 4 + [IDLE_SECONDS]
    assert world.told == [(0, 30, None)]
    assert (world.plan.verified[KEY], world.plan.bytes_compared) == (30, sum(map(len, log)))
    assert world.plan.completed_ms == 0
    assert world.steps(5) == [IDLE_SECONDS] * 5


def test_a_difference_is_told_unless_a_finding_explains_it(monkeypatch: pytest.MonkeyPatch) -> None:
    source, copy = log_of(b"a", b"b", b"c"), log_of(b"a", b"x", b"c")
    world = World(monkeypatch, source, copy)
    world.steps(4)
    ((first, end, difference),) = world.told
    assert (first, end, difference is not None and difference[0]) == (0, 10, 10)
    explained = World(monkeypatch, source, copy)
    explained.losses = [(10, 19)]
    explained.steps(9)
    assert explained.told == [(0, 30, None)]


def test_failures_are_tried_again_and_end_a_turn_only_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(b"a", b"b", b"c")
    world = World(monkeypatch, log, log)
    world.link.codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE] * ATTEMPTS_COUNT
    assert world.steps(7) == [RETRY_SECONDS, 1.0] * ATTEMPTS_COUNT + [1.0]
    assert (world.told, world.plan.problem) == ([(0, 30, None)], "")
    lasting = World(monkeypatch, log, log)
    lasting.link.codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * ATTEMPTS_COUNT
    assert lasting.steps(ATTEMPTS_COUNT + 1) == [RETRY_SECONDS] * ATTEMPTS_COUNT + [IDLE_SECONDS]
    assert (lasting.told, lasting.plan.left_out_count, lasting.plan.completed_ms) == ([], 1, 0)
    assert lasting.plan.problem.startswith("dc-east.t-0 cannot be compared: the source answers ")


def test_what_either_side_deleted_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(b"a", b"b", b"c")
    world = World(monkeypatch, log, [b"", b"", log[2]])
    world.link.start = 20
    world.steps(5)
    assert world.told == [(0, 30, None)]
    assert world.plan.bytes_compared == len(log[2])


def test_what_lies_beyond_the_source_as_after_a_resume_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(b"a", b"b", b"c")
    world = World(monkeypatch, log[:2], log)
    world.copier.progress.source_end_offset = 20
    world.steps(4)
    assert world.told == [(0, 20, None)]


def test_a_turn_ends_with_the_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(b"a", b"b", b"c")
    world = World(monkeypatch, log, log)
    world.steps(1)
    world.partition.is_leader = False
    world.source.copiers.clear()
    assert world.steps(1) == [IDLE_SECONDS]
    assert world.told == []
