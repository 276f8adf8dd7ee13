"""Events and names as nobody should send them: no false verdict, a report all the same, and nothing that stays open for ever."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from random import Random
from typing import Any

import pytest
from audit_forgeries import forged
from audit_pipeline import DATACENTER, NOW, TOPIC, Pipeline, tallies_of
from audit_simulation import run
from long_runs import first_of

from headrace.audit.judging.book import Book
from headrace.audit.judging.reconcile import reconcile
from headrace.audit.judging.settling import settle
from headrace.audit.latency import SPANS
from headrace.audit.ledger import state
from headrace.audit.ledger.accounts import CLOCK_SKEW_MS
from headrace.audit.ledger.ledger import PROBLEMS_MAX
from headrace.audit.page.live import Query, View, page
from headrace.audit.page.offline import render
from headrace.audit.records import COUNTS_TOPIC, as_fields
from headrace.audit.report import as_json, sentence
from headrace.audit.topics import take
from headrace.audit.windows import ProducerName
from headrace.broker.wire.partitions import TopicPartition

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


def test_a_promise_of_a_clock_that_is_years_ahead_makes_nothing_whole_before_its_time() -> None:
    pipeline = Pipeline()
    pipeline.open("odd")
    pipeline.send("odd")
    right_ms, pipeline.now_ms = pipeline.now_ms + 20_000, YEAR_9999
    for account in pipeline.books.pop(("odd", TOPIC)).closed(YEAR_9999):
        pipeline.tell("odd", TOPIC, account)
    pipeline.now_ms = right_ms
    pipeline.barrier()
    assert set(pipeline.told().values()) == {right_ms + CLOCK_SKEW_MS}
    pipeline.open("honest")
    pipeline.now_ms += 10_000
    pipeline.send("honest")
    pipeline.pass_time(20_000)
    pipeline.close("honest")
    assert judged(pipeline, Book())[:2] == ("complete", 0)
    assert pipeline.ledger.overdue == {}, "nobody was told that its window was whole"


@pytest.mark.parametrize("seed", first_of(20, range(400)))
def test_whatever_is_written_the_audit_goes_on(seed: int) -> None:
    """Forged records may be believed where they are in themselves right, but none ends the auditor or its next one."""
    random, pipeline, book = Random(seed), Pipeline(), Book()
    pipeline.open("honest")
    for _ in range(6):
        for _ in range(3):
            pipeline.send("honest")
            found = forged(random, pipeline)
            if found is not None:
                place, key, value = found
                take(pipeline.ledger, place, 10_000, key, value)
        pipeline.pass_time(10_000)
    pipeline.close("honest")
    pipeline.pass_time(HOUR_MS)
    settle(pipeline.ledger, book, pipeline.now_ms)
    outcome = pipeline.outcome(book=book)
    report = json.loads(json.dumps(as_json(outcome, pipeline.ledger, pipeline.now_ms)))
    assert sentence(report)
    assert len(pipeline.ledger.problems) <= PROBLEMS_MAX
    kept = json.loads(json.dumps(state.as_json(pipeline.ledger)))
    reconcile(state.from_json(kept), pipeline.now_ms)


def count(**fields: Any) -> bytes:
    """What the live counter would say of the next offset, with some fields as they are not."""
    pipeline = Pipeline()
    record = pipeline._counted("live", TOPIC, 15, tallies_of("p", NOW, 0))
    return json.dumps({**as_fields(record), **fields}).encode()


SIZES = ["p", NOW, 2, 5, [0, 0]]
LIVE_COUNTS = TopicPartition(f"{DATACENTER}.{COUNTS_TOPIC}", 0)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'"counted"',
        count(kind="estimated"),
        count(tier="warehouse"),
        count(tier="offline"),
        count(datacenter="dc-west"),
        count(first=16),
        count(first=-1),
        count(next=None),
        count(partition=[]),
        count(tallies=[SIZES]),
        count(tallies=[["p", NOW, 1, 5, [0, 0]]]),
        count(tallies=[["p", 1 << 70, 1, 5, [0, 0]]]),
        count(tallies=[["p", NOW, 10**12, 5, [0, 10**12 - 1]]]),
        count(tallies=[["p", NOW, 1, 5, [0, 1 << 64]]]),
        count(batches={"entries": [[99, NOW, 1, 1, 1, 0, 0, 0]], "gaps": [], "runs": []}, kind="skipped"),
    ],
)
def test_a_count_that_nobody_made_is_a_sentence_and_counts_for_nothing(value: bytes) -> None:
    pipeline = Pipeline()
    pipeline.open("p")
    for _ in range(15):
        pipeline.send("p")
    take(pipeline.ledger, LIVE_COUNTS, 77, None, value)
    pipeline.pass_time(20_000)
    pipeline.close("p")
    verdict, findings, report = judged(pipeline, Book())
    assert (verdict, findings, report["totals"]["live"]) == ("incomplete", 0, 15)
    (reason,) = (item["reason"] for item in report["incomplete"])
    assert reason.startswith(f"offset 77 of {LIVE_COUNTS.topic}-0 is not readable: ")


def test_a_count_of_a_later_release_is_read_as_far_as_it_is_known() -> None:
    pipeline = Pipeline()
    pipeline.open("p")
    for _ in range(15):
        pipeline.send("p")
    take(pipeline.ledger, LIVE_COUNTS, 77, None, count(first=0, next=1, later={"a": 1}))
    pipeline.pass_time(20_000)
    pipeline.close("p")
    assert judged(pipeline, Book())[:2] == ("complete", 0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"window_size_ms": 0}, "has windows of 0 ms"),
        ({"window_size_ms": -10_000}, "has windows of -10000 ms"),
        ({"next_sequence": -1}, "names -1 as the next sequence"),
        ({"fingerprint": 7}, "does not have the fingerprint of its runs"),
        ({"count": 1}, "does not have the fingerprint of its runs"),
        ({"acknowledgements": ((5, 4, NOW),)}, "does not have the fingerprint of its runs"),
        ({"acknowledgements": ((0, (1 << 63) - 1, NOW),)}, "has acknowledged sequences that cannot be"),
        ({"undelivered": ((3, 2, "failed", "x"),)}, "has undelivered sequences that cannot be"),
        ({"undelivered": ((0, (1 << 63) - 1, "failed", "x"),)}, "has undelivered sequences that cannot be"),
    ],
)
def test_an_account_that_nobody_can_have_meant_is_a_sentence_and_accounts_for_nothing(
    change: dict[str, Any], sentence: str
) -> None:
    pipeline = Pipeline()
    pipeline.open("p")
    pipeline.send("p")
    told = pipeline.books["p", TOPIC].opened(pipeline.now_ms)
    pipeline.tell("p", TOPIC, replace(told, **change))
    pipeline.pass_time(20_000)
    pipeline.close("p")
    verdict, findings, report = judged(pipeline, Book())
    assert (verdict, findings, report["totals"]["produced"]) == ("incomplete", 0, 1)
    (reason,) = (item["reason"] for item in report["incomplete"])
    assert reason == f"server web-1, service shop: an account of producer p {sentence}"


HTML = "</td><img src=x onerror=alert(1)>\"'&[/b]"
NAMES_OF_OTHERS = (
    *("datacenter", "topic", "server", "service", "producer", "host", "from_host", "to_host"),
    *("reason", "by", "id", "what", "to_do"),
)


class Tags(HTMLParser):
    """All tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}


