"""A report of some topics or producers: its verdict is theirs."""

from __future__ import annotations

import pytest
from audit_pipeline import Pipeline

from headrace.audit.commands.choice import Choice, chosen
from headrace.audit.judging.book import Book
from headrace.audit.judging.settling import SETTLED_AFTER_MS, STEP_MS, settle


@pytest.fixture
def pipeline() -> Pipeline:
    """Producer p loses an event of orders, q doubles one of views, and r is fine."""
    found = Pipeline()
    for producer, topic in (("p", "orders"), ("q", "views"), ("r", "views")):
        found.open(producer, topic)
        found.send(producer, topic)
    found.send("p", "orders", tiers=("live",))
    found.arrive("q", 0, "views", time_ms=found.now_ms)
    for producer, topic in (("p", "orders"), ("q", "views"), ("r", "views")):
        found.close(producer, topic)
    return found


@pytest.mark.parametrize(
    ("topics", "producers", "verdict", "kinds"),
    [
        ((), (), "loss", ["loss", "duplicate"]),
        (("orders",), (), "loss", ["loss"]),
        (("dc-east.views",), (), "duplicates", ["duplicate"]),
        ((), ("q",), "duplicates", ["duplicate"]),
        ((), ("r",), "complete", []),
        (("orders",), ("q",), "complete", []),
        ((), ("web-1",), "loss", ["loss", "duplicate"]),
        ((), ("shop",), "loss", ["loss", "duplicate"]),
    ],
)
def test_the_verdict_is_that_of_the_chosen(
    pipeline: Pipeline, topics: tuple[str, ...], producers: tuple[str, ...], verdict: str, kinds: list[str]
) -> None:
    found = chosen(pipeline.outcome(), Choice(topics, producers), pipeline.ledger.producers)
    assert (found.verdict, [item.kind for item in found.findings]) == (verdict, kinds)
    wanted = {name.removeprefix("dc-east.") for name in topics} or {"orders", "views"}
    assert {topic for _, topic in found.topics} == {topic for _, topic, _ in found.hops} == wanted


def test_a_topic_that_nobody_counts_and_what_has_no_producer_stay(pipeline: Pipeline) -> None:
    pipeline.ledger.problem("something is unreadable")
    found = chosen(pipeline.outcome(), Choice((), ("r",)), pipeline.ledger.producers)
    assert (found.verdict, [item.reason for item in found.incomplete]) == (
        "incomplete",
        ["something is unreadable"],
    )


def test_names_that_nothing_goes_by_are_told(pipeline: Pipeline) -> None:
    choice = Choice(("orders", "order"), ("q", "web-2"))
    assert choice.unknown(pipeline.outcome(), pipeline.ledger.producers) == ["order", "web-2"]


@pytest.mark.parametrize("settled_ms", [0, SETTLED_AFTER_MS + 2 * STEP_MS])
def test_producers_that_have_nothing_in_the_chosen_topics_are_told(
    pipeline: Pipeline, settled_ms: int
) -> None:
    for _ in range(2):
        pipeline.pass_time(settled_ms)
        pipeline.ledger.settle(pipeline.now_ms)
        settle(pipeline.ledger, Book(), pipeline.now_ms)
    outcome = pipeline.outcome()
    for topics, producers, absent in (
        (("orders",), ("p", "q"), ["q"]),
        (("dc-east.views",), ("q", "r", "p"), ["p"]),
        (("orders", "views"), ("p", "q", "r"), []),
        (("orders",), ("p",), []),
        ((), ("r",), []),
    ):
        assert Choice(topics, producers).absent(outcome, pipeline.ledger) == absent
