"""What the auditor tells: a watermark is kept before it is told, and one that cannot be kept is not told."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from audit_pipeline import DATACENTER, NOW, TOPIC, WINDOW_MS, NoTopics, Pipeline
from click.testing import CliRunner

from headrace.audit import auditor as auditors
from headrace.audit.auditor import Auditor
from headrace.audit.commands import watch
from headrace.audit.judging.book import Book
from headrace.audit.judging.settling import SETTLED_AFTER_MS, STEP_MS, settle
from headrace.audit.ledger import promises
from headrace.audit.ledger.ledger import Promise
from headrace.broker.client.bootstrap import Bootstrap
from headrace.load.tables import open_catalog

OVERALL = ("", "")


def auditor(pipeline: Pipeline, directory: Path | None) -> Auditor:
    """Return an auditor of what is in memory: it reads neither topics nor tables."""
    found = object.__new__(Auditor)
    found.ledger, found.book, found._directory, found.further = pipeline.ledger, Book(), directory, []
    return found


def some_events() -> Pipeline:
    pipeline = Pipeline()
    pipeline.open("p")
    pipeline.send("p")
    pipeline.pass_time(3 * WINDOW_MS)
    pipeline.ledger.settle(pipeline.now_ms)
    return pipeline


def test_what_is_told_is_kept(tmp_path: Path) -> None:
    pipeline = some_events()
    outcome = auditor(pipeline, tmp_path).outcome(pipeline.now_ms, 300)
    assert outcome.complete_until == promises.load(tmp_path)[OVERALL].until_ms
    assert promises.load(tmp_path)[DATACENTER, TOPIC].positions == {0: 1}


def test_another_process_may_have_told_more(tmp_path: Path) -> None:
    pipeline = some_events()
    told = Promise(pipeline.now_ms, {0: 1})
    promises.keep(tmp_path, {OVERALL: told})
    assert auditor(pipeline, tmp_path).outcome(pipeline.now_ms, 300).complete_until == pipeline.now_ms


def test_what_cannot_be_kept_is_not_told(tmp_path: Path) -> None:
    pipeline = some_events()
    (tmp_path / "file").touch()
    closed = auditor(pipeline, tmp_path / "file")
    assert closed.outcome(pipeline.now_ms, 300).complete_until is None
    assert auditor(pipeline, None).outcome(pipeline.now_ms, 300).complete_until is not None


@pytest.fixture
def past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of a report on a loss that was settled and kept, and of which the topics tell nothing any more."""
    monkeypatch.setattr(auditors, "OfflineTopics", NoTopics)
    warehouse = str(tmp_path / "warehouse")
    open_catalog(warehouse).create_namespace("warehouse")
    auditor = watch.open_auditor(Bootstrap("127.0.0.1:1"), warehouse, {}, tmp_path / "state", 60)
    pipeline = Pipeline(ledger=auditor.ledger)
    pipeline.open("p")
    pipeline.send("p", tiers=("live",))
    pipeline.close("p")
    pipeline.open("q", "orders")
    pipeline.send("q", "orders")
    pipeline.close("q", "orders")
    for _ in range(2):
        pipeline.pass_time(SETTLED_AFTER_MS + 2 * STEP_MS)
        pipeline.ledger.settle(pipeline.now_ms)
        settle(pipeline.ledger, auditor.book, pipeline.now_ms)
    for _ in range(2):
        auditor.keep(tmp_path / "state", with_settled=True)
    span = [datetime.fromtimestamp(at // 1000, UTC).isoformat() for at in (NOW - WINDOW_MS, NOW + WINDOW_MS)]
    cluster = ["--bootstrap", "127.0.0.1:1", "--warehouse", warehouse]
    return [*cluster, "--since", span[0], "--until", span[1], "--output", str(tmp_path / "report"), "--json"]


@pytest.mark.parametrize("with_state", [True, False])
def test_a_report_of_the_past_is_that_of_the_tables(
    past: list[str], tmp_path: Path, with_state: bool
) -> None:
    options = [*past, *(["--state", str(tmp_path / "state")] if with_state else [])]
    done = CliRunner().invoke(watch.report, [*options, "--topic", TOPIC, "--producer", "web-1"])
    report = json.loads(done.stdout)
    assert (done.exit_code, report["schema_version"], report["verdict"]) == (1, 2, "loss")
    assert (report["totals"]["live"], report["totals"]["lost"]) == (1, 1)
    [finding] = report["findings"]
    assert (finding["hop"], finding["server"], finding["count"]) == ("live_to_offline", "web-1", 1)
    assert finding["since"] == finding["window_start"]
    assert "mirror" in finding["to_do"]
    assert (tmp_path / "report" / "report.html").exists()


def test_a_producer_that_has_nothing_in_the_topic_ends_a_report(past: list[str]) -> None:
    done = CliRunner().invoke(watch.report, [*past, "--topic", "orders", "--producer", "p"])
    assert done.exit_code == 1
    assert "nothing that is open or was found of p is in orders: leave --topic out" in done.stderr


def test_a_name_that_nothing_goes_by_ends_a_report(past: list[str]) -> None:
    done = CliRunner().invoke(watch.report, [*past, "--topic", "pageview"])
    assert done.exit_code == 1
    assert "goes by the name of pageview:" in done.stderr
