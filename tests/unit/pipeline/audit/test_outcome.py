"""Verdicts of windows, and that of a period."""

from __future__ import annotations

import pytest
from audit_pipeline import DATACENTER, NOW, TOPIC, WINDOW_MS, Pipeline

from headrace.audit.outcome import open_windows, windows
from headrace.audit.period import BEGIN_MS, END_MS, Period
from headrace.audit.records import Standstill
from headrace.audit.report import as_json, sentence
from headrace.broker.wire.partitions import TopicPartition

HOUR_MS = 3_600_000


@pytest.fixture
def pipeline() -> Pipeline:
    """A loss in the first window, a copy in the third, and a loss an hour later; closed."""
    pipeline = Pipeline()
    pipeline.open("p")
    pipeline.send("p", tiers=("live",))
    pipeline.pass_time(2 * WINDOW_MS)
    sequence = pipeline.send("p")
    pipeline.arrive("p", sequence, time_ms=pipeline.now_ms, tiers=("offline", "warehouse"))
    pipeline.pass_time(HOUR_MS - 2 * WINDOW_MS)
    pipeline.send("p", tiers=("live", "offline"))
    pipeline.pass_time(WINDOW_MS)
    pipeline.close("p")
    return pipeline


def test_open_windows_are_those_that_may_still_be_complete(pipeline: Pipeline) -> None:
    def found(since_ms: int) -> dict[tuple[str, str], int]:
        return open_windows(pipeline.outcome(), Period(since_ms, pipeline.now_ms), WINDOW_MS)

    assert found(NOW) == {(DATACENTER, TOPIC): 0}
    pipeline.open("q")
    pipeline.send("q")
    pipeline.pass_time(3 * WINDOW_MS, kill=("q",))
    assert found(NOW)[DATACENTER, TOPIC] == 3
    assert found(pipeline.now_ms - WINDOW_MS)[DATACENTER, TOPIC] == 1
    assert found(pipeline.now_ms) == {(DATACENTER, TOPIC): 0}


def test_windows_that_are_not_complete_are_named_in_order(pipeline: Pipeline) -> None:
    found = windows(pipeline.outcome())
    assert [(item.datacenter, item.topic) for item in found] == [(DATACENTER, TOPIC)] * 3
    assert [(item.period.since_ms - NOW, item.period.until_ms - NOW, item.verdict) for item in found] == [
        (0, WINDOW_MS, "loss"),
        (2 * WINDOW_MS, 3 * WINDOW_MS, "duplicates"),
        (HOUR_MS, HOUR_MS + WINDOW_MS, "loss"),
    ]


@pytest.mark.parametrize(
    ("since_ms", "until_ms", "verdict", "lost", "produced"),
    [
        (BEGIN_MS, END_MS, "loss", 2, 3),
        (NOW, NOW + 1, "loss", 1, 1),
        (NOW + WINDOW_MS, NOW + 2 * WINDOW_MS, "complete", 0, 0),
        (NOW + WINDOW_MS, NOW + HOUR_MS, "duplicates", 0, 1),
        (NOW + 3 * WINDOW_MS, NOW + HOUR_MS, "complete", 0, 0),
        (NOW + HOUR_MS, END_MS, "loss", 1, 1),
    ],
)
def test_the_verdict_of_a_period_is_the_worst_of_its_windows(
    pipeline: Pipeline, since_ms: int, until_ms: int, verdict: str, lost: int, produced: int
) -> None:
    outcome = pipeline.outcome(period=Period(since_ms, until_ms))
    counts = outcome.topics[DATACENTER, TOPIC]
    assert (outcome.verdict, counts.lost, counts.produced) == (verdict, lost, produced)
    assert outcome.beyond.lost == 2 - lost
    assert outcome.complete_until == NOW


def test_the_report_says_its_time_and_what_lies_outside_of_it(pipeline: Pipeline) -> None:
    outcome = pipeline.outcome(period=Period(NOW + WINDOW_MS, NOW + 2 * WINDOW_MS))
    report = as_json(outcome, pipeline.ledger, pipeline.now_ms)
    assert (report["since"], report["until"]) == ("2023-11-14T22:13:30Z", "2023-11-14T22:13:40Z")
    assert report["windows"] == []
    assert report["beyond"] == {"lost": 2, "duplicated": 1, "under_way": 0}
    assert sentence(report).endswith("Outside of the time of this report: 2 lost, 1 copies too many.")
    (topic,) = report["topics"]
    assert topic["complete_until"] == "2023-11-14T22:13:20Z"


def test_offsets_that_were_skipped_matter_for_the_windows_that_may_lie_in_them(pipeline: Pipeline) -> None:
    offset = pipeline.offsets[TOPIC]
    reason = f"offsets {offset} to {offset + 4} were deleted before they were counted"
    pipeline.ledger.on_count(
        Standstill(
            tier="live",
            datacenter=DATACENTER,
            partition=TopicPartition(TOPIC, 0),
            first=offset,
            next=offset + 5,
            reason=reason,
            at_ms=pipeline.now_ms,
        )
    )
    whole = Period(NOW + 3 * WINDOW_MS, NOW + HOUR_MS)
    assert pipeline.outcome(period=whole).verdict == "complete"
    later = pipeline.outcome(period=Period(NOW + HOUR_MS, END_MS))
    assert [reason in item.reason for item in later.incomplete] == [True]
