"""The timer queue against the plainest model of one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.coordinators.timers import TimerQueue

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 100)),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("pass"), st.just(0), st.integers(0, 20)),
    )
)


@given(STEPS)
def test_a_timer_comes_once_at_its_last_deadline_unless_it_was_cancelled(
    steps: list[tuple[str, int, int]],
) -> None:
    queue: TimerQueue[int, tuple[int, int]] = TimerQueue()
    model: dict[int, int] = {}
    now = 0
    for step, key, amount in steps:
        if step == "set":
            queue.set(key, now + amount, (key, now + amount))
            model[key] = now + amount
        elif step == "cancel":
            queue.cancel(key)
            model.pop(key, None)
        else:
            now += amount
            due = list(queue.due(now))
            assert sorted(due) == sorted((k, d) for k, d in model.items() if d <= now)
            assert [deadline for _, deadline in due] == sorted(deadline for _, deadline in due)
            model = {k: d for k, d in model.items() if d > now}
        assert len(queue) == len(model)
        if model:
            deadline = queue.next_deadline()
            assert deadline is not None
            assert deadline <= min(model.values())


def test_putting_timers_off_forever_does_not_grow_the_heap() -> None:
    queue: TimerQueue[int, str] = TimerQueue()
    for now in range(10_000):
        queue.set(now % 10, now + 1_000, "x")
        queue.cancel(now % 7)
        queue.set(now % 10, 20_000 - now, "x")
    assert len(queue._heap) < 200


def test_timers_of_one_owner_are_cancelled_together() -> None:
    queue: TimerQueue[tuple[int, str], str] = TimerQueue()
    queue.set((1, "a"), 5, "gone")
    queue.set((2, "a"), 5, "stays")
    queue.cancel_where(lambda key: key[0] == 1)
    assert list(queue.due(5)) == ["stays"]


def test_what_follows_from_one_timer_puts_off_or_cancels_those_that_are_due_with_it() -> None:
    queue: TimerQueue[str, str] = TimerQueue()
    for name in ("first", "put off", "cancelled", "last"):
        queue.set(name, 5, name)
    brought = []
    for name in queue.due(5):
        brought.append(name)
        queue.set("put off", 10, "put off")
        queue.cancel("cancelled")
    assert brought == ["first", "last"]
    assert list(queue.due(10)) == ["put off"]


def test_what_one_call_leaves_out_comes_with_the_next() -> None:
    queue: TimerQueue[int, int] = TimerQueue()
    for key in range(10):
        queue.set(key, 5, key)
    assert list(queue.due(5, 4)) == [0, 1, 2, 3]
    assert queue.next_deadline() == 5
    queue.cancel(5)
    assert list(queue.due(5, 4)) == [4, 6, 7, 8]
    assert list(queue.due(5, 4)) == [9]
    assert list(queue.due(5, 4)) == []
