"""Reading both sides on through moved leaders, retention and silence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.wire.batches import Record, encode_batch
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror.equality import verifier
from headrace.mirror.equality.verification import Extents, Result, Verdict
from headrace.mirror.equality.verifier import Task, Verifier

HERE, THERE, GONE = ("here", 1), ("there", 1), ("gone", 1)
LOG = [bytes(encode_batch([Record(0, 5, None, b"v", [])] * 10, base_offset=offset)) for offset in (0, 10, 20)]


class Client:
    """Both clusters in memory: `faults` are raised, each once, before anything is served from an offset on."""

    faults: dict[tuple[str, int], list[Exception]]
    starts: dict[str, int]
    asked: list[str]

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._host = addresses[0][0]

    def close(self) -> None: ...

    async def refresh(self) -> None:
        Client.asked.append(self._host)
        if self._host == "gone":
            raise ConnectionRefusedError("nobody is there")

    async def log_starts(self, places: Sequence[PartitionKey]) -> dict[str, int]:
        return {f"{topic}-{partition}": self.starts[self._host] for topic, partition in places}

    async def fetch(self, topic: str, partition: int, offset: int) -> memoryview:
        faults = self.faults.get((self._host, offset), [])
        if faults:
            raise faults.pop(0)
        if offset < self.starts[self._host]:
            raise error_of(ErrorCode.OFFSET_OUT_OF_RANGE)
        return memoryview(bytearray(LOG[offset // 10]))


@pytest.fixture(autouse=True)
def _clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    Client.faults, Client.starts, Client.asked = {}, {"here": 0, "there": 0}, []
    monkeypatch.setattr(verifier, "RETRY_PAUSES_SECONDS", (0.0, 0.0))


def verified(count: int = 1, there: Address = THERE) -> tuple[list[Verdict], list[int]]:
    extents = Extents(source_start=0, source_end=30, copy_start=0, copy_end=30, next_offset=30)
    tasks = [
        Task(place=("dc-east.t", number), original=("t", number), source="dc-east", extents=extents)
        for number in range(count)
    ]
    told: list[Verdict] = []
    moved: list[int] = []
    here, sources = lambda: Client([HERE]), {"dc-east": lambda: Client([there])}
    asyncio.run(Verifier(cast("Any", here), cast("Any", sources), moved.append).run(tasks, told.append))
    return told, moved


def test_a_leader_that_moves_a_connection_that_ends_and_an_empty_answer_are_tried_again() -> None:
    Client.faults = {
        ("there", 0): [error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER), ConnectionResetError()],
        ("here", 10): [error_of(ErrorCode.OFFSET_NOT_AVAILABLE)],
    }
    (told,), moved = verified()
    assert (told.result, sum(moved)) == (Result.EQUAL, 30)


def test_what_lasts_or_is_no_matter_of_time_ends_the_comparison_with_a_reason() -> None:
    Client.faults = {("here", 10): [error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it moved")] * 3}
    (told,), _ = verified()
    assert (told.result, told.reason) == (Result.NOT_COMPARED, "the copy cannot be read: it moved")
    Client.faults = {("there", 0): [error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed")]}
    assert verified()[0][0].reason == "the source cannot be read: not allowed"


def test_a_cluster_that_does_not_answer_is_not_asked_again_for_each_partition() -> None:
    told, _ = verified(9, GONE)
    assert {one.reason for one in told} == {"the source cannot be read: nobody is there"}
    assert len(told) == 9
    assert Client.asked.count("gone") == 3 * verifier.WORKERS_COUNT


def test_retention_moves_the_start_and_a_log_that_ends_earlier_is_another_one() -> None:
    Client.starts = {"here": 0, "there": 20}
    (told,), _ = verified()
    assert (told.result, told.as_row()["deleted_meanwhile"]) == (Result.EQUAL, 20)
    Client.starts = {"here": 0, "there": 0}
    Client.faults = {("there", 10): [error_of(ErrorCode.OFFSET_OUT_OF_RANGE)]}
    (cut,), _ = verified()
    assert cut.reason == "the source cannot be read: t-0 ends before offset 10 by now"
