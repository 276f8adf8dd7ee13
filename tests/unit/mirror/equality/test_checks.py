"""Whose turn it is to be compared, and how fast."""

from __future__ import annotations

from headrace.mirror.equality.checks import (
    BY_WHAT_IS_COPIED,
    BYTES_PER_SECOND_MIN,
    PASS_MS_MIN,
    STEP_BYTES,
    CheckPlan,
)

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def compared(plan: CheckPlan, partitions: set[tuple[str, int]], now_ms: int) -> list[tuple[str, int]]:
    """Those that have their turns until nothing is due."""
    found = []
    while (partition := plan.next(partitions, now_ms)) is not None:
        plan.verified[partition] = 9
        plan.ended(partition, is_compared=True)
        found.append(partition)
    return found


def test_a_pass_is_one_turn_of_each_and_the_next_begins_no_sooner_than_it_may() -> None:
    plan = CheckPlan(1000)
    assert plan.next(set(), 5) is None
    assert compared(plan, {B, A, C}, 1000) == [A, B, C]
    assert (plan.completed_ms, plan.left_out_count) == (1000, 0)
    assert compared(plan, {A, B, C}, 1000 + PASS_MS_MIN - 1) == []
    assert compared(plan, {A, B, C}, 1000 + PASS_MS_MIN) == [A, B, C]
    assert plan.completed_ms == 1000 + PASS_MS_MIN


def test_what_was_never_compared_here_has_its_turn_at_once() -> None:
    plan = CheckPlan(1000)
    assert compared(plan, {A}, 0) == [A]
    assert compared(plan, {A, B}, 10) == [B]
    plan.forget(A)
    plan.ended(B, is_compared=True)
    assert compared(plan, {A, B}, 20) == [A]


def test_what_cannot_be_compared_is_counted_and_what_goes_away_ends_no_pass() -> None:
    plan = CheckPlan(1000)
    assert plan.next({A, B}, 0) == A
    plan.ended(A, is_compared=False)
    assert plan.next({A, B}, 1) == B
    plan.ended(B, is_compared=True)
    assert plan.next({A, B}, 2) is None
    assert (plan.completed_ms, plan.left_out_count) == (2, 1)
    other = CheckPlan(1000)
    assert other.next({A}, 0) == A
    assert other.next(set(), 1) is None
    assert other.completed_ms is None


def test_a_step_lasts_as_long_as_the_rate_asks_for() -> None:
    slow, fast = CheckPlan(1000), CheckPlan(10 * STEP_BYTES)
    assert (slow.size, fast.size) == (4000, STEP_BYTES)
    assert [slow.pause_seconds(size) for size in (0, 4000, 5000)] == [4.0, 4.0, 5.0]
    assert fast.pause_seconds(0) == 0.1


def test_a_rate_that_is_not_set_is_a_share_of_what_is_copied() -> None:
    plan, fixed = CheckPlan(BY_WHAT_IS_COPIED), CheckPlan(1000)
    rates = []
    for bytes_copied, now_ms in (
        (0, 0),
        (80_000_000, 4_000),
        (80_000_000, 8_000),
        (5, 9_000),
        (500_000_005, 9_000),
    ):
        plan.follow(bytes_copied, now_ms)
        fixed.follow(bytes_copied, now_ms)
        rates.append(plan.bytes_per_second)
    assert rates == [BYTES_PER_SECOND_MIN, 200_000, *[BYTES_PER_SECOND_MIN] * 3]
    assert fixed.bytes_per_second == 1000
    plan.follow(900_000_005, 10_000)
    assert (plan.bytes_per_second, plan.size) == (4_000_000, STEP_BYTES)
