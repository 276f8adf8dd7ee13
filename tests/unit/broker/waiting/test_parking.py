"""Parked requests: woken by their own partitions only, answered in time, forgotten without a trace."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from headrace.broker.waiting.parking import Waiting


class Timer:
    def __init__(self, when: float, callback: Callable[[], Any]) -> None:
        self.when, self.callback, self.is_cancelled = when, callback, False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualLoop:
    """A loop whose turns and time are the test's."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[Callable[[], Any]] = []
        self.timers: list[Timer] = []

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self.soon.append(lambda: callback(*args))

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Timer:
        timer = Timer(self.now + delay, lambda: callback(*args))
        self.timers.append(timer)
        return timer

    def turn(self) -> None:
        due, self.soon = self.soon, []
        for callback in due:
            callback()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in [t for t in self.timers if t.when <= self.now]:
            self.timers.remove(timer)
            if not timer.is_cancelled:
                timer.callback()


class Fetch:
    """A request that has what it wants once `available` reaches `wanted`."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.available, self.attempts = wanted, 0, 0
        self.moved: list[set[tuple[str, int]]] = []

    def attempt(self, moved: Collection[tuple[str, int]] | None) -> str | None:
        self.attempts += 1
        self.moved.append(set(moved or ()))
        if self.available >= self.wanted or moved is None:
            return f"{self.available} bytes"
        return None


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def waiting(loop: ManualLoop) -> Waiting:
    return Waiting(loop, parked_max=3, kept_max=4)


def park(
    waiting: Waiting, fetch: Fetch, *keys: tuple[str, int], timeout_ms: int = 1000, for_end: bool = False
) -> list[str]:
    answers: list[str] = []
    waiting.park(keys or (("t", 0),), timeout_ms, fetch.attempt, for_end=for_end).then(answers.append)
    return answers


def test_many_appends_of_a_turn_cost_one_attempt(loop: ManualLoop, waiting: Waiting) -> None:
    fetch = Fetch(wanted=1)
    answers = park(waiting, fetch)
    for _ in range(5):
        fetch.available += 10
        waiting.wake("t", 0)
    assert answers == []
    loop.turn()
    assert answers == ["50 bytes"]
    assert fetch.attempts == 1


def test_many_appends_that_are_not_enough_cost_one_attempt_too(loop: ManualLoop, waiting: Waiting) -> None:
    fetch = Fetch(wanted=100)
    park(waiting, fetch, ("t", 0), ("t", 1))
    for _ in range(5):
        waiting.wake("t", 0)
        waiting.wake("t", 1)
    loop.turn()
    assert fetch.attempts == 1
    waiting.wake("t", 1)
    loop.turn()
    assert fetch.attempts == 2


def test_an_attempt_is_told_what_moved_since_the_last_one(loop: ManualLoop, waiting: Waiting) -> None:
    fetch = Fetch(wanted=100)
    park(waiting, fetch, ("t", 0), ("t", 1), ("t", 2))
    waiting.wake("t", 0)
    waiting.wake("t", 2)
    waiting.wake("t", 0)
    loop.turn()
    waiting.wake("t", 1)
    loop.turn()
    assert fetch.moved == [{("t", 0), ("t", 2)}, {("t", 1)}]


def test_only_its_own_partitions_wake_a_request(loop: ManualLoop, waiting: Waiting) -> None:
    fetch = Fetch(wanted=1)
    park(waiting, fetch, ("t", 0), ("t", 1))
    waiting.wake("t", 2)
    waiting.wake("u", 0)
    loop.turn()
    assert fetch.attempts == 0
    waiting.wake("t", 1)
    loop.turn()
    assert fetch.attempts == 1


def test_followers_wait_for_the_end_and_all_others_for_what_is_committed(
    loop: ManualLoop, waiting: Waiting
) -> None:
    follower, consumer = Fetch(wanted=100), Fetch(wanted=100)
    park(waiting, follower, for_end=True)
    park(waiting, consumer)
    waiting.wake_end("t", 0)
    loop.turn()
    assert (follower.attempts, consumer.attempts) == (1, 0)
    waiting.wake("t", 0)
    loop.turn()
    assert (follower.attempts, consumer.attempts) == (1, 1)
    waiting.wake_both("t", 0)
    loop.turn()
    assert (follower.attempts, consumer.attempts) == (2, 2)


def test_too_little_data_goes_on_waiting_until_the_time_is_over(loop: ManualLoop, waiting: Waiting) -> None:
    fetch = Fetch(wanted=100)
    answers = park(waiting, fetch, timeout_ms=500)
    fetch.available = 10
    waiting.wake("t", 0)
    loop.turn()
    loop.advance(0.4)
    assert answers == []
    loop.advance(0.1)
    assert answers == ["10 bytes"]
    assert waiting.parked_count == 0


def test_a_partition_that_is_named_twice_is_waited_for_once(loop: ManualLoop, waiting: Waiting) -> None:
    fetch = Fetch(wanted=1)
    answers = park(waiting, fetch, ("t", 0), ("t", 0))
    other = Fetch(wanted=1)
    others = park(waiting, other)
    fetch.available = other.available = 1
    waiting.wake("t", 0)
    loop.turn()
    assert answers == others == ["1 bytes"]
    assert waiting.parked_count == 0


def test_a_finished_request_leaves_no_timer_and_no_index(loop: ManualLoop, waiting: Waiting) -> None:
    fetch = Fetch(wanted=1)
    park(waiting, fetch, ("t", 0), ("u", 7))
    fetch.available = 1
    waiting.wake("u", 7)
    loop.turn()
    assert all(timer.is_cancelled for timer in loop.timers)
    waiting.wake("t", 0)
    waiting.wake("u", 7)
    assert loop.soon == []
    assert waiting.parked_count == 0


def test_a_cancelled_request_is_not_attempted_again(loop: ManualLoop, waiting: Waiting) -> None:
    fetch = Fetch(wanted=1)
    deferred = waiting.park([("t", 0)], 1000, fetch.attempt)
    deferred.then(lambda _: pytest.fail("its reader is gone"))
    waiting.wake("t", 0)
    deferred.cancel()
    loop.turn()
    loop.advance(10)
    assert fetch.attempts == 0
    assert waiting.parked_count == 0


def test_above_the_bound_a_request_is_answered_at_once(waiting: Waiting) -> None:
    for _ in range(3):
        assert park(waiting, Fetch(wanted=1)) == []
    assert park(waiting, Fetch(wanted=1)) == ["0 bytes"]
    assert waiting.parked_count == 3


def test_no_time_to_wait_means_an_answer_now(waiting: Waiting) -> None:
    assert park(waiting, Fetch(wanted=1), timeout_ms=0) == ["0 bytes"]


def test_release_answers_everyone_once(waiting: Waiting) -> None:
    answers = [
        park(waiting, Fetch(wanted=1), ("t", 0), ("t", 1), for_end=for_end)
        for for_end in (False, True, False)
    ]
    waiting.release()
    assert answers == [["0 bytes"]] * 3
    assert waiting.parked_count == 0


def test_a_failing_attempt_fails_its_own_request_only(loop: ManualLoop, waiting: Waiting) -> None:
    errors: list[BaseException] = []

    def attempt(moved: Collection[tuple[str, int]] | None) -> str | None:
        raise RuntimeError("no")

    waiting.park([("t", 0)], 1000, attempt).then(lambda _: None, errors.append)
    other = Fetch(wanted=0)
    answers = park(waiting, other)
    waiting.wake("t", 0)
    loop.turn()
    assert [str(error) for error in errors] == ["no"]
    assert answers == ["0 bytes"]


def test_a_kept_watch_serves_one_request_after_the_other(loop: ManualLoop, waiting: Waiting) -> None:
    watch = waiting.keep([("t", 0), ("t", 1)])
    assert watch is not None
    answers: list[str] = []
    for partition in range(2):
        fetch = Fetch(wanted=1)
        waiting.park(watch, 1000, fetch.attempt).then(answers.append)
        fetch.available = partition + 1
        waiting.wake("t", partition)
        loop.turn()
        assert fetch.moved == [{("t", partition)}]
    assert answers == ["1 bytes", "2 bytes"]
    assert all(timer.is_cancelled for timer in loop.timers)
    waiting.wake("t", 0)
    assert loop.soon == []
    waiting.forget(watch)
    assert waiting.kept_count == 0


def test_an_answer_at_the_time_out_leaves_nothing_to_the_next_request(
    loop: ManualLoop, waiting: Waiting
) -> None:
    watch = waiting.keep([("t", 0)])
    assert watch is not None
    answers: list[str] = []
    waiting.park(watch, 500, Fetch(wanted=1).attempt).then(answers.append)
    loop.advance(0.5)
    assert answers == ["0 bytes"]
    again = Fetch(wanted=1)
    waiting.park(watch, 500, again.attempt).then(answers.append)
    loop.advance(0.4)
    assert (answers, again.attempts) == (["0 bytes"], 0)
    loop.advance(0.1)
    assert answers == ["0 bytes", "0 bytes"]


def test_a_watch_goes_on_when_its_client_cancels(loop: ManualLoop, waiting: Waiting) -> None:
    watch = waiting.keep([("t", 0)])
    assert watch is not None
    waiting.park(watch, 1000, Fetch(wanted=1).attempt).cancel()
    assert waiting.parked_count == 0
    fetch = Fetch(wanted=0)
    answers: list[str] = []
    waiting.park(watch, 1000, fetch.attempt).then(answers.append)
    waiting.wake("t", 0)
    loop.turn()
    assert answers == ["0 bytes"]


def test_a_watch_that_is_kept_notes_what_moves_between_its_requests(
    loop: ManualLoop, waiting: Waiting
) -> None:
    watch = waiting.keep([("t", 0), ("t", 1)])
    assert watch is not None
    waiting.wake("t", 1)
    assert (watch.take_moved(), watch.take_moved(), loop.soon) == ({("t", 1)}, set(), [])


def test_a_followers_watch_notes_what_is_committed_and_waits_on(loop: ManualLoop, waiting: Waiting) -> None:
    watch = waiting.keep([("t", 0), ("t", 1)], for_end=True)
    assert watch is not None
    fetch = Fetch(wanted=1)
    waiting.park(watch, 1000, fetch.attempt).then(lambda _: None)
    waiting.wake("t", 1)
    loop.turn()
    assert fetch.attempts == 0
    waiting.wake_end("t", 0)
    loop.turn()
    assert fetch.moved == [{("t", 0), ("t", 1)}]


def test_a_watch_takes_up_partitions_and_drops_them(loop: ManualLoop, waiting: Waiting) -> None:
    watch = waiting.keep([("t", 0)])
    assert watch is not None
    assert waiting.extend(watch, [("t", 0), ("t", 1)])
    assert not waiting.extend(watch, [("t", number) for number in range(9)])
    waiting.drop(watch, ("t", 0))
    for number in range(3):
        waiting.wake("t", number)
    assert (watch.take_moved(), waiting.kept_count) == ({("t", 1)}, 1)
    waiting.forget(watch)
    assert waiting.kept_count == 0


def test_who_is_parked_with_a_watch_that_is_forgotten_is_answered(waiting: Waiting) -> None:
    watch = waiting.keep([("t", 0)])
    assert watch is not None
    answers: list[str] = []
    waiting.park(watch, 1000, Fetch(wanted=1).attempt).then(answers.append)
    waiting.forget(watch)
    assert (answers, waiting.parked_count, waiting.kept_count) == (["0 bytes"], 0, 0)


def test_only_so_many_partitions_are_kept(waiting: Waiting) -> None:
    first = waiting.keep([("t", 0), ("t", 1), ("t", 1)])
    assert first is not None
    assert waiting.keep([("t", 0), ("t", 1), ("t", 2)]) is None
    assert waiting.kept_count == 2
    waiting.forget(first)
    assert waiting.keep([("t", 0), ("t", 1), ("t", 2)], for_end=True) is not None


def test_a_wake_of_a_request_that_was_answered_meanwhile_is_none_of_the_next_one(
    loop: ManualLoop, waiting: Waiting
) -> None:
    watch = waiting.keep([("t", 0)])
    assert watch is not None
    waiting.park(watch, 500, Fetch(wanted=1).attempt).then(lambda _: None)
    waiting.wake("t", 0)
    loop.advance(0.5)
    again = Fetch(wanted=1)
    waiting.park(watch, 500, again.attempt).then(lambda _: None)
    loop.turn()
    assert again.attempts == 0
    waiting.wake("t", 0)
    loop.turn()
    assert again.attempts == 1
