"""When a process that works in rounds is ready, and what it says when it is not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.load.rounds import STALE_S_MAX, Rounds


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rounds(clock: Clock) -> Rounds:
    return Rounds("headrace_test", 1.0, clock)


def ready(rounds: Rounds) -> tuple[int, Any]:
    status, _, body = asyncio.run(rounds.ready())
    return status, json.loads(body)


def figure(rounds: Rounds, name: str) -> float | None:
    found = {sample.name: sample.value for family in rounds.collect() for sample in family.samples}
    return found.get(f"headrace_test_{name}")


def test_nobody_is_ready_before_a_round(rounds: Rounds) -> None:
    status, told = ready(rounds)
    assert (status, told["ready"], told["reason"]) == (503, False, "its first round has not ended")
    assert figure(rounds, "ready") == 0
    assert figure(rounds, "seconds_since_last_round") is None


def test_a_round_makes_ready_until_none_follows_for_too_long(rounds: Rounds, clock: Clock) -> None:
    rounds.ended(0.5)
    assert ready(rounds) == (200, {"ready": True, "rounds": 1, "failed_rounds": 0})
    clock.now += STALE_S_MAX
    assert ready(rounds)[0] == 200
    assert figure(rounds, "seconds_since_last_round") == STALE_S_MAX
    clock.now += 1
    assert ready(rounds)[0] == 503


def test_a_failed_round_says_why_and_is_forgiven_for_a_while(rounds: Rounds, clock: Clock) -> None:
    rounds.failed("nobody answers")
    assert ready(rounds)[1]["reason"] == "nobody answers"
    rounds.ended(0.5)
    assert "reason" not in ready(rounds)[1]
    rounds.failed("nobody answers")
    assert ready(rounds) == (
        200,
        {"ready": True, "rounds": 1, "failed_rounds": 2, "reason": "nobody answers"},
    )
    clock.now += STALE_S_MAX + 1
    assert ready(rounds)[0] == 503
    assert (figure(rounds, "rounds_total"), figure(rounds, "failed_rounds_total")) == (1, 2)


def test_a_round_that_had_nothing_to_work_on_makes_nobody_ready(rounds: Rounds) -> None:
    rounds.ended(0.5, "the cluster has no topic pageviews")
    assert ready(rounds)[0] == 503
    assert ready(rounds)[1]["reason"] == "the cluster has no topic pageviews"


def test_a_long_round_is_ready_while_it_goes_on(rounds: Rounds, clock: Clock) -> None:
    rounds.went_on()
    assert ready(rounds)[0] == 200
    clock.now += STALE_S_MAX + 1
    assert ready(rounds)[0] == 503


def test_rounds_that_fail_for_long_are_told_of_once_a_minute_and_when_they_end_again(
    rounds: Rounds, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "headrace")
    for second in range(240):
        clock.now = second
        if second <= 120:
            rounds.failed("nobody answers", "nor there")
        else:
            rounds.ended(0.1)
    told = [record.getMessage().split(" failed=")[0] for record in caplog.records]
    assert told == ["round incomplete"] * 6 + ["rounds end again"]
