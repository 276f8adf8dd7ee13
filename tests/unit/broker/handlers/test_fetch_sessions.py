"""Fetch sessions (KIP-227) without a broker: epochs, what is answered again, who has to go when slots are taken."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple

import pytest

from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.handlers import fetch_sessions
from headrace.broker.handlers.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.broker.handlers.fetch_sessions import EVICTION_MS, FetchSessions, Turn
from headrace.broker.log.results import LogSlice

CONSUMER, FOLLOWER = -1, 2
NONE, EPOCH_INVALID = ErrorCode.NONE, ErrorCode.INVALID_FETCH_SESSION_EPOCH


class Item(NamedTuple):
    partition_index: int
    error_code: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    records: LogSlice | None = None
    diverging_epoch: object | None = None


def topics_of(partitions: Iterable[int], offset: int = 0, name: str = "t") -> list[FetchTopic]:
    wanted = [FetchPartition(p, -1, offset, 1000) for p in partitions]
    return [FetchTopic(name, None, name.encode(), wanted)]


def request(
    session_id: int,
    epoch: int,
    topics: list[FetchTopic],
    forgotten: Iterable[int] = (),
    replica: int = CONSUMER,
) -> FetchRequest:
    forgotten_keys = tuple((b"t", p) for p in forgotten)
    return FetchRequest(replica, 0, 1, 1000, 0, session_id, epoch, topics, forgotten_keys)


def begin(sessions: FetchSessions, *args: Any, now_ms: int = 0, ids: bool = False, **more: Any) -> Turn:
    turn = sessions.begin(request(*args, **more), uses_topic_ids=ids, now_ms=now_ms)
    assert turn is not None
    return turn


def finish(turn: Turn, *items: Item, now_ms: int = 0) -> tuple[int, int, list[int]]:
    """(error, session id, partitions answered) when the broker finds `items`, one for each partition asked."""
    found = {item.partition_index: item for item in items}
    answer = [
        (topic, [found.get(p.partition_index, Item(p.partition_index)) for p in topic.partitions])
        for topic in turn.topics
    ]
    error, number, kept = turn.finish(answer, now_ms)
    return error, number, [item.partition_index for _, items in kept for item in items]


def new_session(
    sessions: FetchSessions, size: int = 3, *, now_ms: int = 0, replica: int = CONSUMER, ids: bool = False
) -> int:
    turn = begin(sessions, 0, 0, topics_of(range(size)), replica=replica, now_ms=now_ms, ids=ids)
    return finish(turn, now_ms=now_ms)[1]


def refusal(sessions: FetchSessions, session_id: int, epoch: int, *, ids: bool = False) -> int:
    with pytest.raises(KafkaError) as caught:
        sessions.begin(request(session_id, epoch, []), uses_topic_ids=ids, now_ms=0)
    return caught.value.code


@pytest.fixture
def sessions() -> FetchSessions:
    numbers = count(100)
    return FetchSessions(3, lambda: next(numbers))


def asked(turn: Turn) -> list[tuple[int, int]]:
    return [(p.partition_index, p.offset) for topic in turn.topics for p in topic.partitions]


def test_a_full_fetch_begins_a_session_and_answers_everything(sessions: FetchSessions) -> None:
    turn = begin(sessions, 0, 0, topics_of(range(3)))
    assert finish(turn) == (NONE, 100, [0, 1, 2])
    assert (len(sessions), sessions.partition_count) == (1, 3)


def test_an_incremental_fetch_reads_all_and_answers_what_changed(sessions: FetchSessions) -> None:
    number = new_session(sessions, 5)
    turn = begin(sessions, number, 1, [])
    assert asked(turn) == [(p, 0) for p in range(5)]
    changed = [
        Item(1, high_watermark=7),
        Item(2, log_start_offset=3),
        Item(3, error_code=6, high_watermark=-1, log_start_offset=-1),
        Item(4, records=LogSlice(None, 0, 10)),
    ]
    assert finish(turn, *changed) == (NONE, number, [1, 2, 3, 4])
    # The same once more is no news, but for the records; and the error's end is.
    again = [changed[0], changed[1], Item(3), changed[3]]
    assert finish(begin(sessions, number, 2, []), *again) == (NONE, number, [3, 4])
    assert finish(begin(sessions, number, 3, []), *again[:3]) == (NONE, number, [])


def test_a_request_changes_adds_and_forgets_partitions(sessions: FetchSessions) -> None:
    number = new_session(sessions, 2)
    turn = begin(sessions, number, 1, topics_of([1, 9], offset=50), forgotten=[0])
    assert asked(turn) == [(1, 50), (9, 50)]
    assert sessions.partition_count == 2
    # What is new is answered although it has nothing.
    assert finish(turn) == (NONE, number, [9])


def test_partitions_with_records_go_behind_those_without(sessions: FetchSessions) -> None:
    number = new_session(sessions)
    finish(begin(sessions, number, 1, []), Item(0, records=LogSlice(None, 0, 10)))
    assert [p for p, _ in asked(begin(sessions, number, 2, []))] == [1, 2, 0]


def test_epochs_count_up_and_anything_else_is_refused(sessions: FetchSessions) -> None:
    number = new_session(sessions)
    assert refusal(sessions, number, 2) == EPOCH_INVALID
    finish(begin(sessions, number, 1, []))
    assert refusal(sessions, number, 1) == EPOCH_INVALID
    finish(begin(sessions, number, 2, []))


def test_an_epoch_after_the_largest_is_one_again(sessions: FetchSessions) -> None:
    number = new_session(sessions)
    sessions._sessions[number].epoch = 2**31 - 1
    finish(begin(sessions, number, 2**31 - 1, []))
    finish(begin(sessions, number, 1, []))


def test_an_answer_that_another_request_overtook_is_refused(sessions: FetchSessions) -> None:
    number = new_session(sessions)
    parked = begin(sessions, number, 1, [])
    begin(sessions, number, 2, [])
    assert finish(parked) == (EPOCH_INVALID, number, [])


def test_unknown_sessions_and_mixed_ways_of_naming_topics_are_refused(sessions: FetchSessions) -> None:
    assert refusal(sessions, 5, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    by_name, by_id = new_session(sessions), new_session(sessions, ids=True)
    assert refusal(sessions, by_name, 1, ids=True) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert refusal(sessions, by_id, 1) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_or_final_fetch_closes_its_session(sessions: FetchSessions, epoch: int) -> None:
    number = new_session(sessions)
    turn = sessions.begin(request(number, epoch, topics_of([0])), uses_topic_ids=False, now_ms=0)
    assert (turn is None) == (epoch == -1)
    assert refusal(sessions, number, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partition_count == 0


def test_a_session_without_partitions_ends(sessions: FetchSessions) -> None:
    number = new_session(sessions, 2)
    wish = request(number, 1, [], forgotten=[0, 1])
    assert sessions.begin(wish, uses_topic_ids=False, now_ms=0) is None
    assert len(sessions) == sessions.partition_count == 0


def test_no_session_is_granted_while_all_slots_are_young(sessions: FetchSessions) -> None:
    assert all(new_session(sessions) for _ in range(3))
    assert new_session(sessions, 100) == 0
    assert len(sessions) == 3


def test_a_stale_session_gives_way(sessions: FetchSessions) -> None:
    first, second, third = (new_session(sessions) for _ in range(3))
    finish(begin(sessions, first, 1, [], now_ms=EVICTION_MS))
    assert new_session(sessions, 1, now_ms=EVICTION_MS + 1) != 0
    assert list(sessions._sessions)[:2] == [third, first]
    assert refusal(sessions, second, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_old_session_in_use_gives_way_to_a_larger_one_only(sessions: FetchSessions) -> None:
    numbers = [new_session(sessions, size) for size in (3, 2, 4)]
    for number in numbers:
        finish(begin(sessions, number, 1, [], now_ms=EVICTION_MS + 1))
    assert new_session(sessions, 1, now_ms=EVICTION_MS + 2) == 0
    assert new_session(sessions, 3, now_ms=EVICTION_MS + 2) != 0
    assert numbers[1] not in sessions._sessions


def test_a_follower_displaces_a_consumer_and_no_consumer_a_follower(sessions: FetchSessions) -> None:
    follower = new_session(sessions, 1, replica=FOLLOWER)
    new_session(sessions, 9)
    smallest = new_session(sessions, 8)
    assert new_session(sessions, 1, replica=FOLLOWER) != 0
    assert smallest not in sessions._sessions
    assert follower in sessions._sessions


def test_no_slots_no_sessions() -> None:
    assert new_session(FetchSessions(0)) == 0


def test_the_partitions_of_all_sessions_are_bounded(
    sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_COUNT_MAX", 5)
    number = new_session(sessions, 3)
    assert new_session(sessions, 3) == 0
    with pytest.raises(KafkaError) as caught:
        begin(sessions, number, 1, topics_of(range(3, 6)))
    assert caught.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == sessions.partition_count == 0
