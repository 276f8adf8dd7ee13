"""What several connections' turns gathered is appended together, and answered as if each had come alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from calls import call_of
from log_kit import batch, offsets
from produce_world import CountedWrites, World, codes, request, rotten, serve_apart
from replica_kit import told

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.produce import append, gathered, handler
from headrace.broker.waiting.deferred import Deferred


def turn(world: Any, requests: Sequence[bytes]) -> list[Any]:
    """The replies to one connection's requests, in its turn of a round; those that are to come are Deferred."""
    waiting = [memoryview(bytearray(data)) for data in requests]
    replies = []
    while waiting:
        frame, *waiting = waiting
        reply, more = handler.handle_run(world, call_of(frame), frame, waiting)
        replies.append(reply)
        waiting = waiting[more:]
    return replies


def read(replies: Sequence[Any]) -> bytes:
    """The bytes of replies that are there by now."""
    parts: list[bytes] = []
    for reply in replies:
        if isinstance(reply, Deferred):
            assert reply.done
            reply.then(parts.extend)
        else:
            parts += reply
    return b"".join(parts)


def to_more(number: int, index: int, data: bytes | None = None, *, acks: int = 1) -> bytes:
    return request(9, number, data or bytes(batch()), topic="more", index=index, acks=acks)


def test_each_partition_is_written_once_whoever_sent_the_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = [[to_more(10 * c + n, (c + n) % 3) for n in range(1 + c % 3)] for c in range(10)]
    together, apart = World(tmp_path / "together"), World(tmp_path / "apart")
    # The first batch of a segment is always written alone.
    for world in (together, apart):
        serve_apart(world, [to_more(index, index) for index in range(3)])
    monkeypatch.setattr(CountedWrites, "count", 0)
    for led in together.more:
        active = led.log.body.segments.active
        monkeypatch.setattr(active, "_file", CountedWrites(os.dup(active.log.fileno())))
    together.ends_woken.clear()
    together.together.is_open = True
    replies = [turn(together, requests) for requests in connections]
    assert all(isinstance(reply, Deferred) and not reply.done for own in replies for reply in own)
    together.together.end()
    assert CountedWrites.count == 3
    assert sorted(together.ends_woken) == [("more", 0), ("more", 1), ("more", 2)]
    for own, requests in zip(replies, connections, strict=True):
        assert read(own) == serve_apart(apart, requests)
    assert [offsets(led.log) for led in together.more] == [offsets(led.log) for led in apart.more]


def test_a_refused_batch_is_its_own_connections_concern(tmp_path: Path) -> None:
    first, gap = bytes(batch(producer=(5, 0, 0))), bytes(batch(producer=(5, 0, 7)))
    connections = [
        [request(9, 1, bytes(batch(2))), request(9, 2, rotten())],
        [request(9, 3, bytes(batch()))],
        [request(9, 4, first), request(9, 5, gap), request(9, 6, bytes(batch()))],
    ]
    together, apart = World(tmp_path / "together"), World(tmp_path / "apart")
    together.together.is_open = True
    replies = [turn(together, requests) for requests in connections]
    together.together.end()
    expected = [serve_apart(apart, requests) for requests in connections]
    assert list(map(read, replies)) == expected
    assert codes(9, expected[2]) == [0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]


@pytest.mark.parametrize("odd", ["alone", "large", "acks=0", "other acks"])
def test_nothing_of_a_connection_overtakes_what_it_sent_before(
    tmp_path: Path, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idempotent producer's batches would be refused in another order."""
    monkeypatch.setattr(gathered, "JOINING_SIZE_MAX", 1000)
    size, acks, behind = {
        "alone": (50, 1, b"behind"),
        "large": (2000, 1, b""),
        "acks=0": (50, 0, b""),
        "other acks": (50, -1, b""),
    }[odd]
    world = World(tmp_path)
    world.together.is_open = True
    requests = [
        request(9, 0, bytes(batch(producer=(5, 0, 0)))),
        request(9, 1, bytes(batch(producer=(5, 0, 1), size=size)) + behind, acks=acks),
        request(9, 2, bytes(batch(producer=(5, 0, 2)))),
    ]
    replies = turn(world, requests)
    world.together.end()
    assert set(codes(9, read([reply for reply in replies if reply is not None]))) == {0}
    assert offsets(world.partition.log) == [0, 1, 2]


def test_a_slow_partition_holds_up_only_who_wrote_to_it(tmp_path: Path) -> None:
    world = World(tmp_path, isr=(1, 2))
    world.together.is_open = True
    slow = turn(world, [request(9, 1, bytes(batch()), acks=-1), to_more(2, 1, acks=-1)])
    quick = turn(world, [to_more(3, 1, acks=-1)])
    world.together.end()
    assert codes(9, read(quick)) == [0]
    assert not slow[0].done
    assert len(world.attempts) == 1
    world.partition.follower_fetched(2, 1)
    world.deferred.complete(world.attempts[0]({("events", 0)}))
    assert codes(9, read(slow)) == [0, 0]


def test_who_leads_no_more_by_the_end_of_the_round_appends_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.together.is_open = True
    replies = turn(world, [request(9, 1, bytes(batch()))])
    world.partition.follow(told(2, 5, (1, 2)))
    world.together.end()
    assert codes(9, read(replies)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert offsets(world.partition.log) == []


def test_who_is_gone_by_the_end_of_the_round_waits_for_nobody(tmp_path: Path) -> None:
    world = World(tmp_path, isr=(1, 2))
    world.together.is_open = True
    (gone,) = turn(world, [request(9, 1, bytes(batch()), acks=-1)])
    gone.cancel()
    world.together.end()
    assert offsets(world.partition.log) == [0]
    assert world.deferred.done


def test_what_fails_closes_all_that_it_leaves_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.together.is_open = True
    replies = [*turn(world, [to_more(1, 0)]), *turn(world, [to_more(2, 1)])]
    failure = MemoryError()

    def fail(*_: Any, **__: Any) -> Any:
        raise failure

    monkeypatch.setattr(append, "append_runs", fail)
    world.together.end()
    failures: list[BaseException] = []
    for reply in replies:
        reply.then(lambda parts: None, failures.append)
    assert failures == [failure, failure]


def test_who_was_refused_everything_waits_for_nobody(tmp_path: Path) -> None:
    world = World(tmp_path, isr=(1, 2))
    world.together.is_open = True
    turn(world, [request(9, 1, bytes(batch()), acks=-1)])
    refused = turn(world, [request(9, 2, rotten(), acks=-1)])
    world.together.end()
    assert codes(9, read(refused)) == [ErrorCode.CORRUPT_MESSAGE]
