"""What is settled is in the tables once, whatever dies in between, and answers when everything else is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from audit_pipeline import DATACENTER, NOW, TOPIC, WINDOW_MS, Pipeline
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import DayTransform

from headrace.audit.archive import Archive
from headrace.audit.judging.book import Book
from headrace.audit.judging.reconcile import reconcile
from headrace.audit.judging.settling import SETTLED_AFTER_MS, STEP_MS, settle
from headrace.audit.ledger import state
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import Outcome
from headrace.audit.period import Period
from headrace.audit.warehouse import Warehouse

PAST = Period(NOW - WINDOW_MS, NOW + WINDOW_MS)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = SqlCatalog("unit", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("warehouse")
    return catalog


def lived(pipeline: Pipeline) -> None:
    """A producer publishes three events, one of which the mirror loses, and closes; a second one goes on."""
    pipeline.open("p")
    pipeline.open("q")
    for tiers in (("live", "offline", "warehouse"), ("live",), ("live", "offline", "warehouse")):
        pipeline.send("p", tiers=tiers)
    pipeline.send("q")
    pipeline.close("p")


def aged(pipeline: Pipeline) -> Outcome:
    book = Book()
    for _ in range(2):
        pipeline.pass_time(SETTLED_AFTER_MS + 2 * STEP_MS)
        pipeline.ledger.settle(pipeline.now_ms)
        settle(pipeline.ledger, book, pipeline.now_ms)
    return reconcile(pipeline.ledger, pipeline.now_ms, book=book)


def rows(catalog: Catalog, name: str) -> list[dict[str, object]]:
    found = catalog.load_table(f"warehouse.{name}").scan().to_arrow().to_pylist()
    return [{key: value for key, value in row.items() if value} for row in found]


def test_facts_are_rows_that_sql_can_add_up(catalog: Catalog) -> None:
    pipeline = Pipeline()
    lived(pipeline)
    aged(pipeline)
    ledger = pipeline.ledger
    assert ledger.facts.begin_batch()
    Archive(catalog).write(ledger.facts, ledger.producers)
    [window] = rows(catalog, "audit_windows")
    assert (window["datacenter"], window["topic"], window["batch"]) == (DATACENTER, TOPIC, 1)
    assert (window["produced"], window["live"], window["offline"], window["lost_live_to_offline"]) == (
        4,
        4,
        3,
        1,
    )
    [finding] = rows(catalog, "audit_findings")
    assert (finding["kind"], finding["server"], finding["service"], finding["producer"]) == (
        "loss",
        "web-1",
        "shop",
        "p",
    )
    assert (finding["first_sequence"], finding["count"]) == (1, 1)
    assert Warehouse(catalog).read_into(Ledger()) == 0
    assert not ledger.facts.begin_batch()
    facts = ledger.facts.topics[DATACENTER, TOPIC]
    assert (facts.windows, facts.unwritten, facts.counts.live, len(facts.findings)) == ({}, {}, 4, 1)
    facts.until_ms += 2 * 86_400_000
    facts.forget_written()
    assert facts.findings == []


def test_a_batch_is_in_each_table_once_wherever_it_was_cut_off(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline()
    lived(pipeline)
    aged(pipeline)
    pipeline.ledger.facts.begin_batch()
    saved = json.dumps(state.as_json(pipeline.ledger))
    archive = Archive(catalog)
    append = Archive._append

    def die_at_the_windows(self: Archive, name: str, *rest: object) -> None:
        if name == "audit_windows":
            raise OSError("died")
        append(self, name, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Archive, "_append", die_at_the_windows)
        with pytest.raises(OSError, match="died"):
            archive.write(pipeline.ledger.facts, {})
    for _ in range(3):
        ledger = archive.restored(state.from_json(json.loads(saved)))
        assert ledger.facts.pending is not None
        archive.write(ledger.facts, ledger.producers)
    assert (len(rows(catalog, "audit_windows")), len(rows(catalog, "audit_findings"))) == (1, 1)
    assert (ledger.facts.batch, ledger.facts.pending) == (1, None)


def test_a_report_of_the_past_needs_neither_topics_nor_the_ledger(catalog: Catalog) -> None:
    pipeline = Pipeline()
    lived(pipeline)
    before = aged(pipeline)
    pipeline.ledger.facts.begin_batch()
    Archive(catalog).write(pipeline.ledger.facts, pipeline.ledger.producers)
    empty = Archive(catalog).restored(Ledger())
    Archive(catalog).read_into(empty, PAST)
    after = reconcile(empty, pipeline.now_ms, period=PAST)
    assert after.topics == before.topics
    assert after.findings == before.findings
    assert after.verdict == "loss"
    assert empty.producers["p"].server == "web-1"
    later = Period(NOW + 10 * WINDOW_MS, NOW + 20 * WINDOW_MS)
    Archive(catalog).read_into(empty, later)
    assert reconcile(empty, pipeline.now_ms, period=later).beyond.lost == 1


@pytest.mark.parametrize("with_beginning", [True, False])
def test_a_lost_ledger_is_read_again_without_a_false_verdict(catalog: Catalog, with_beginning: bool) -> None:
    """All that is told before the loss is told again, or all but the accounts that retention took."""
    told = Pipeline()
    lived(told)
    told.pass_time(2 * WINDOW_MS)
    told.send("q")
    before = aged(told)
    told.ledger.facts.begin_batch()
    Archive(catalog).write(told.ledger.facts, told.ledger.producers)
    anew = Pipeline(ledger=Archive(catalog).restored(Ledger()))
    assert anew.ledger.rebuilt
    take = anew.tell
    if not with_beginning:
        anew.tell = lambda *_: None  # type: ignore[method-assign]
    lived(anew)
    anew.tell = take  # type: ignore[method-assign]
    anew.pass_time(2 * WINDOW_MS)
    anew.send("q")
    anew.pass_time(2 * SETTLED_AFTER_MS)
    anew.ledger.rebuilt.clear()
    anew.send("q")
    anew.close("q")
    after = aged(anew)
    [loss] = before.findings
    assert after.topics[DATACENTER, TOPIC].produced == before.topics[DATACENTER, TOPIC].produced + 1
    assert (after.topics[DATACENTER, TOPIC].lost, after.topics[DATACENTER, TOPIC].duplicated) == (1, 0)
    assert [item for item in after.findings if item != loss] == []
    assert after.incomplete == []


def test_a_ledger_from_before_the_last_batch_is_begun_anew(catalog: Catalog) -> None:
    pipeline = Pipeline()
    lived(pipeline)
    old = json.dumps(state.as_json(pipeline.ledger))
    aged(pipeline)
    pipeline.ledger.facts.begin_batch()
    Archive(catalog).write(pipeline.ledger.facts, {})
    ledger = Archive(catalog).restored(state.from_json(json.loads(old)))
    assert not ledger.accounts
    assert ledger.facts.until_ms(DATACENTER, TOPIC) > NOW
    assert Archive(catalog).restored(pipeline.ledger) is pipeline.ledger


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_small_files_become_one_and_no_row_changes(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, is_partitioned: bool
) -> None:
    """As often as batches say, whatever partition fields others give the table; a file that is as large as one may be stays."""
    monkeypatch.setattr("headrace.audit.archive.MERGED_EVERY", 4)
    monkeypatch.setattr("headrace.audit.archive.MERGED_ROWS_MAX", 6)
    archive, pipeline, book = Archive(catalog), Pipeline(), Book()
    sizes: list[list[int]] = []
    numbers = []
    for round_number in range(1, 9):
        producer = f"p{round_number}"
        pipeline.open(producer)
        pipeline.send(producer, tiers=("live",))
        pipeline.close(producer)
        pipeline.pass_time(SETTLED_AFTER_MS + 2 * STEP_MS)
        pipeline.ledger.settle(pipeline.now_ms)
        settle(pipeline.ledger, book, pipeline.now_ms)
        assert pipeline.ledger.facts.begin_batch()
        archive.write(pipeline.ledger.facts, {})
        archive.merge(pipeline.ledger.facts)
        table = catalog.load_table("warehouse.audit_windows")
        if is_partitioned and round_number == 1:
            with table.update_spec() as update:
                update.add_field("window_start", DayTransform(), "day")
        sizes.append(sorted(task.file.record_count for task in table.scan().plan_files()))
        numbers.append(sorted(row["batch"] for row in table.scan().to_arrow().to_pylist()))
    assert numbers == [list(range(1, last + 1)) for last in range(1, 9)]
    assert sizes[2:4] == [[1, 1, 1], [4]]
    assert sizes[6:] == [[1, 1, 1, 4], [4, 4]]
    assert len(rows(catalog, "audit_findings")) == 8
    archive.read_into(pipeline.ledger, Period(0, pipeline.now_ms))
    assert len(pipeline.ledger.facts.topics[DATACENTER, TOPIC].findings) == 8
