"""Long answers are made in slices, have a bound, and are given up when their client is gone."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from calls import call_in

from headrace.broker.handlers import slices
from headrace.broker.handlers.replies import CloseConnectionError
from headrace.broker.handlers.slices import SLICE_COUNT, Listed, encoded_list
from headrace.broker.server.status.metrics import BrokerMetrics
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire import frames
from headrace.broker.wire.api.k42_delete_groups import API

Work = Coroutine[Any, Any, None]


class Later:
    """The tasks of a broker; each `turn` lets the first of them have the loop once."""

    def __init__(self) -> None:
        self.tasks: deque[tuple[Work, Deferred[None]]] = deque()

    def __call__(self, name: str, work: Work) -> Deferred[None]:
        deferred: Deferred[None] = Deferred()
        self.tasks.append((work, deferred))
        return deferred

    def turn(self) -> None:
        work, deferred = self.tasks[0]
        try:
            work.send(None)
        except StopIteration:
            self.tasks.popleft()
            deferred.complete(None)
        except Exception as error:
            self.tasks.popleft()
            deferred.fail(error)


@pytest.fixture
def broker() -> Any:
    return stand_in(Later())


def stand_in(later: Any) -> Any:
    """What a handler is given, with those tasks, and a clock that is later whenever it is read."""
    return SimpleNamespace(
        metrics=BrokerMetrics(),
        later=later,
        slicing=asyncio.Lock(),
        clock=SimpleNamespace(monotonic_ms=itertools.count().__next__),
    )


class Results:
    """Elements of a DeleteGroups answer; `made` says how many were asked for."""

    def __init__(self, count: int) -> None:
        self.count, self.made = count, 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in range(self.count):
            self.made += 1
            yield result(number)


def result(number: int) -> dict[str, Any]:
    return {"group_id": f"group-{number}", "error_code": 69}


def begin(broker: Any, results: Results, version: int) -> Any:
    return encoded_list(broker, API, call_in(version, 42, 7), Listed("results", iter(results)))


def whole(count: int, version: int) -> list[bytes]:
    message = {"results": [result(number) for number in range(count)]}
    return [
        frames.frame(
            frames.encode_response_header(42, version, 7),
            API.encode_response(version, message),
        )
    ]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("count", [0, 1, SLICE_COUNT])
def test_a_short_answer_is_there_at_once(broker: Any, count: int, version: int) -> None:
    assert begin(broker, Results(count), version) == whole(count, version)


def test_a_long_answer_that_takes_less_than_a_millisecond_is_there_at_once(broker: Any) -> None:
    broker.clock.monotonic_ms = lambda: 17
    assert begin(broker, Results(100 * SLICE_COUNT), 2) == whole(100 * SLICE_COUNT, 2)


@pytest.mark.parametrize("version", [1, 2])
def test_a_long_answer_lets_others_have_turns_and_is_the_same(broker: Any, version: int) -> None:
    results, later = Results(15 * SLICE_COUNT), broker.later
    told: list[Any] = []
    begin(broker, results, version).then(told.append)
    while later.tasks:
        before = results.made
        later.turn()
        assert results.made - before <= SLICE_COUNT
    assert told == [whole(15 * SLICE_COUNT, version)]


def test_nothing_more_is_made_for_a_client_that_is_gone(broker: Any) -> None:
    results, later = Results(100 * SLICE_COUNT), broker.later
    answer = begin(broker, results, 1)
    later.turn()
    answer.cancel()
    made = results.made
    later.turn()
    assert not later.tasks
    assert results.made == made < results.count


@pytest.mark.parametrize("count", [SLICE_COUNT, 100 * SLICE_COUNT])
def test_an_answer_that_grows_too_large_ends_the_connection(
    broker: Any, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "ANSWER_SIZE_MAX", 50)
    failures: list[BaseException] = []
    with pytest.raises(CloseConnectionError, match="ask for less at once"):
        begin(broker, Results(count), 1)
    monkeypatch.setattr(slices, "ANSWER_SIZE_MAX", 1000)
    results, later = Results(1000), broker.later
    begin(broker, results, 1).then(lambda _: None, failures.append)
    while later.tasks:
        later.turn()
    assert [type(failure) for failure in failures] == [CloseConnectionError]
    assert results.made < 100


def test_an_element_that_has_to_wait_keeps_its_place() -> None:
    async def ask() -> Any:
        tasks: list[asyncio.Task[None]] = []

        def later(name: str, work: Work) -> Deferred[None]:
            tasks.append(asyncio.get_running_loop().create_task(work))
            return Deferred()

        broker = stand_in(later)
        waiting: Deferred[dict[str, Any]] = Deferred()
        asked: list[dict[str, Any] | Deferred[dict[str, Any]]] = [result(0), waiting, result(2)]
        elements = iter(asked)
        told: list[Any] = []
        answer: Any = encoded_list(broker, API, call_in(1, 42, 7), Listed("results", elements))
        answer.then(told.append)
        await asyncio.sleep(0)
        assert not told
        waiting.complete(result(1))
        await asyncio.gather(*tasks)
        return told

    assert asyncio.run(ask()) == [whole(3, 1)]


def test_many_long_answers_take_turns() -> None:
    async def ask() -> list[int]:
        tasks: list[asyncio.Task[None]] = []

        def later(name: str, work: Work) -> Deferred[None]:
            tasks.append(asyncio.get_running_loop().create_task(work))
            return Deferred()

        broker = stand_in(later)
        all_results = [Results(20 * SLICE_COUNT) for _ in range(50)]
        for results in all_results:
            begin(broker, results, 1)
        made_in_a_turn: list[int] = []
        while not all(task.done() for task in tasks):
            before = sum(results.made for results in all_results)
            await asyncio.sleep(0)
            made_in_a_turn.append(sum(results.made for results in all_results) - before)
        return made_in_a_turn

    assert max(asyncio.run(ask())) <= 2 * SLICE_COUNT
