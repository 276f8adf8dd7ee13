"""Further warehouses: each is counted by a ledger of its own, and the report names which one lacks something."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from audit_pipeline import DATACENTER, TOPIC, WINDOW_MS, NoTopics, Pipeline

from headrace.audit import auditor as auditors
from headrace.audit import report, topic_names
from headrace.audit.acceptances import accepted, id_of
from headrace.audit.auditor import Auditor, FurtherAuditor
from headrace.audit.commands.choice import Choice, chosen
from headrace.audit.further import Further, add_further, add_unread, verdict_at
from headrace.audit.judging.book import Book
from headrace.audit.judging.settling import SETTLED_AFTER_MS, STEP_MS, settle
from headrace.audit.ledger import state
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.metrics import AuditMetrics
from headrace.audit.outcome import OVERALL, Outcome
from headrace.audit.page import offline
from headrace.audit.page.live import Query, View, parts
from headrace.audit.page.markup import whole_parts
from headrace.broker.client.bootstrap import Bootstrap
from headrace.load.tables import WarehouseError, open_catalog

ARCHIVE = "archive"
ALL = ("live", "offline", "warehouse")


def history(pipeline: Pipeline, tiers: Sequence[tuple[str, ...]]) -> Pipeline:
    """Let one producer send an event for each of the tiers that it reaches, and close."""
    pipeline.open("p")
    for reached in tiers:
        pipeline.send("p", tiers=reached)
    pipeline.pass_time(3 * WINDOW_MS)
    pipeline.close("p")
    return pipeline


class Two:
    """A first warehouse that has all, and the further one `archive` without what `missing` names, in the order of sending."""

    def __init__(self, missing: Sequence[int], *, first: Sequence[int] = (), count: int = 4) -> None:
        self.first = history(Pipeline(), [ALL[: 2 + (at not in first)] for at in range(count)])
        ledger = Ledger(warehouse=ARCHIVE)
        self.archive = history(
            Pipeline(ledger=ledger), [ALL[: 2 + (at not in missing)] for at in range(count)]
        )

    def outcome(self) -> Outcome:
        outcome = self.first.outcome()
        add_further(outcome, ARCHIVE, self.archive.outcome(), {})
        return outcome

    def told(self) -> dict[str, Any]:
        return report.as_json(self.outcome(), self.first.ledger, self.first.now_ms)


def found(outcome: Outcome) -> list[tuple[str, str, int, int, str]]:
    return [
        (item.kind, item.hop, item.first_sequence, item.last_sequence, item.warehouse)
        for item in outcome.findings
    ]


def test_a_loss_of_one_warehouse_names_it_and_is_in_no_number_of_the_other() -> None:
    told = Two(missing=[1, 2]).told()
    (item,) = told["findings"]
    assert (item["hop"], item["warehouse"], item["count"]) == ("offline_to_warehouse", ARCHIVE, 2)
    assert "from offline to warehouse archive" in item["what"]
    assert told["verdict"] == told["open_verdict"] == "loss"
    assert (told["totals"]["warehouse"], told["totals"]["lost"]) == (4, 0)
    (row,) = told["warehouses"]
    assert (row["name"], row["verdict"]) == (ARCHIVE, "loss")
    assert (row["totals"]["offline"], row["totals"]["warehouse"], row["totals"]["lost"]) == (4, 2, 2)
    (row,) = told["warehouse_topics"]
    assert (row["name"], row["datacenter"], row["topic"], row["lost"]) == (ARCHIVE, DATACENTER, TOPIC, 2)
    assert "2 events are lost from the offline cluster to the further warehouse archive" in report.sentence(
        told
    )


def test_each_warehouse_has_its_own_losses() -> None:
    outcome = Two(missing=[1], first=[3]).outcome()
    hop = "offline_to_warehouse"
    assert sorted(found(outcome)) == [("loss", hop, 1, 1, ARCHIVE), ("loss", hop, 3, 3, "")]
    assert outcome.topics[DATACENTER, TOPIC].lost == 1


def test_what_is_lost_before_the_warehouses_is_told_once() -> None:
    two = Two(missing=[])
    for pipeline in (two.first, two.archive):
        pipeline.open("q")
        pipeline.send("q", tiers=("live",))
        pipeline.close("q")
        pipeline.open("not closed")
    # Its ledger is read a moment later, so its reasons read otherwise.
    two.archive.now_ms += 5000
    outcome = two.outcome()
    assert found(outcome) == [("loss", "live_to_offline", 0, 0, "")]
    assert outcome.topics[DATACENTER, TOPIC].lost == 1
    assert outcome.further[ARCHIVE].topics[DATACENTER, TOPIC].lost == 0
    assert verdict_at(outcome, ARCHIVE) == "complete"
    assert two.archive.outcome().incomplete != two.first.outcome().incomplete != []
    assert outcome.incomplete == two.first.outcome().incomplete


def test_complete_says_so_of_all_and_one_warehouse_reads_as_before() -> None:
    two = Two(missing=[])
    told = two.told()
    assert told["verdict"] == "complete"
    assert report.sentence(told) == (
        "All 4 events arrived in the warehouse, each exactly once. So did those of the further warehouses: 4 in archive."
    )
    alone = report.as_json(two.first.outcome(), two.first.ledger, two.first.now_ms)
    assert (alone["warehouses"], alone["warehouse_topics"]) == ([], [])
    assert report.sentence(alone) == "All 4 events arrived in the warehouse, each exactly once."
    shown = "".join(
        [*offline.sections(alone, {}, 0, whole_parts).values(), *offline.tables(alone, whole_parts).values()]
    )
    assert "Further warehouses" not in shown


def test_a_warehouse_has_its_own_watermark() -> None:
    two = Two(missing=[1])
    outcome = two.outcome()
    assert outcome.complete_until is not None
    assert outcome.further[ARCHIVE].watermarks[OVERALL] < outcome.complete_until
    (row,) = two.told()["warehouses"]
    assert row["complete_until"] == report.time_text(outcome.further[ARCHIVE].watermarks[OVERALL])


def test_what_is_on_its_way_to_it_makes_the_report_incomplete() -> None:
    two = Two(missing=[])
    two.archive.ledger.reach.loaded = dict.fromkeys(two.archive.ledger.reach.loaded, 2)
    two.archive.ledger.copies.backlog = {
        counter: [item for item in parcels if item.next <= 2]
        for counter, parcels in two.archive.ledger.copies.backlog.items()
    }
    two.archive.ledger.changes.is_all = True
    told = two.told()
    assert told["verdict"] == "incomplete"
    assert {item.get("warehouse") for item in told["incomplete"]} == {ARCHIVE}
    assert told["warehouses"][0]["totals"]["under_way"] == 2
    assert "2 events are on their way from the offline cluster to the further" in report.sentence(told)


def test_settled_losses_keep_naming_it() -> None:
    two = Two(missing=[1, 2])
    for pipeline in (two.first, two.archive):
        for _ in range(2):
            pipeline.pass_time(SETTLED_AFTER_MS + 2 * STEP_MS)
            pipeline.ledger.settle(pipeline.now_ms)
            settle(pipeline.ledger, Book(), pipeline.now_ms)
    assert two.archive.ledger.facts.topics[DATACENTER, TOPIC].findings
    assert found(two.outcome()) == [("loss", "offline_to_warehouse", 1, 2, ARCHIVE)]


def test_an_acceptance_is_of_one_warehouse() -> None:
    two = Two(missing=[1], first=[1])
    items = {item.warehouse: item for item in two.outcome().findings}
    assert id_of(items[""]) != id_of(items[ARCHIVE])
    record = accepted(items[ARCHIVE], by="ada", reason="known", at_ms=two.first.now_ms)
    for pipeline in (two.first, two.archive):
        pipeline.ledger.acceptances.take(record)
    told = two.told()
    assert {item.get("warehouse", ""): bool(item["accepted"]) for item in told["findings"]} == {
        "": False,
        ARCHIVE: True,
    }
    assert (told["accepted"]["findings"], told["accepted"]["lost"]) == (1, 0)
    assert told["warehouses"][0]["accepted"]["lost"] == 1
    outcome = two.outcome()
    # The watermark of the warehouse whose loss is known goes on, that of the other one does not.
    assert outcome.complete_until is not None
    assert outcome.further[ARCHIVE].watermarks[OVERALL] > outcome.complete_until


def test_alerts_hear_of_it_until_it_is_accepted(tmp_path: Path) -> None:
    two = Two(missing=[1, 2])
    metrics = AuditMetrics(tmp_path)
    place = {"datacenter": DATACENTER, "topic": TOPIC}

    def sample(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"headrace_audit_{name}", labels)

    outcome = two.outcome()
    metrics.observe(outcome, two.first.ledger, two.first.now_ms)
    assert (sample("lost", **place), sample("open_lost", **place)) == (2, 2)
    assert sample("further_lost", warehouse=ARCHIVE, **place) == 2
    assert sample("further_warehouse", warehouse=ARCHIVE, **place) == 2
    until_ms = outcome.further[ARCHIVE].watermarks[OVERALL]
    assert sample("further_complete_until_seconds", warehouse=ARCHIVE) == until_ms / 1000
    (item,) = outcome.findings
    two.first.ledger.acceptances.take(accepted(item, by="ada", reason="known", at_ms=two.first.now_ms))
    metrics.observe(outcome, two.first.ledger, two.first.now_ms)
    assert (sample("lost", **place), sample("open_lost", **place)) == (2, 0)


def test_the_page_shows_it_and_what_it_lacks() -> None:
    told = Two(missing=[1, 2]).told()
    shown = offline.sections(told, {}, 0, whole_parts)["way"]
    assert "<h3>Further warehouses</h3>" in shown
    assert "archive" in shown
    assert "offline to warehouse archive" in offline.findings_table(told["findings"])
    view = View(number=1, report=told)
    assert "<td>archive</td>" in parts(view, Query())["topics"]
    assert "<td>archive</td>" not in parts(view, Query(topic="other"))["topics"]


def test_a_report_of_a_topic_is_of_that_topic_in_each_warehouse() -> None:
    two = Two(missing=[1])
    outcome = two.outcome()
    names = two.first.ledger.producers
    assert chosen(outcome, Choice([TOPIC], []), names).further[ARCHIVE].topics
    other = chosen(outcome, Choice(["other"], []), names)
    assert (other.further[ARCHIVE].topics, other.findings, other.verdict) == ({}, [], "complete")


@pytest.mark.parametrize(
    ("topics", "topic", "is_loaded"),
    [
        ("", "dc-east.pageviews", True),
        ("", "dc-east.pageviews.rejected", False),
        ("", "pageviews", False),
        ("dc-east.pageviews", "dc-east.clicks", False),
        (".*[.]clicks", "dc-east.clicks", True),
    ],
)
def test_which_topics_it_is_loaded_with(topics: str, topic: str, is_loaded: bool) -> None:
    names = topic_names.parse(topics) if topics else None
    assert (topic in Further(name=ARCHIVE, location="x", topics=names)) is is_loaded


def test_a_ledger_that_was_made_for_other_topics_is_begun_anew(tmp_path: Path) -> None:
    kept = history(Pipeline(ledger=Ledger(60_000, ARCHIVE, "dc-east.pageviews")), [ALL]).ledger
    state.Saver().save(kept, tmp_path)
    assert state.load(tmp_path, 60_000, ARCHIVE, "dc-east.pageviews").files == kept.files
    assert state.load(tmp_path, 60_000, ARCHIVE, "dc-east.clicks").files == {}
    assert state.load(tmp_path, 60_000, "other", "dc-east.pageviews").files == {}


def test_a_warehouse_that_is_not_there_holds_up_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditors, "OfflineTopics", NoTopics)
    open_catalog(str(tmp_path / "first"))
    further = Further(name=ARCHIVE, location=str(tmp_path / "archive"))
    first = Further(name="", location=str(tmp_path / "first"))
    auditor = Auditor(Bootstrap("127.0.0.1:1"), first, tmp_path / "state", 60_000, [further])
    auditor.update(0)
    outcome = auditor.outcome(0, 300)
    (item,) = [item for item in outcome.incomplete if item.warehouse]
    assert item.warehouse == ARCHIVE
    assert item.reason == (
        f"it cannot be read now: there is no warehouse in {tmp_path / 'archive'}; name its folder with --warehouse"
    )
    told = json.loads(json.dumps(report.as_json(outcome, auditor.ledger, 0)))
    assert (told["verdict"], told["warehouses"][0]["verdict"]) == ("incomplete", "incomplete")
    open_catalog(str(tmp_path / "archive"))  # as its load does
    auditor.update(0)
    assert not [item for item in auditor.outcome(0, 300).incomplete if item.warehouse]
    auditor.keep(tmp_path / "state", with_settled=True)
    assert (tmp_path / "state" / "warehouses" / ARCHIVE / state.FILE).exists()


def test_the_first_warehouse_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError):
        Auditor(Bootstrap("127.0.0.1:1"), Further(name="", location=str(tmp_path / "no")), None, 60_000)


def test_what_was_read_before_is_told_while_it_cannot_be_read() -> None:
    two = Two(missing=[1])
    outcome = two.outcome()
    add_unread(outcome, ARCHIVE, "no route to host")
    assert outcome.verdict == "loss"
    assert outcome.further[ARCHIVE].topics[DATACENTER, TOPIC].lost == 1
    told = report.as_json(outcome, two.first.ledger, two.first.now_ms)
    assert "warehouse archive: it cannot be read now: no route to host" in report.sentence(told)


def test_an_error_of_its_catalog_is_told(tmp_path: Path) -> None:
    further = Further(name=ARCHIVE, location="s3://x", properties={"type": "nonsense"})
    auditor = FurtherAuditor(Bootstrap("127.0.0.1:1"), further, None, 60_000)
    assert auditor.update(0) == 0
    outcome = Pipeline().outcome()
    auditor.add_judged(outcome, Ledger(), 0, 300)
    assert "nonsense" in outcome.incomplete[-1].reason
