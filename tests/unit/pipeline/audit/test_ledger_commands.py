"""What the auditor tells: a watermark is kept before it is told, and one that cannot be kept is not told."""

from __future__ import annotations

from pathlib import Path

from audit_pipeline import DATACENTER, TOPIC, WINDOW_MS, Pipeline

from headrace.audit import promises
from headrace.audit.book import Book
from headrace.audit.ledger import Promise
from headrace.audit.ledger_commands import Auditor

OVERALL = ("", "")


def auditor(pipeline: Pipeline, directory: Path | None) -> Auditor:
    """Return an auditor of what is in memory: it reads neither topics nor tables."""
    found = object.__new__(Auditor)
    found.ledger, found.book, found._directory = pipeline.ledger, Book(), directory
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
