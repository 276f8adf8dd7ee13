"""Findings that a person accepted: what an acceptance covers, what it changes, and what it leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_pipeline import DATACENTER, TOPIC, Pipeline

from headrace.audit.acceptances import (
    ACCEPTANCES_TOPIC,
    Acceptances,
    accepted,
    accepted_sums,
    as_fields,
    encode,
    id_of,
    open_verdict,
    to_accept,
    to_reopen,
)
from headrace.audit.judging.book import Book
from headrace.audit.judging.reconcile import reconcile
from headrace.audit.judging.settling import SETTLED_AFTER_MS, STEP_MS, settle
from headrace.audit.ledger import state
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.metrics import AuditMetrics
from headrace.audit.outcome import Finding
from headrace.audit.page.offline import render
from headrace.audit.records import MirrorFinding
from headrace.audit.report import as_json, sentence
from headrace.audit.topics import is_input, take
from headrace.audit.windows import Stream
from headrace.broker.wire.partitions import TopicPartition

LOSS = Finding(
    kind="loss",
    hop="live_to_offline",
    stream=Stream(DATACENTER, TOPIC, "p"),
    first_sequence=10,
    last_sequence=30,
    count=21,
    window_start=1000,
)
CUT = replace(
    LOSS,
    kind="truncation",
    stream=Stream(DATACENTER, TOPIC, ""),
    first_sequence=-1,
    last_sequence=-1,
    partition=2,
    first_offset=10,
    last_offset=30,
)
SAID: dict[str, Any] = {"by": "ada", "reason": "disk lost", "at_ms": 5000}


def holding(*items: Finding) -> Acceptances:
    found = Acceptances()
    for item in items:
        found.take(accepted(item, **SAID))
    return found


def part(first: int, last: int, item: Finding = LOSS, **changes: Any) -> Finding:
    return replace(item, first_sequence=first, last_sequence=last, count=last - first + 1, **changes)


@pytest.mark.parametrize(
    ("item", "is_covered"),
    [
        (LOSS, True),
        (part(10, 15), True),
        (part(10, 31), False),
        (part(9, 30), False),
        (part(31, 31), False),
        (replace(LOSS, count=22), False),
        (replace(LOSS, kind="duplicate"), False),
        (replace(LOSS, hop="offline_to_warehouse"), False),
        (replace(LOSS, stream=Stream(DATACENTER, TOPIC, "q")), False),
        (replace(LOSS, window_start=9000), True),
    ],
)
def test_an_acceptance_covers_its_sequences_and_no_more(item: Finding, is_covered: bool) -> None:
    assert (holding(LOSS).of(item) is not None) == is_covered


def test_parts_that_lie_side_by_side_cover_the_whole() -> None:
    assert holding(part(10, 20), part(21, 30)).of(LOSS) is not None
    assert holding(part(10, 19), part(21, 30)).of(LOSS) is None


@pytest.mark.parametrize(("window_start", "is_covered"), [(1000, True), (5000, True), (5001, False)])
def test_of_offsets_nothing_is_covered_that_was_found_later(window_start: int, is_covered: bool) -> None:
    assert (holding(CUT).of(replace(CUT, window_start=window_start)) is not None) == is_covered
    assert holding(replace(CUT, window_start=9000)).of(replace(CUT, window_start=9000)) is not None
    assert holding(CUT).of(replace(CUT, partition=3)) is None


def test_what_is_accepted_again_takes_its_parts_back_and_is_counted_once() -> None:
    known = holding(part(10, 20))
    for item in to_accept([id_of(LOSS)], [LOSS], known, "ada", "all of it", 6000):
        known.take(item)
    assert [item.id for item in known.in_force()] == [id_of(LOSS)]
    assert known.sums() == {(DATACENTER, TOPIC): (21, 0)}
    for item in to_reopen([id_of(LOSS)], known, "bob", "it goes on", 7000):
        known.take(item)
    assert known.of(LOSS) is None
    assert known.sums() == {}


@pytest.mark.parametrize(
    ("name", "by", "reason", "sentence"),
    [
        ("nothing", "ada", "why", "no finding has the id nothing"),
        (id_of(part(10, 15)), "ada", "why", "is accepted already, by ada: disk lost"),
        (id_of(CUT), " ", "why", "say who accepts it"),
        (id_of(CUT), "ada", "x" * 1001, "say why in at most 1000 characters"),
    ],
)
def test_what_cannot_be_accepted_is_said_in_a_sentence(
    name: str, by: str, reason: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        to_accept([name], [part(10, 15), CUT], holding(LOSS), by, reason, 6000)


def test_what_is_not_accepted_cannot_be_opened_again() -> None:
    with pytest.raises(ValueError, match="nothing is accepted by the id"):
        to_reopen([id_of(LOSS)], Acceptances(), "ada", "why", 6000)


def lossy() -> Pipeline:
    pipeline = Pipeline()
    pipeline.open("p")
    for tiers in (("live",), ("live",), ("live", "offline", "warehouse")):
        pipeline.send("p", tiers=tiers)
    pipeline.close("p")
    return pipeline


def accept_all(ledger: Ledger, findings: list[Finding]) -> None:
    for at, item in enumerate(findings):
        record = encode(accepted(item, **SAID))
        take(ledger, TopicPartition(ACCEPTANCES_TOPIC, 0), at, None, record)


def test_an_accepted_loss_stays_in_the_totals_and_alerts_nobody(tmp_path: Path) -> None:
    assert is_input(ACCEPTANCES_TOPIC)
    pipeline = lossy()
    ledger, now = pipeline.ledger, pipeline.now_ms
    outcome = pipeline.outcome()
    assert open_verdict(outcome, ledger.acceptances) == "loss"
    accept_all(ledger, outcome.findings)
    told = as_json(outcome, ledger, now)
    assert (told["verdict"], told["open_verdict"], told["totals"]["lost"]) == ("loss", "complete", 2)
    assert told["accepted"] == {"findings": 1, "lost": 2, "duplicated": 0}
    (finding,) = told["findings"]
    assert finding["accepted"] == {
        "id": finding["id"],
        "by": "ada",
        "reason": "disk lost",
        "at": "1970-01-01T00:00:05Z",
    }
    assert "Accepted findings: 1, with 2 events lost" in sentence(told)
    shown = render(
        told, {span: ledger.latencies.histogram(span) for span in told["latency_seconds"]}, {}, now
    )
    assert "Complete, but for what is accepted" in shown
    assert "disk lost" in shown
    metrics = AuditMetrics(tmp_path)
    metrics.observe(outcome, ledger, now)
    labels = {"datacenter": DATACENTER, "topic": TOPIC}
    values = [
        metrics.registry.get_sample_value(f"headrace_audit_{name}", labels) for name in ("lost", "open_lost")
    ]
    assert values == [2, 0]


def test_what_is_accepted_stays_so_when_it_is_settled_and_the_ledger_saved() -> None:
    pipeline = lossy()
    pipeline.open("q")
    accept_all(pipeline.ledger, pipeline.outcome().findings)
    for _ in range(2):
        pipeline.pass_time(SETTLED_AFTER_MS + 2 * STEP_MS)
        pipeline.ledger.settle(pipeline.now_ms)
        settle(pipeline.ledger, Book(), pipeline.now_ms)
    ledger = state.from_json(json.loads(json.dumps(state.as_json(pipeline.ledger))))
    (facts,) = ledger.facts.topics.values()
    assert facts.findings
    outcome = reconcile(ledger, pipeline.now_ms)
    assert accepted_sums(outcome, ledger.acceptances).lost == outcome.topics[DATACENTER, TOPIC].lost == 2


def test_a_record_that_is_none_is_a_problem_and_changes_nothing() -> None:
    ledger = Ledger()
    place = TopicPartition(ACCEPTANCES_TOPIC, 0)
    good = as_fields(accepted(LOSS, **SAID))
    broken = [b"", b"[]", b'{"id": "x"}', json.dumps({**good, "count": "many"}).encode(), None]
    for at, value in enumerate(broken):
        take(ledger, place, at, None, value)
    assert len(ledger.problems) == len(broken)
    assert ledger.acceptances.known == {}


def test_what_the_mirror_reports_can_be_accepted_and_hides_nothing_that_comes_later() -> None:
    ledger = Ledger()
    for at_ms in (1000, 9000):
        ledger.on_mirror_finding(
            MirrorFinding(
                id=str(at_ms),
                kind="truncation",
                datacenter=DATACENTER,
                topic=TOPIC,
                partition=0,
                first_offset=1,
                last_offset=2,
                detected_ms=at_ms,
                reason="cut",
            )
        )
    outcome = reconcile(ledger, 10_000)
    accept_all(ledger, outcome.findings[:1])
    assert [ledger.acceptances.of(item) is not None for item in outcome.findings] == [True, False]
