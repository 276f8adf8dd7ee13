"""The report's page, the saved ledger and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audit_pipeline import DATACENTER, TOPIC, WINDOW_MS, Pipeline
from batch_kit import Clicks, batches
from click.testing import CliRunner

from headrace.audit.commands.main import audit
from headrace.audit.histogram import Histogram
from headrace.audit.judging.reconcile import reconcile
from headrace.audit.latency import SPANS, SourcePartition
from headrace.audit.ledger import state
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.page.offline import render as rendered
from headrace.audit.period import Period
from headrace.audit.records import Counted, CounterTier, MirrorFinding
from headrace.audit.report import as_json, sentence
from headrace.audit.windows import ProducerName, tally
from headrace.audit.wording import duration
from headrace.broker.wire.partitions import TopicPartition
from headrace.load.tables import open_catalog

NOW = 1_700_000_000_000
NOTHING = {span: Histogram() for span in SPANS}


def report(**changes: Any) -> dict[str, Any]:
    ledger = Ledger()
    return {**as_json(reconcile(ledger, NOW), ledger, NOW), **changes}


def render(report: dict[str, Any], histograms: dict[str, Histogram]) -> str:
    return rendered(report, histograms, {}, NOW)


def some_latencies() -> dict[str, Histogram]:
    found = {span: Histogram() for span in SPANS}
    for histogram in found.values():
        histogram.observe(np.array([0, 1, 15, 15, 2000], dtype=np.int64))
    return found


def test_the_page_shows_every_latency_and_fetches_nothing() -> None:
    page = render(report(), some_latencies())
    assert page.count("<svg") == len(SPANS)
    assert all(span.replace("_", " ") in page for span in SPANS)
    assert "no data yet" not in page
    assert not any(mark in page for mark in ('src="', "url(http", "@import", "<link", "<script"))


def test_a_topic_without_any_envelope_is_told_of() -> None:
    ledger = Ledger()
    ledger.foreign["live", "dc-east", "logs"] = 5
    told = as_json(reconcile(ledger, NOW), ledger, NOW)
    (topic,) = told["topics"]
    assert (topic["topic"], topic["no_event"], topic["live"], topic["complete_until"]) == ("logs", 5, 0, None)
    assert told["totals"]["live"] == 0
    assert [item["reason"] for item in told["incomplete"]] == ["no producer is known yet"]
    assert "logs" in render(told, NOTHING)


def test_dead_letters_are_told_beside_the_verdict() -> None:
    pipeline = Pipeline()
    pipeline.open("p")
    pipeline.send("p")
    pipeline.close("p")
    pipeline.ledger.on_dead_letters(SourcePartition(DATACENTER, TOPIC, 0), 1, 0)
    told = as_json(pipeline.outcome(), pipeline.ledger, NOW)
    assert (told["verdict"], told["totals"]["dead_letters"]) == ("complete", 1)
    assert sentence(told) == (
        "All 1 events arrived in the warehouse, each exactly once. 1 of the events so far have no row: warehouse.dead_letter has "
        "them, with the reason."
    )
    assert sentence(told | {"verdict": "incomplete"}).endswith("with the reason.")


def test_a_time_without_events_is_not_told_as_if_some_had_arrived() -> None:
    pipeline = Pipeline()
    pipeline.open("p")
    pipeline.send("p")
    pipeline.close("p")
    outcome = reconcile(pipeline.ledger, pipeline.now_ms, period=Period(NOW - 2 * WINDOW_MS, NOW - WINDOW_MS))
    told = as_json(outcome, pipeline.ledger, NOW)
    assert told["verdict"] == "complete"
    assert sentence(told) == "Nobody accounts for an event of this time, and none is there."


def test_the_page_of_nothing_says_so() -> None:
    page = render(report(), NOTHING)
    assert page.count("no data yet") == len(SPANS)
    assert "No producer is known yet" in page


def test_names_from_outside_are_escaped() -> None:
    ledger = Ledger()
    ledger.on_mirror_finding(
        MirrorFinding(
            id="1",
            kind="truncation",
            datacenter="<b>",
            topic="<script>alert(1)</script>",
            partition=0,
            first_offset=1,
            last_offset=2,
            detected_ms=NOW,
            reason="<i>",
        )
    )
    found = as_json(reconcile(ledger, NOW), ledger, NOW)
    page = render(found, NOTHING)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "truncation" in sentence(found)


def counted(tier: CounterTier, topic: str, count: int) -> Counted:
    """A counter saw so many events of one producer."""
    name = topic if tier == "live" else f"dc-east.{topic}"
    sequences = np.arange(count, dtype=np.int64)
    found = tally(["u-1"], np.zeros(count, dtype=np.intp), np.full(count, NOW), sequences)
    return Counted(
        tier=tier,
        datacenter="dc-east",
        partition=TopicPartition(name, 0),
        first=0,
        next=count,
        tallies=tuple(found),
        at_ms=NOW,
        producers={"u-1": ProducerName("web-1", "shop")},
    )


def test_the_page_says_unknown_where_nothing_could_be_judged_and_not_loaded_where_nothing_is_loaded() -> None:
    ledger = Ledger()
    for topic in ("pageviews", "pageviews.rejected"):
        for tier in ("live", "offline"):
            ledger.on_count(counted(tier, topic, 7))
    ledger.settle(NOW)
    found = as_json(reconcile(ledger, NOW), ledger, NOW)
    page = render(found, NOTHING)
    producer_hop = page.split('class="hop')[1].split("</div>")[0]
    assert "7 unknown" in producer_hop
    assert "none lost" not in producer_hop
    topics = page.split('id="topics"')[1]
    rejected = topics.split("<td>pageviews.rejected</td>")[1].split("</tr>")[0]
    assert ">not loaded<" in rejected
    assert rejected.count(">unknown<") == 1
    assert page.index("server web-1, service shop") < page.index("u-1")


def test_the_page_counts_negative_latencies_and_names_the_two_hosts_and_the_skew() -> None:
    negative = {
        "datacenter": "dc-east",
        "hop": "live_to_offline",
        "from_host": "web-1",
        "to_host": "127.0.3.2",
        "count": 1204,
        "skew_seconds": 3.2,
        "is_certain": True,
    }
    page = render(report(negative_latencies=[negative]), NOTHING)
    assert '<td>live to offline</td><td class="number">-</td>' in page
    assert '<td class="number">1,204</td>' in page
    assert "the clock of web-1 is ahead of the clock of 127.0.3.2, by up to 3.2 s" in page


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 ms"), (0.0234, "23.4 ms"), (3.512, "3.51 s"), (600.0, "10 min")]
)
def test_durations_read_as_a_person_says_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_saved_ledger_is_the_same_ledger(tmp_path: Path) -> None:
    ledger = Ledger(5000)
    ledger.problem("something")
    state.Saver().save(ledger, tmp_path)
    assert state.as_json(state.load(tmp_path, 5000)) == state.as_json(ledger)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.json"]


@pytest.mark.parametrize("content", ["", "{}", "[]", "nonsense", '{"version": 1, "late_after_ms": 5000}'])
def test_a_ledger_that_is_not_readable_is_built_again(tmp_path: Path, content: str) -> None:
    (tmp_path / "ledger.json").write_text(content)
    assert state.load(tmp_path, 5000).problems == {}


def test_a_ledger_of_another_bound_is_built_again(tmp_path: Path) -> None:
    ledger = Ledger(5000)
    ledger.problem("something")
    state.Saver().save(ledger, tmp_path)
    assert state.load(tmp_path, 6000).problems == {}
    fields = json.loads((tmp_path / "ledger.json").read_text())
    (tmp_path / "ledger.json").write_text(json.dumps({**fields, "version": -1}))
    assert state.load(tmp_path, 5000).problems == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["count", "--bootstrap", "nowhere", "--datacenter", "d", "--tier", "live", "--topics", "t"],
        ["count", "--bootstrap", "h:1", "--datacenter", "d", "--tier", "other", "--topics", "t"],
        ["count", "--bootstrap", "h:1", "--datacenter", "d", "--tier", "live", "--topics", " , "],
        ["report", "--bootstrap", "h:1", "--output", "o", "--late-after", "0"],
        ["report", "--bootstrap", "h:1", "--output", "o", "--since", "yesterday"],
        ["report", "--bootstrap", "h:1", "--output", "o", "--since", "1h", "--until", "2h"],
        ["report", "--bootstrap", "h:1", "--output", "o", "--silent-after", "0"],
        ["watch", "--bootstrap", "h:1"],
    ],
)
def test_wrong_use_ends_with_a_sentence_and_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(audit, arguments)
    assert result.exit_code == 2
    assert "Error:" in result.output


def test_a_cluster_that_does_not_answer_ends_the_report_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.broker.client.blocking_cluster.RETRY_WAIT_SECONDS", 0.01)
    open_catalog(str(tmp_path / "w"))
    result = CliRunner().invoke(
        audit,
        [
            "report",
            "--bootstrap",
            "127.0.0.1:1",
            "--warehouse",
            str(tmp_path / "w"),
            "--output",
            str(tmp_path),
        ],
    )
    assert result.exit_code == 1
    assert "the offline cluster does not answer" in result.output
    assert not (tmp_path / "report.json").exists()


def test_a_report_makes_no_warehouse_and_reads_nothing_without_one(tmp_path: Path) -> None:
    asked = ["report", "--bootstrap", "127.0.0.1:1", "--warehouse", str(tmp_path / "w")]
    result = CliRunner().invoke(audit, [*asked, "--output", str(tmp_path / "o")])
    sentence = f"Error: there is no warehouse in {tmp_path / 'w'}; name its folder with --warehouse\n"
    assert (result.exit_code, result.output) == (1, sentence)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "option"), [(["report", "--output"], "--output"), (["watch", "--state"], "--state")]
)
def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_read(
    tmp_path: Path, arguments: list[str], option: str
) -> None:
    open_catalog(str(tmp_path / "w"))
    (tmp_path / "file").touch()
    asked = [*arguments, str(tmp_path / "file" / "o"), "--bootstrap", "127.0.0.1:1"]
    result = CliRunner().invoke(audit, [*asked, "--warehouse", str(tmp_path / "w")])
    assert result.exit_code == 2
    assert f"Invalid value for {option}: {tmp_path}/file/o cannot be made or written to" in result.output


@pytest.mark.parametrize("command", ["count", "watch", "report"])
def test_help_has_an_example(command: str) -> None:
    assert "Example: headrace audit" in CliRunner().invoke(audit, [command, "--help"]).output


def test_topics_that_are_counted_by_headers_stand_beside_the_others() -> None:
    clicks = Clicks()
    clicks.copy(batches(0, 10))
    clicks.tell({"clicks": "headers", "old": "off"})
    told = clicks.report()
    (row,) = told["header_topics"]
    assert (row["live"], row["offline"], row["verdict"]) == (20, 20, "complete")
    assert row["live_bytes"] == row["offline_bytes"] > 0
    assert row["producer_to_live"] == "nobody claims it"
    assert sentence(told) == (
        "All 20 messages of the topic clicks that the live clusters have are in the offline cluster, by their batch headers; "
        "what their producers sent nobody claims."
    )
    page = render(told, NOTHING)
    assert "<h3>By batch headers</h3>" in page
    assert "Not audited: old of dc-east." in page
    assert "No producer is known yet" not in page


def test_what_a_copy_lacks_by_its_headers_is_told_in_words() -> None:
    clicks = Clicks()
    headers = batches(0, 10, 20)
    clicks.count("live", headers)
    clicks.count("offline", [headers[0], headers[2]])
    told = clicks.report()
    words = (
        "up to 10 events of clicks in dc-east from live to offline, offsets 10 to 19 of partition 0: the offline cluster has no "
        "batch there"
    )
    assert (told["verdict"], sentence(told)) == ("loss", f"loss: {words}.")
    (found,) = told["findings"]
    assert (found["what"], found["partition"], found["count"]) == (words, 0, 10)
    assert "headrace mirror status" in found["to_do"]
    assert "offsets 10 to 19" in render(told, NOTHING)
