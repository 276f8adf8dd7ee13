"""Fetch sessions (KIP-227) without a broker: epochs, what is answered again, who has to go when slots are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.handlers import fetch_sessions
from headrace.broker.handlers.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.broker.handlers.fetch_sessions import EVICTION_MS, FetchSessions, Turn
from headrace.broker.log.results import LogSlice
from headrace.broker.waiting.parking import Waiting

CONSUMER, FOLLOWER = -1, 2
NONE, EPOCH_INVALID = ErrorCode.NONE, ErrorCode.INVALID_FETCH_SESSION_EPOCH


class Item(NamedTuple):
    partition_index: int
    error_code: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    records: LogSlice | None = None
    diverging_epoch: object | None = None
    preferred_read_replica: int = -1

    @property
    def encoded(self) -> bytes | None:
        is_nothing = self.records is None and not self.error_code and self.diverging_epoch is None
        return b"nothing" if is_nothing else None


class Loop:
    """Timers never ring, and what is woken is attempted when the test says so."""

    def __init__(self) -> None:
        self.soon: list[Callable[..., Any]] = []

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self.soon.append(lambda: callback(*args))

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Any:
        return SimpleNamespace(cancel=lambda: None)


NAMES = {UUID(int=7): "t"}


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
    turn = sessions.begin(request(*args, **more), NAMES.get, uses_topic_ids=ids, now_ms=now_ms)
    assert turn is not None
    return turn


def finish(turn: Turn, *items: Item, now_ms: int = 0) -> tuple[int, int, list[int]]:
    """(error, session id, partitions answered) when the broker finds `items`, one for each partition asked."""
    found = {item.partition_index: item for item in items}
    answer = [
        (place.topic, [found.get(place.wanted.partition_index, Item(place.wanted.partition_index))])
        for place in turn.places
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
        sessions.begin(request(session_id, epoch, []), NAMES.get, uses_topic_ids=ids, now_ms=0)
    return caught.value.code


@pytest.fixture
def waiting() -> Waiting:
    return Waiting(Loop())


@pytest.fixture
def sessions(waiting: Waiting) -> FetchSessions:
    numbers = count(100)
    return FetchSessions(3, waiting, lambda: next(numbers))


def asked(turn: Turn) -> list[tuple[int, int]]:
    return [(place.wanted.partition_index, place.wanted.offset) for place in turn.places]


def move(waiting: Waiting, *partitions: int) -> None:
    for partition in partitions:
        waiting.wake("t", partition)


def test_a_full_fetch_begins_a_session_and_answers_everything(sessions: FetchSessions) -> None:
    turn = begin(sessions, 0, 0, topics_of(range(3)))
    assert finish(turn) == (NONE, 100, [0, 1, 2])
    assert (len(sessions), sessions.partition_count) == (1, 3)


def test_an_incremental_fetch_reads_what_moved_and_answers_what_changed(
    sessions: FetchSessions, waiting: Waiting
) -> None:
    number = new_session(sessions, 6)
    assert asked(begin(sessions, number, 1, [])) == []
    move(waiting, 4, 1, 2, 3, 0)
    turn = begin(sessions, number, 2, [])
    assert asked(turn) == [(p, 0) for p in range(5)]
    changed = [
        Item(1, high_watermark=7),
        Item(2, log_start_offset=3),
        Item(3, error_code=6, high_watermark=-1, log_start_offset=-1),
        Item(4, records=LogSlice(None, 0, 10)),
    ]
    assert finish(turn, *changed) == (NONE, number, [1, 2, 3, 4])
    # Records that were not taken are given again, and an error is looked at until it is over; that is news.
    turn = begin(sessions, number, 3, [])
    assert asked(turn) == [(3, 0), (4, 0)]
    assert finish(turn, Item(3), changed[3]) == (NONE, number, [3, 4])
    # The same once more is no news, but for the records.
    move(waiting, 1)
    assert finish(begin(sessions, number, 4, []), changed[0], changed[3]) == (NONE, number, [4])
    assert finish(begin(sessions, number, 5, [])) == (NONE, number, [])
    assert asked(begin(sessions, number, 6, [])) == []


def test_what_moves_while_a_request_waits_is_read_by_that_request(
    sessions: FetchSessions, waiting: Waiting
) -> None:
    number = new_session(sessions)
    turn = begin(sessions, number, 1, [])
    turn.moved({("t", 2), ("u", 2)})
    assert asked(turn) == [(2, 0)]
    # At the time-out, also what was noted and woke nobody.
    move(waiting, 1)
    turn.moved(None)
    assert asked(turn) == [(1, 0), (2, 0)]
    assert turn.partition_count == 3


def test_a_replica_to_read_from_is_told_each_time(sessions: FetchSessions) -> None:
    number = new_session(sessions)
    rather = Item(1, preferred_read_replica=4)._replace(records=LogSlice(None, 0, 0))
    assert finish(begin(sessions, number, 1, topics_of([1])), rather) == (NONE, number, [1])
    assert finish(begin(sessions, number, 2, []), rather) == (NONE, number, [1])


def test_a_follower_that_is_not_in_sync_is_looked_at_with_each_request(sessions: FetchSessions) -> None:
    number = new_session(sessions, replica=FOLLOWER)
    turn = begin(sessions, number, 1, topics_of([1]), replica=FOLLOWER)
    turn.places[0].lags = True
    assert finish(turn) == (NONE, number, [])
    turn = begin(sessions, number, 2, [], replica=FOLLOWER)
    assert asked(turn) == [(1, 0)]
    turn.places[0].lags = False
    finish(turn)
    assert asked(begin(sessions, number, 3, [], replica=FOLLOWER)) == []


def test_what_is_committed_is_told_to_a_follower_with_its_next_answer(
    sessions: FetchSessions, waiting: Waiting
) -> None:
    number = new_session(sessions, replica=FOLLOWER)
    turn = begin(sessions, number, 1, [], replica=FOLLOWER)
    told: list[Any] = []
    waiting.park(turn.watched, 500, told.append, for_end=True)
    move(waiting, 1)
    assert waiting._scheduler.soon == []  # type: ignore[attr-defined]
    waiting.release()
    turn.moved(None)
    assert finish(turn, Item(1, high_watermark=9)) == (NONE, number, [1])


def test_a_topic_that_is_made_anew_is_watched_by_its_name(
    sessions: FetchSessions, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wanted(number: int) -> list[FetchTopic]:
        key = UUID(int=number)
        return [FetchTopic(None, key, key.bytes, [FetchPartition(0, -1, 0, 1000)])]

    unknown = Item(0, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    turn = begin(sessions, 0, 0, wanted(7) + wanted(8), ids=True)
    _, number, _ = turn.finish([(wanted(7)[0], [Item(0)]), (wanted(8)[0], [unknown])], 0)
    # Somebody tells of topic 8, whose name was 7's.
    monkeypatch.setitem(NAMES, UUID(int=8), "t")
    turn = begin(sessions, number, 1, [], ids=True)
    assert [place.topic.topic_id for place in turn.places] == [UUID(int=7), UUID(int=8)]
    turn.finish([(wanted(7)[0], [unknown]), (wanted(8)[0], [Item(0)])], 0)
    move(waiting, 0)
    turn = begin(sessions, number, 2, [], ids=True)
    assert [place.topic.topic_id for place in turn.places] == [UUID(int=7), UUID(int=8)]
    assert waiting.kept_count == 1


def test_a_request_changes_adds_and_forgets_partitions(sessions: FetchSessions, waiting: Waiting) -> None:
    number = new_session(sessions, 2)
    turn = begin(sessions, number, 1, topics_of([1, 9], offset=50), forgotten=[0])
    assert asked(turn) == [(1, 50), (9, 50)]
    assert sessions.partition_count == 2
    # What is new is answered although it has nothing.
    assert finish(turn) == (NONE, number, [9])
    assert waiting.kept_count == 2


def test_partitions_with_records_go_behind_those_without(sessions: FetchSessions, waiting: Waiting) -> None:
    number = new_session(sessions)
    move(waiting, 0)
    finish(begin(sessions, number, 1, []), Item(0, records=LogSlice(None, 0, 10)))
    move(waiting, 1, 2)
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


def test_an_answer_that_another_request_overtook_is_refused_at_once(
    sessions: FetchSessions, waiting: Waiting
) -> None:
    number = new_session(sessions)
    parked = begin(sessions, number, 1, [])
    answers: list[Any] = []

    def attempt(moved: Any) -> Any:
        parked.moved(moved)
        return finish(parked)

    waiting.park(parked.watched, 500, attempt).then(answers.append)
    move(waiting, 1)
    second = begin(sessions, number, 2, [])
    assert answers == [(EPOCH_INVALID, number, [])]
    assert asked(second) == [(1, 0)]
    waiting.park(second.watched, 500, lambda _: None)


def test_unknown_sessions_and_mixed_ways_of_naming_topics_are_refused(sessions: FetchSessions) -> None:
    assert refusal(sessions, 5, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    by_name, by_id = new_session(sessions), new_session(sessions, ids=True)
    assert refusal(sessions, by_name, 1, ids=True) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert refusal(sessions, by_id, 1) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_or_final_fetch_closes_its_session(
    sessions: FetchSessions, waiting: Waiting, epoch: int
) -> None:
    number = new_session(sessions)
    turn = sessions.begin(request(number, epoch, topics_of([0])), NAMES.get, uses_topic_ids=False, now_ms=0)
    assert (turn is None) == (epoch == -1)
    assert refusal(sessions, number, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partition_count == waiting.kept_count == 0


def test_a_session_without_partitions_ends(sessions: FetchSessions) -> None:
    number = new_session(sessions, 2)
    wish = request(number, 1, [], forgotten=[0, 1])
    assert sessions.begin(wish, NAMES.get, uses_topic_ids=False, now_ms=0) is None
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
    waiting = Waiting(Loop())
    assert new_session(FetchSessions(0, waiting)) == waiting.kept_count == 0


def test_no_room_to_watch_it_no_session() -> None:
    sessions = FetchSessions(2, Waiting(Loop(), kept_max=4))
    number = new_session(sessions, 3)
    assert (number != 0, new_session(sessions, 2)) == (True, 0)
    with pytest.raises(KafkaError) as caught:
        begin(sessions, number, 1, topics_of(range(3, 6)))
    assert (caught.value.code, len(sessions)) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


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
