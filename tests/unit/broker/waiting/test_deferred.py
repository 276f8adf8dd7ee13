"""A deferred value: given once, read once, cancelled or failed without surprises."""

from __future__ import annotations

from headrace.broker.waiting.deferred import Deferred


def test_the_reader_may_come_before_or_after_the_value() -> None:
    seen: list[int] = []
    early: Deferred[int] = Deferred()
    early.then(seen.append)
    early.complete(1)
    late: Deferred[int] = Deferred()
    late.complete(2)
    late.then(seen.append)
    assert seen == [1, 2]


def test_only_the_first_value_counts() -> None:
    seen: list[int] = []
    deferred: Deferred[int] = Deferred()
    deferred.then(seen.append)
    deferred.complete(1)
    deferred.complete(2)
    deferred.fail(RuntimeError())
    assert seen == [1]


def test_cancelling_tells_the_giver_and_hides_the_value() -> None:
    events: list[object] = []
    deferred: Deferred[int] = Deferred()
    deferred.on_cancel(lambda: events.append("cancelled"))
    deferred.then(events.append)
    deferred.cancel()
    deferred.complete(1)
    deferred.cancel()
    assert events == ["cancelled"]


def test_mapping_passes_values_failures_and_cancellation_through() -> None:
    seen: list[object] = []
    value: Deferred[int] = Deferred()
    value.map(lambda number: number * 2).then(seen.append)
    value.complete(21)
    failing: Deferred[int] = Deferred()
    failing.map(str).then(seen.append, lambda error: seen.append(str(error)))
    failing.fail(RuntimeError("why"))
    cancelled: Deferred[int] = Deferred()
    cancelled.on_cancel(lambda: seen.append("cancelled"))
    cancelled.map(str).cancel()
    assert seen == [42, "why", "cancelled"]


def test_a_mapping_that_raises_fails_the_mapped_value() -> None:
    seen: list[object] = []
    value: Deferred[int] = Deferred()
    value.map(lambda number: 1 // number).then(seen.append, lambda error: seen.append(type(error)))
    value.complete(0)
    assert seen == [ZeroDivisionError]


def test_following_passes_values_failures_and_cancellation_through() -> None:
    seen: list[object] = []
    first, second, third = (Deferred[int]() for _ in range(3))
    for leader in (first, second, third):
        follower: Deferred[int] = Deferred()
        follower.then(seen.append, seen.append)
        follower.follow(leader)
        if leader is third:
            follower.cancel()
    failure = RuntimeError()
    first.complete(1)
    second.fail(failure)
    assert seen == [1, failure]
    assert third.done, "nobody waits for it"


def test_who_is_gone_already_follows_nobody() -> None:
    gone, other = Deferred[int](), Deferred[int]()
    gone.cancel()
    gone.follow(other)
    assert other.done
