"""Watermarks that were told outlive the ledger, and never go back."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_pipeline import DATACENTER, TOPIC, WINDOW_MS, Pipeline

from headrace.audit.ledger import promises, state
from headrace.audit.ledger.ledger import LATE_AFTER_MS, Promise

PLACE = (DATACENTER, TOPIC)
OLD, NEW = Promise(1000, {0: 5}), Promise(2000, {0: 9})


def test_of_two_processes_the_latest_watermark_stays(tmp_path: Path) -> None:
    assert promises.keep(tmp_path / "new", {PLACE: NEW}) == {PLACE: NEW}
    assert promises.keep(tmp_path / "new", {PLACE: OLD, ("", ""): OLD}) == {PLACE: NEW, ("", ""): OLD}
    assert promises.load(tmp_path / "new") == {PLACE: NEW, ("", ""): OLD}


@pytest.mark.parametrize("content", ["", "[]", '{"version": 0}', '{"version": 1, "watermarks": [1]}'])
def test_a_file_that_is_not_readable_tells_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / promises.FILE).write_text(content)
    assert promises.load(tmp_path) == {}


def test_a_ledger_of_an_older_version_is_built_again_and_its_watermark_stays(tmp_path: Path) -> None:
    pipeline = Pipeline()
    pipeline.open("p")
    pipeline.send("p")
    pipeline.pass_time(3 * WINDOW_MS)
    told = dict(pipeline.told())
    promises.keep(tmp_path, pipeline.ledger.promised)
    (tmp_path / state.FILE).write_text('{"version": 1, "late_after_ms": 60000}')
    pipeline.ledger = state.load(tmp_path, LATE_AFTER_MS)
    assert pipeline.ledger.accounts == {}
    assert {key: promise.until_ms for key, promise in pipeline.ledger.promised.items()} == told
    assert dict(pipeline.outcome().watermarks) == told


def test_a_saved_ledger_knows_what_came_late_and_who_is_heard(tmp_path: Path) -> None:
    pipeline = Pipeline()
    pipeline.open("p")
    pipeline.pass_time(3 * WINDOW_MS)
    promises.keep(tmp_path, pipeline.ledger.promised)
    pipeline.send("p", time_ms=pipeline.now_ms - 3 * WINDOW_MS)
    pipeline.arrive("foreign", 0, time_ms=pipeline.now_ms)
    pipeline.pass_time(WINDOW_MS)
    pipeline.barrier(unread=1)
    pipeline.ledger.settle(pipeline.now_ms)
    state.Saver().save(pipeline.ledger, tmp_path)
    before = pipeline.outcome()
    saved = state.as_json(pipeline.ledger)
    pipeline.ledger = state.load(tmp_path, LATE_AFTER_MS)
    assert state.as_json(pipeline.ledger) == saved
    assert pipeline.outcome() == before
