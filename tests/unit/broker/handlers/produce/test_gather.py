"""Produce requests that came together are answered as if each had come alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from calls import call_of
from log_kit import NOW_MS, batch, offsets
from produce_world import CountedWrites, World, codes, request, rotten, serve_apart
from replica_kit import told

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.produce import gather, handler
from headrace.broker.handlers.replies import CloseConnectionError
from headrace.broker.wire.batches import Record, encode_batch

VERSIONS = range(7, 12)


def serve_together(world: Any, requests: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """All replies in order, and how many requests each call of the handler took."""
    waiting = [memoryview(bytearray(data)) for data in requests]
    replies, taken = b"", []
    while waiting:
        frame, *waiting = waiting
        parts, more = handler.handle_run(world, call_of(frame), frame, waiting)
        assert isinstance(parts, list)
        replies += b"".join(parts)  # type: ignore[arg-type]
        taken.append(1 + more)
        waiting = waiting[more:]
    return replies, taken


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_those_of_requests_one_by_one(tmp_path: Path, version: int, acks: int) -> None:
    batches = [
        bytes(batch(2)),
        bytes(batch(1, producer=(5, 0, 0))),
        bytes(batch(1, producer=(5, 0, 1))),
        bytes(batch(1, producer=(5, 0, 1))),
        rotten(),
        bytes(batch(1, producer=(5, 0, 7))),
        bytes(batch(3)),
        bytes(batch(3)) + b"behind the batch",
    ]
    requests = [request(version, 70 + n, data, acks=acks) for n, data in enumerate(batches)]
    together, apart = World(tmp_path / "together"), World(tmp_path / "apart")
    replies, taken = serve_together(together, requests)
    assert taken == [len(requests)]
    assert replies == serve_apart(apart, requests)
    assert offsets(together.partition.log) == offsets(apart.partition.log) == [0, 2, 3, 4, 7]
    good = [data for number, data in enumerate(batches) if number not in (4, 5)]
    assert together.counted == [("events", len(good), sum(map(len, good)))]
    assert together.woken == [("events", 0)]


@pytest.mark.parametrize("version", VERSIONS)
def test_who_asks_otherwise_or_what_cannot_be_written_at_once_ends_a_gathering(
    tmp_path: Path, version: int
) -> None:
    record = Record(0, NOW_MS, None, b"v", [])
    transactional = encode_batch(
        [record], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True
    )
    plain = bytes(batch())
    requests = [
        request(version, 1, plain),
        request(version, 2, plain, client_id="other"),
        request(version, 3, plain, topic="elsewhere"),
        request(version, 4, plain, acks=-1),
        request(version, 5, bytes(transactional), acks=-1),
        request(version, 6, plain, acks=-1),
        request(version, 7, plain, acks=-1),
        request(version, 8, b"", acks=-1),
    ]
    together, apart = World(tmp_path / "together"), World(tmp_path / "apart")
    replies, taken = serve_together(together, requests)
    assert replies == serve_apart(apart, requests)
    assert taken == [1, 1, 1, 1, 1, 2, 1]


def test_what_is_led_elsewhere_is_refused_request_by_request(tmp_path: Path) -> None:
    requests = [request(9, number, bytes(batch()), topic="followed") for number in range(3)]
    together, apart = World(tmp_path / "together"), World(tmp_path / "apart")
    replies, taken = serve_together(together, requests)
    assert taken == [1, 1, 1]
    assert replies == serve_apart(apart, requests)


def test_each_partition_is_written_once_whatever_the_order_of_the_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [
        request(9, number, bytes(batch(1 + number % 2)), topic="more", index=number % 3)
        for number in range(30)
    ]
    together, apart = World(tmp_path / "together"), World(tmp_path / "apart")
    # The first batch of a segment is always written alone.
    for world in (together, apart):
        serve_apart(world, requests[:3])
    monkeypatch.setattr(CountedWrites, "count", 0)
    for led in together.more:
        active = led.log.body.segments.active
        monkeypatch.setattr(active, "_file", CountedWrites(os.dup(active.log.fileno())))
    together.counted.clear()
    together.woken.clear()
    replies, taken = serve_together(together, requests)
    assert taken == [30]
    assert CountedWrites.count == 3
    assert replies == serve_apart(apart, requests)
    assert [offsets(led.log) for led in together.more] == [offsets(led.log) for led in apart.more]
    assert [(topic, count) for topic, count, _ in together.counted] == [("more", 10)] * 3
    assert together.woken == [("more", 0), ("more", 1), ("more", 2)]


def test_a_producers_gap_in_one_partition_is_no_other_partitions_concern(tmp_path: Path) -> None:
    sequences = [(0, 0), (1, 0), (0, 2), (1, 1), (0, 1), (1, 2)]
    requests = [
        request(9, number, bytes(batch(producer=(5, 0, sequence))), topic="more", index=index)
        for number, (index, sequence) in enumerate(sequences)
    ]
    together, apart = World(tmp_path / "together"), World(tmp_path / "apart")
    replies, taken = serve_together(together, requests)
    assert taken == [6]
    assert replies == serve_apart(apart, requests)
    assert codes(9, replies) == [0, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, 0, 0]


def parked(world: World, count: int = 3) -> Callable[..., list[int] | None]:
    """Requests with acks=all that came together, to a partition that others are in sync with: what an attempt to answer
    them gives, and the last one.
    """
    frame, *more = [
        memoryview(bytearray(request(9, number, bytes(batch()), acks=-1))) for number in range(count)
    ]
    reply, taken = handler.handle_run(world, call_of(frame), frame, more)  # type: ignore[arg-type]
    assert (reply, taken) == (world.deferred, count - 1)
    for data in (frame, *more):
        # What was appended is not kept: its place is for the next requests.
        data[:] = bytes(len(data))

    def attempt(*, is_last: bool = False) -> list[int] | None:
        parts = world.attempts[-1](None if is_last else {("events", 0)})
        return None if parts is None else codes(9, b"".join(parts))

    return attempt


def test_acks_all_is_parked_once_until_others_in_sync_have_all_that_came_together(tmp_path: Path) -> None:
    world = World(tmp_path, isr=(1, 2))
    attempt = parked(world)
    assert (world.ends_woken, world.woken) == ([("events", 0)], [])
    for offset, answer in ((0, None), (2, None), (3, [0, 0, 0])):
        world.partition.follower_fetched(2, offset)
        assert attempt() == answer
    assert len(world.attempts) == 1


def test_what_others_in_sync_lack_at_the_time_limit_is_late_and_the_rest_is_not(tmp_path: Path) -> None:
    world = World(tmp_path, isr=(1, 2))
    attempt = parked(world)
    world.partition.follower_fetched(2, 2)
    late = ErrorCode.REQUEST_TIMED_OUT
    assert attempt(is_last=True) == [0, 0, late]


def test_who_leads_again_acknowledges_nothing_of_before(tmp_path: Path) -> None:
    world = World(tmp_path, isr=(1, 2))
    attempt = parked(world)
    world.partition.follow(told(2, 5, (1, 2)))
    world.partition.follow(told(1, 6, (1, 2)))
    world.partition.follower_fetched(2, 3)
    assert world.partition.high_watermark == 3
    assert attempt() == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3


def test_who_leads_on_in_the_next_epoch_acknowledges_what_it_appended(tmp_path: Path) -> None:
    world = World(tmp_path, isr=(1, 2))
    attempt = parked(world)
    world.partition.follow(told(1, 5, (1, 2)))
    assert attempt() is None
    world.partition.follower_fetched(2, 3)
    assert attempt() == [0, 0, 0]


@pytest.mark.parametrize(("acks", "expected"), [(-1, [2, 1]), (1, [3])])
def test_other_time_limits_are_not_gathered_where_somebody_may_have_to_wait(
    tmp_path: Path, acks: int, expected: list[int]
) -> None:
    requests = [
        request(9, number, bytes(batch()), acks=acks, timeout_ms=timeout_ms)
        for number, timeout_ms in enumerate((1000, 1000, 2000))
    ]
    _, taken = serve_together(World(tmp_path), requests)
    assert taken == expected


def test_a_run_without_acknowledgement_has_no_answer_but_a_refused_batch_closes(tmp_path: Path) -> None:
    world: Any = World(tmp_path)
    frame, *more = [memoryview(bytearray(request(9, n, bytes(batch()), acks=0))) for n in range(3)]
    call = call_of(frame)
    assert handler.handle_run(world, call, frame, more) == (None, 2)
    assert offsets(world.partition.log) == [0, 1, 2]
    bad = memoryview(bytearray(request(9, 4, rotten(), acks=0)))
    with pytest.raises(CloseConnectionError, match="checksum"):
        handler.handle_run(world, call, memoryview(bytearray(request(9, 3, bytes(batch()), acks=0))), [bad])
    assert offsets(world.partition.log) == [0, 1, 2, 3]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_mirrors_copy_takes_nothing_from_clients_alone_or_together(
    tmp_path: Path, version: int, acks: int
) -> None:
    batches = [bytes(batch(2)), bytes(batch(1, producer=(5, 0, 0))), bytes(batch(1, producer=(5, 0, 1)))]
    requests = [request(version, number, data, acks=acks) for number, data in enumerate(batches)]
    world = World(tmp_path, config=LogConfig(is_mirror_copy=True))
    together, taken = serve_together(world, requests)
    assert taken == [len(requests)]
    assert together == serve_apart(world, requests)
    assert codes(version, together) == [ErrorCode.POLICY_VIOLATION] * len(requests)
    assert offsets(world.partition.log) == []
    world.partition.appender.append_mirrored(batch(3, at=40), leader_epoch=4, now_ms=NOW_MS)
    assert offsets(world.partition.log) == [40]


def test_a_mirrors_copy_closes_the_connection_of_who_wants_no_answer(tmp_path: Path) -> None:
    world: Any = World(tmp_path, config=LogConfig(is_mirror_copy=True))
    frame, *more = [memoryview(bytearray(request(9, n, bytes(batch()), acks=0))) for n in range(2)]
    with pytest.raises(CloseConnectionError, match="only the mirror writes to"):
        handler.handle_run(world, call_of(frame), frame, more)
    assert offsets(world.partition.log) == []


@pytest.mark.parametrize(
    "config", [LogConfig(compression_type="zstd"), LogConfig(cleanup_policy=("compact",))]
)
def test_what_must_be_unpacked_is_served_one_by_one(tmp_path: Path, config: LogConfig) -> None:
    keyed = encode_batch([Record(0, NOW_MS, b"k", b"v", [])])
    requests = [request(9, number, bytes(keyed)) for number in range(3)]
    _, taken = serve_together(World(tmp_path, config=config), requests)
    assert taken == [1, 1, 1]


def test_a_run_has_a_bound(tmp_path: Path) -> None:
    requests = [request(9, number, bytes(batch())) for number in range(200)]
    _, taken = serve_together(World(tmp_path), requests)
    assert taken == [128, 72]


def test_a_gathering_has_a_bound_of_partitions_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "RUNS_MAX", 2)
    requests = [
        request(9, n, bytes(batch()), topic="more", index=index)
        for n, index in enumerate((0, 1, 0, 2, 2, 0, 1))
    ]
    together, apart = World(tmp_path / "together"), World(tmp_path / "apart")
    replies, taken = serve_together(together, requests)
    assert taken == [3, 3, 1]
    assert replies == serve_apart(apart, requests)


def test_without_acknowledgement_the_first_refused_batch_closes_whatever_its_partition(
    tmp_path: Path,
) -> None:
    world: Any = World(tmp_path)
    gap = bytes(batch(producer=(5, 0, 7)))
    batches = [
        (2, bytes(batch(producer=(5, 0, 0)))),
        (1, bytes(batch())),
        (2, gap),
        (1, rotten()),
        (0, bytes(batch())),
    ]
    frame, *more = [
        memoryview(bytearray(request(9, n, data, topic="more", index=index, acks=0)))
        for n, (index, data) in enumerate(batches)
    ]
    with pytest.raises(CloseConnectionError, match="sequence number 7"):
        handler.handle_run(world, call_of(frame), frame, more)
    assert [offsets(led.log) for led in world.more] == [[0], [0], [0]]
