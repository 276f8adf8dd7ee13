"""What becomes of counted headers over time: folding, the state's file, counters that come twice, topics that change."""

from __future__ import annotations

import json

import pytest
from audit_pipeline import TOPIC as EVENTS
from audit_pipeline import WINDOW_MS, Pipeline
from batch_kit import DATACENTER, NOW, TOPIC, Clicks, batch, batches

from headrace.audit.batch_counts import BLOCK_SIZE, census
from headrace.audit.latency import SourcePartition
from headrace.audit.ledger import batch_ledger, state
from headrace.audit.ledger.ledger import HELD_MS
from headrace.audit.modes import Mode
from headrace.audit.parcels import Counter
from headrace.audit.records import Counted, Standstill
from headrace.broker.wire.partitions import TopicPartition

PLACE = SourcePartition(DATACENTER, TOPIC, 0)


@pytest.fixture
def clicks() -> Clicks:
    return Clicks()


def test_what_is_folded_says_the_same(clicks: Clicks) -> None:
    headers = batches(*range(0, 5500, 10))
    clicks.count("live", headers)
    clicks.count("offline", [item for item in headers if item.base_offset not in (1500, 5200)])
    before = clicks.report()
    clicks.at_ms += HELD_MS + 1
    after = clicks.report()
    assert not clicks.ledger.copies.held
    assert set(clicks.ledger.batches.logs[Counter("live", PLACE)].blocks) == {5}
    for name in ("verdict", "header_topics", "findings", "incomplete"):
        assert after[name] == before[name]
    assert [item["first_offset"] for item in after["findings"]] == [1500, 5200]


def test_the_state_is_read_as_it_was_written(clicks: Clicks) -> None:
    clicks.tell({TOPIC: "headers", "old": "off"})
    headers = [batch(at, producer_id=7, producer_epoch=0, base_sequence=at) for at in range(0, 2500, 10)]
    clicks.count("live", headers)
    clicks.count("offline", [item for item in headers if item.base_offset != 700])
    clicks.at_ms += HELD_MS + 1
    before = clicks.report()
    clicks.ledger = state.from_json(json.loads(json.dumps(state.as_json(clicks.ledger))))
    assert clicks.report() == before
    clicks.copy([batch(2500, producer_id=7, producer_epoch=0, base_sequence=2501)])
    assert [item["hop"] for item in clicks.report()["findings"]] == ["producer_to_live", "live_to_offline"]


def test_a_state_from_before_headers_were_counted_is_read(clicks: Clicks) -> None:
    fields = json.loads(json.dumps(state.as_json(clicks.ledger)))
    del fields["batches"], fields["modes"]
    assert state.from_json(fields).batches == batch_ledger.BatchLedger()


def test_a_second_counter_changes_nothing(clicks: Clicks) -> None:
    headers = batches(*range(0, 100, 10))
    clicks.copy(headers)
    clicks.count("live", headers[:5], first=0)
    clicks.count("live", headers[3:7], first=30)
    report = clicks.report()
    assert (report["verdict"], report["header_topics"][0]["live"]) == ("complete", 100)


def test_sequences_are_not_expected_to_go_on_behind_what_was_not_counted(clicks: Clicks) -> None:
    clicks.copy([batch(0, producer_id=7, producer_epoch=0, base_sequence=0)])
    for tier in ("live", "offline"):
        clicks.ledger.on_count(
            Standstill(
                tier=tier,
                datacenter=DATACENTER if tier == "live" else "offline",
                partition=clicks.partition(tier),
                first=10,
                next=50,
                reason="offsets 10 to 49 were deleted before they were counted",
                at_ms=NOW,
            )
        )
    clicks.positions = {"live": 50, "offline": 50}
    clicks.copy([batch(50, producer_id=7, producer_epoch=0, base_sequence=300)])
    report = clicks.report()
    assert (report["verdict"], report["findings"]) == ("incomplete", [])
    assert all("deleted" in item["reason"] for item in report["incomplete"])


def test_blocks_that_only_one_cluster_has_are_bounded(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_ledger, "BLOCKS_MAX", 3)
    headers = batches(*range(0, 10 * BLOCK_SIZE, BLOCK_SIZE), count=BLOCK_SIZE)
    clicks.count("live", headers)
    clicks.at_ms += HELD_MS + 1
    clicks.outcome()
    assert set(clicks.ledger.batches.logs[Counter("live", PLACE)].blocks) == {7, 8, 9}


