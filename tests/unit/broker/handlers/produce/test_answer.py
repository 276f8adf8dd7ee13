"""Answers written by hand: byte for byte those of the codec."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.handlers.call import Call, Client
from headrace.broker.handlers.produce import answer
from headrace.broker.handlers.produce.outcome import Outcome
from headrace.broker.handlers.produce.read import Head
from headrace.broker.log.results import AppendResult
from headrace.broker.wire.frames import RequestHeader

BROKER: Any = SimpleNamespace()
offsets = st.integers(-1, (1 << 63) - 1)
results = st.builds(AppendResult, offsets, offsets, offsets, offsets, st.just(1))
versions = st.integers(answer.BY_HAND_VERSION, 11)
names = st.text(max_size=300)
outcomes = st.builds(
    Outcome,
    st.sampled_from(("a", "b")) | names,
    st.integers(0, 99_999),
    st.none(),
    results,
    st.none(),
    st.just(-1),
)


def encoded(version: int, correlation_id: int, items: list[Outcome]) -> bytes:
    call = Call(RequestHeader(0, version, correlation_id, None, 0), Client("here", "INSIDE"), 0.0)
    return answer._encoded(BROKER, call, items)


@given(versions, st.integers(0, (1 << 31) - 1), st.lists(outcomes, max_size=200))
def test_an_answer_about_many_items(version: int, correlation_id: int, items: list[Outcome]) -> None:
    call = Call(RequestHeader(0, version, correlation_id, None, 0), Client("here", "INSIDE"), 0.0)
    assert answer.of_items(BROKER, call, items) == encoded(version, correlation_id, items)


@given(versions, names, st.integers(0, 99_999), st.lists(results, min_size=1, max_size=3))
def test_answers_about_one_item(version: int, topic: str, index: int, several: list[AppendResult]) -> None:
    head = Head(version, 1, 100, topic, index)
    for number, result in enumerate(several):
        expected = encoded(version, number, [Outcome(topic, index, None, result)])
        assert answer.of_single(head, number, result) == expected
