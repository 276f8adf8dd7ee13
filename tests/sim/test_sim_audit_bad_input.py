"""Events and names as nobody should send them: no false verdict, a report all the same, and nothing that stays open for ever."""

from __future__ import annotations

import json
from typing import Any

import pytest
from audit_pipeline import NOW, Pipeline

from headrace.audit import state
from headrace.audit.book import Book
from headrace.audit.report import as_json
from headrace.audit.settling import settle

YEAR_9999 = 253_402_300_790_000
BEYOND_ANY_CALENDAR = 2**62
HOUR_MS = 3_600_000
NAMES = 600


def judged(pipeline: Pipeline, book: Book) -> tuple[str, int, dict[str, Any]]:
    """(verdict, findings but for what is late, the report as JSON reads it)."""
    outcome = pipeline.outcome(book=book)
    report = json.loads(json.dumps(as_json(outcome, pipeline.ledger, pipeline.now_ms)))
    return outcome.verdict, sum(item.kind != "late" for item in outcome.findings), report


@pytest.mark.parametrize("time_ms", [YEAR_9999, BEYOND_ANY_CALENDAR, 0, NOW - 400 * 24 * HOUR_MS])
def test_a_clock_that_is_far_off_makes_no_verdict_and_holds_nobody_else(time_ms: int) -> None:
    pipeline, book = Pipeline(), Book()
    for name in ("honest", "odd"):
        pipeline.open(name)
    for _ in range(5):
        pipeline.send("honest")
        pipeline.send("odd", time_ms=time_ms)
        pipeline.pass_time(10_000)
    for name in ("honest", "odd"):
        pipeline.close(name)
    pipeline.pass_time(HOUR_MS)
    settle(pipeline.ledger, book, pipeline.now_ms)
    verdict, findings, report = judged(pipeline, book)
    assert (verdict, findings) == ("complete", 0)
    assert report["totals"]["produced"] == report["totals"]["warehouse"] == 10
    kept = json.loads(json.dumps(state.as_json(pipeline.ledger)))
    assert state.as_json(state.from_json(kept))["accounts"] == kept["accounts"]


def test_a_clock_that_is_set_back_doubles_and_loses_nothing() -> None:
    pipeline, book = Pipeline(), Book()
    pipeline.open("p")
    for back_ms in (0, 0, 30_000, 20_000, 0):
        pipeline.send("p", time_ms=pipeline.now_ms - back_ms)
        pipeline.pass_time(5_000)
    pipeline.close("p")
    pipeline.pass_time(HOUR_MS)
    assert judged(pipeline, book)[:2] == ("complete", 0)


def test_names_without_number_leave_nothing_behind_that_grows() -> None:
    pipeline, book = Pipeline(), Book()
    sizes = []
    for begun in range(0, NAMES, 20):
        names = [f"<b>{number}</b>" for number in range(begun, begun + 20)]
        for name in names:
            pipeline.open(name)
            pipeline.send(name)
        pipeline.pass_time(11_000)
        for name in names:
            pipeline.close(name)
        pipeline.now_ms += HOUR_MS // 2
        pipeline.barrier()
        pipeline.ledger.settle(pipeline.now_ms)
        settle(pipeline.ledger, book, pipeline.now_ms)
        sizes.append(len(pipeline.ledger.streams()))
    assert max(sizes[5:]) <= 2 * max(sizes[:5]), "it is open for so long and no longer"
    verdict, findings, _ = judged(pipeline, book)
    assert (verdict, findings) == ("complete", 0)