def named_badly(fields: Any) -> Any:
    """The same report, of people and things with HTML in their names."""
    if isinstance(fields, list):
        return [named_badly(item) for item in fields]
    if not isinstance(fields, dict):
        return fields
    return {
        name: value + HTML if name in NAMES_OF_OTHERS and isinstance(value, str) else named_badly(value)
        for name, value in fields.items()
    }


def test_html_in_every_name_is_text_on_every_page() -> None:
    _, ledger, outcome = run(5)
    report = named_badly(as_json(outcome, ledger, NOW))
    assert {item["kind"] for item in report["findings"]} >= {"loss", "duplicate", "late"}
    by_datacenter = report["latency_seconds_by_datacenter"]
    report["latency_seconds_by_datacenter"] = {name + HTML: found for name, found in by_datacenter.items()}
    histograms = {span: ledger.latencies.histogram(span) for span in SPANS}
    producers = {ProducerName(HTML, HTML): 1}
    whole = render(report, histograms, {}, NOW)
    served = page(View(number=1, at_ms=NOW, report=report, producers=producers, trouble=HTML), Query(text=""))
    for text in (whole, served):
        tags = Tags(text)
        assert "img" not in tags.found
        assert not any(name.startswith("on") for name in tags.attributes)
        assert "&lt;img src=x" in text
