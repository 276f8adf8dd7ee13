"""What is saved is all that is known, and a range that was saved before is not put into words again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from audit_pipeline import Pipeline

from headrace.audit import records
from headrace.audit.ledger import state
from headrace.audit.ledger.coverage import HELD_MAX


def saved(directory: Path) -> Any:
    return json.loads((directory / state.FILE).read_text(encoding="utf-8"))


def known(pipeline: Pipeline) -> Any:
    return json.loads(json.dumps(state.as_json(pipeline.ledger)))


def test_each_time_all_is_saved(tmp_path: Path) -> None:
    pipeline, saver = Pipeline(), state.Saver()
    saver.save(pipeline.ledger, tmp_path)
    assert saved(tmp_path) == known(pipeline)
    pipeline.open("p")
    for _ in range(2 * HELD_MAX):
        pipeline.send("p")
        pipeline.pass_time(1000)
        pipeline.ledger.settle(pipeline.now_ms)
        saver.save(pipeline.ledger, tmp_path)
        assert saved(tmp_path) == known(pipeline)
    assert known(pipeline)["coverage"], "ranges are held"
    assert state.as_json(state.from_json(saved(tmp_path))) == state.as_json(pipeline.ledger)


def test_a_range_is_put_into_words_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, saver = Pipeline(), state.Saver()
    pipeline.open("p")
    for _ in range(20):
        pipeline.send("p")
    told: list[records.CountRecord] = []

    def as_fields(record: records.CountRecord) -> dict[str, Any]:
        told.append(record)
        return fields_of(record)

    fields_of = records.as_fields
    monkeypatch.setattr(records, "as_fields", as_fields)
    saver.save(pipeline.ledger, tmp_path)
    assert len(told) == 40, "of both tiers"
    pipeline.send("p")
    saver.save(pipeline.ledger, tmp_path)
    assert len(told) == 42