def test_a_topic_that_is_off_is_told_of_by_its_name_alone(clicks: Clicks) -> None:
    clicks.count("live", batches(0))
    clicks.tell({TOPIC: "off"})
    clicks.tell({TOPIC: "off", "other": "headers"}, NOW + 1)
    report = clicks.report()
    assert (report["header_topics"], report["findings"]) == ([], [])
    assert report["off_topics"] == [{"datacenter": DATACENTER, "topic": TOPIC}]
    clicks.tell({}, NOW + 2, counted=["other"])
    assert clicks.report()["off_topics"]
    clicks.tell({}, NOW + 3, counted=[TOPIC])
    assert clicks.report()["off_topics"] == []


def by_headers(pipeline: Pipeline, offsets: int, *, offline: bool = True) -> None:
    """Let both counters count some offsets of the events' topic by batch headers, as producers account for nothing there."""
    first = pipeline.offsets[EVENTS]
    headers = [batch(first + at, 1, time_ms=pipeline.now_ms) for at in range(offsets)]
    for tier, topic in (("live", EVENTS), ("offline", f"{DATACENTER}.{EVENTS}")):
        kept = headers if tier == "live" or offline else headers[1:]
        pipeline.ledger.on_count(
            Counted(
                tier=tier,  # type: ignore[arg-type]
                datacenter=DATACENTER if tier == "live" else "offline",
                partition=TopicPartition(topic, 0),
                first=first,
                next=first + offsets,
                tallies=(),
                at_ms=pipeline.now_ms,
                batches=census(kept, (), first, WINDOW_MS),
            )
        )
    pipeline.offsets[EVENTS] = first + offsets


def change(pipeline: Pipeline, modes: dict[str, Mode]) -> None:
    pipeline.modes = modes
    pipeline.barrier()


def test_a_topic_changes_to_headers_and_back_without_a_false_verdict() -> None:
    pipeline = Pipeline()
    pipeline.open("p")
    for _ in range(30):
        pipeline.send("p")
        pipeline.pass_time(1000)
    change(pipeline, {EVENTS: "headers"})
    by_headers(pipeline, 20)
    pipeline.pass_time(60_000)
    outcome = pipeline.outcome()
    assert (outcome.verdict, outcome.findings) == ("complete", [])
    assert outcome.topics[DATACENTER, EVENTS].live == 30
    assert outcome.batches[DATACENTER, EVENTS].live.messages == 20
    change(pipeline, {})
    for _ in range(30):
        pipeline.send("p")
        pipeline.pass_time(1000)
    outcome = pipeline.outcome()
    assert (outcome.findings, outcome.batches[DATACENTER, EVENTS].lost) == ([], 0)
    assert outcome.topics[DATACENTER, EVENTS].live == 60


def test_accounts_of_what_was_counted_by_headers_after_a_change_are_no_loss() -> None:
    pipeline = Pipeline()
    pipeline.open("p")
    pipeline.send("p")
    book = pipeline.books["p", EVENTS]
    book.on_sent(1, pipeline.now_ms)
    book.on_acknowledged(1, pipeline.now_ms, pipeline.now_ms)
    pipeline.now_ms += 1000
    by_headers(pipeline, 1)
    change(pipeline, {EVENTS: "headers"})
    pipeline.pass_time(60_000)
    outcome = pipeline.outcome()
    assert (outcome.verdict, outcome.findings) == ("incomplete", [])
    assert ["never counted" in item.reason for item in outcome.incomplete] == [True]


def test_what_the_copy_lacks_after_a_change_is_found() -> None:
    pipeline = Pipeline()
    pipeline.open("p")
    for _ in range(1000):
        pipeline.send("p")
    change(pipeline, {EVENTS: "headers"})
    by_headers(pipeline, 20, offline=False)
    (item,) = [item for item in pipeline.outcome().findings if item.hop == "live_to_offline"]
    assert (item.kind, item.first_offset, item.last_offset) == ("loss", 1000, 1000)


def test_events_of_a_topic_by_headers_are_nobodys_matter() -> None:
    pipeline = Pipeline()
    change(pipeline, {EVENTS: "headers"})
    pipeline.offsets[EVENTS] = 0
    by_headers(pipeline, 20)
    pipeline.open("p")
    pipeline.ledger.on_loaded(SourcePartition(DATACENTER, EVENTS, 0), 0, 20, pipeline.now_ms)
    pipeline.pass_time(60_000)
    outcome = pipeline.outcome()
    assert (outcome.verdict, outcome.topics, pipeline.ledger.accounts) == ("complete", {}, {})
