"""Up to when everything is whole: who holds the watermark, who no longer does, and what comes after it."""

from __future__ import annotations

import json

import pytest
from audit_pipeline import ACCOUNTS, DATACENTER, NOW, TOPIC, WINDOW_MS, Pipeline

from headrace.audit.acceptances import accepted
from headrace.audit.judging.book import Book
from headrace.audit.judging.settling import SETTLED_AFTER_MS, STEP_MS, settle
from headrace.audit.judging.watermark import SILENT_AFTER_MS
from headrace.audit.ledger import facts, state
from headrace.audit.ledger.facts import TopicFacts
from headrace.audit.outcome import Finding, Incomplete, Loss, Outcome
from headrace.audit.period import END_MS, Period
from headrace.broker.wire.partitions import TopicPartition

PLACE = (DATACENTER, TOPIC)
SILENT_MS = SILENT_AFTER_MS + 2 * WINDOW_MS


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline()


def reasons_of(outcome: Outcome, producer: str) -> list[Incomplete]:
    return [item for item in outcome.incomplete if item.producer == producer]


def killed_beside_another(pipeline: Pipeline) -> None:
    """Two producers send; one is killed after its event at 12 s, before it is accounted."""
    for name in ("killed", "alive"):
        pipeline.open(name)
        pipeline.send(name)
    pipeline.pass_time(12_000)
    pipeline.send("killed")
    pipeline.send("alive")
    pipeline.pass_time(WINDOW_MS, kill=("killed",))


def test_a_killed_producer_holds_the_watermark_until_it_was_silent_for_the_stated_time(
    pipeline: Pipeline,
) -> None:
    killed_beside_another(pipeline)
    assert pipeline.outcome().complete_until == NOW + WINDOW_MS
    pipeline.pass_time(SILENT_MS)
    outcome = pipeline.outcome()
    assert outcome.complete_until == (pipeline.now_ms - 1000) // WINDOW_MS * WINDOW_MS
    assert pipeline.outcome(silent_after_ms=2 * SILENT_MS).complete_until == NOW + WINDOW_MS


def test_the_last_windows_of_a_killed_producer_stay_unknown_and_others_are_whole(pipeline: Pipeline) -> None:
    killed_beside_another(pipeline)
    pipeline.pass_time(SILENT_MS)
    pipeline.close("alive")
    outcome = pipeline.outcome()
    (item,) = reasons_of(outcome, "killed")
    assert "went silent" in item.reason
    assert "1 of its events are in no account" in item.reason
    assert item.period.since_ms == NOW + WINDOW_MS
    assert item.period.until_ms <= NOW + 5 * WINDOW_MS
    assert outcome.verdict == "incomplete"
    before, after = Period(NOW, NOW + WINDOW_MS), Period(item.period.until_ms, pipeline.now_ms + 1)
    assert [pipeline.outcome(period=period).verdict for period in (before, after)] == ["complete", "complete"]
    assert pipeline.outcome(period=Period(NOW, NOW + WINDOW_MS + 1)).verdict == "incomplete"


def test_the_windows_that_a_living_producer_has_promised_are_complete(pipeline: Pipeline) -> None:
    pipeline.open("alive")
    pipeline.send("alive")
    pipeline.pass_time(3 * WINDOW_MS)
    until_ms = pipeline.outcome().complete_until
    assert until_ms == NOW + 2 * WINDOW_MS
    assert pipeline.outcome(period=Period(NOW, until_ms)).verdict == "complete"
    assert pipeline.outcome(period=Period(NOW, until_ms + 1)).verdict == "incomplete"


def test_a_producer_that_opened_and_was_never_heard_again_is_named(pipeline: Pipeline) -> None:
    pipeline.open("opened")
    pipeline.open("alive")
    pipeline.send("alive")
    pipeline.pass_time(WINDOW_MS, kill=("opened",))
    pipeline.pass_time(SILENT_MS)
    pipeline.close("alive")
    outcome = pipeline.outcome()
    (item,) = reasons_of(outcome, "opened")
    assert "went silent" in item.reason
    assert item.period.since_ms == NOW
    assert outcome.verdict == "incomplete"


def test_nobody_is_silent_while_accounts_are_not_read(pipeline: Pipeline) -> None:
    """A mirror of the accounts that stands still must not let the watermark pass producers that are well."""
    killed_beside_another(pipeline)
    pipeline.books.clear()
    for _ in range(200):
        pipeline.now_ms += SILENT_AFTER_MS
        pipeline.barrier(unread=1)
    outcome = pipeline.outcome()
    assert outcome.complete_until == NOW + WINDOW_MS
    assert all("has not closed" in item.reason for item in outcome.incomplete)


def test_nobody_is_silent_while_accounts_have_no_leader(pipeline: Pipeline) -> None:
    killed_beside_another(pipeline)
    pipeline.books.clear()
    pipeline.ledger.read[TopicPartition(ACCOUNTS.topic, 1)] = 0
    pipeline.now_ms += SILENT_MS
    pipeline.barrier()
    assert pipeline.outcome().complete_until == NOW + WINDOW_MS


def test_events_without_accounts_hold_the_watermark_for_the_stated_time_only(pipeline: Pipeline) -> None:
    pipeline.open("alive")
    pipeline.pass_time(3 * WINDOW_MS)
    foreign_ms = pipeline.now_ms
    pipeline.arrive("foreign", 0, time_ms=foreign_ms)
    pipeline.pass_time(3 * WINDOW_MS)
    assert pipeline.outcome().complete_until == foreign_ms
    pipeline.pass_time(SILENT_MS)
    outcome = pipeline.outcome()
    assert (outcome.complete_until or 0) > foreign_ms + SILENT_AFTER_MS
    (item,) = reasons_of(outcome, "foreign")
    assert item.period == Period(foreign_ms, foreign_ms + WINDOW_MS)


def test_a_topic_of_foreign_clients_alone_leaves_the_overall_watermark_to_the_others(
    pipeline: Pipeline,
) -> None:
    pipeline.open("alive")
    pipeline.send("alive")
    pipeline.arrive("foreign", 0, "other", time_ms=pipeline.now_ms)
    pipeline.pass_time(SILENT_MS)
    watermarks = pipeline.outcome().watermarks
    assert (DATACENTER, "other") not in watermarks
    assert watermarks["", ""] == watermarks[PLACE] > NOW + SILENT_AFTER_MS


def test_each_topic_has_its_own_watermark_and_an_idle_one_holds_nobody_back(pipeline: Pipeline) -> None:
    pipeline.open("idle", "other")
    pipeline.send("idle", "other")
    pipeline.pass_time(WINDOW_MS)
    pipeline.close("idle", "other")
    pipeline.open("alive")
    pipeline.send("alive")
    pipeline.pass_time(5 * WINDOW_MS)
    watermarks = pipeline.outcome().watermarks
    assert watermarks[DATACENTER, "other"] == NOW + WINDOW_MS
    assert watermarks[PLACE] == watermarks["", ""] == NOW + 5 * WINDOW_MS


def test_what_one_topic_lost_holds_that_topic_and_the_overall_watermark(pipeline: Pipeline) -> None:
    for topic in (TOPIC, "other"):
        pipeline.open("p", topic)
        pipeline.send("p", topic)
    pipeline.pass_time(WINDOW_MS)
    pipeline.send("p", tiers=("live",))
    pipeline.pass_time(5 * WINDOW_MS)
    watermarks = pipeline.outcome().watermarks
    assert watermarks[PLACE] == watermarks["", ""] == NOW + WINDOW_MS
    assert watermarks[DATACENTER, "other"] > NOW + 4 * WINDOW_MS


def accept(pipeline: Pipeline, *items: Finding) -> None:
    for item in items:
        pipeline.ledger.acceptances.take(accepted(item, by="ada", reason="disk lost", at_ms=NOW))


def losses_in(pipeline: Pipeline, *windows: int) -> list[Finding]:
    """Let an event be lost in each of these windows; a loss a window."""
    pipeline.open("p")
    for window in range(10):
        pipeline.send("p", tiers=("live",) if window in windows else ("live", "offline", "warehouse"))
        pipeline.pass_time(WINDOW_MS)
    return [item for item in pipeline.outcome().findings if item.kind == "loss"]


def test_the_watermark_goes_on_behind_a_loss_that_is_accepted(pipeline: Pipeline) -> None:
    first, second = losses_in(pipeline, 2, 5)
    assert pipeline.outcome().complete_until == NOW + 2 * WINDOW_MS
    accept(pipeline, second)
    assert pipeline.outcome().complete_until == NOW + 2 * WINDOW_MS
    accept(pipeline, first)
    outcome = pipeline.outcome()
    assert outcome.complete_until == NOW + 9 * WINDOW_MS
    assert outcome.verdict == "loss"


def test_a_loss_that_has_grown_holds_the_watermark(pipeline: Pipeline) -> None:
    pipeline.open("p")
    pipeline.send("p", tiers=("live",))
    accept(pipeline, *pipeline.outcome().findings)
    pipeline.send("p", tiers=("live",))
    pipeline.pass_time(3 * WINDOW_MS)
    assert pipeline.outcome().complete_until == NOW


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_settled_loss_holds_the_watermark_until_it_is_accepted(pipeline: Pipeline, is_saved: bool) -> None:
    first, second = losses_in(pipeline, 2, 5)
    for _ in range(2):
        pipeline.pass_time(SETTLED_AFTER_MS + 2 * STEP_MS)
        pipeline.ledger.settle(pipeline.now_ms)
        settle(pipeline.ledger, Book(), pipeline.now_ms)
    if is_saved:
        pipeline.ledger = state.from_json(json.loads(json.dumps(state.as_json(pipeline.ledger))))
    (facts,) = pipeline.ledger.facts.topics.values()
    assert len(facts.losses) == 2
    assert pipeline.outcome().complete_until == NOW + 2 * WINDOW_MS
    accept(pipeline, first)
    assert pipeline.outcome().complete_until == NOW + 5 * WINDOW_MS
    accept(pipeline, second)
    assert (pipeline.outcome().complete_until or 0) > NOW + SETTLED_AFTER_MS


def test_of_too_many_settled_losses_the_accepted_ones_make_room_and_others_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(facts, "LOSSES_MAX", 2)
    found = TopicFacts()
    losses = [Loss("live_to_offline", "p", at, at, 1, at * WINDOW_MS) for at in range(5)]
    found.hold(END_MS, losses[:3], lambda loss: loss.first == 0)
    assert (found.losses, found.unresolved_ms) == (losses[1:3], END_MS)
    found.hold(END_MS, losses[3:], lambda loss: False)
    assert (found.losses, found.unresolved_ms) == (losses[1:3], 3 * WINDOW_MS)
    scalars = json.loads(json.dumps(facts.scalars(found)))
    assert scalars["unresolved_ms"] == WINDOW_MS
    assert facts.with_scalars(scalars) == found
    of_before = {name: scalars[name] for name in scalars if "losses" not in name}
    assert facts.with_scalars(of_before).unresolved_ms == WINDOW_MS


def late(outcome: Outcome) -> list[tuple[int, int, int]]:
    return [
        (item.first_sequence, item.last_sequence, item.window_start)
        for item in outcome.findings
        if item.kind == "late"
    ]


def test_an_event_that_is_older_than_its_producer_promised_is_late_by_window_and_takes_nothing_back(
    pipeline: Pipeline,
) -> None:
    pipeline.open("p")
    pipeline.send("p")
    pipeline.pass_time(3 * WINDOW_MS)
    until_ms = pipeline.outcome().complete_until
    assert until_ms == NOW + 2 * WINDOW_MS
    pipeline.send("p", time_ms=until_ms)
    sequence = pipeline.send("p", time_ms=until_ms - 1)
    assert pipeline.outcome().complete_until == until_ms
    pipeline.send("p")
    pipeline.pass_time(3 * WINDOW_MS)
    outcome = pipeline.outcome()
    assert late(outcome) == [(sequence, sequence, NOW + WINDOW_MS)]
    assert outcome.complete_until == NOW + 5 * WINDOW_MS
    pipeline.close("p")
    assert pipeline.outcome().verdict == "complete"


@pytest.mark.parametrize("tiers", [("live",), ()])
def test_a_late_event_that_is_lost_is_a_loss_of_its_window_and_takes_nothing_back(
    pipeline: Pipeline, tiers: tuple[str, ...]
) -> None:
    pipeline.open("p")
    pipeline.pass_time(3 * WINDOW_MS)
    pipeline.send("p", time_ms=NOW, tiers=tiers)
    pipeline.pass_time(3 * WINDOW_MS)
    outcome = pipeline.outcome()
    assert outcome.verdict == "loss"
    assert outcome.complete_until == NOW + 5 * WINDOW_MS
    assert pipeline.outcome(period=Period(NOW, NOW + 1)).verdict == "loss"
    assert pipeline.outcome(period=Period(NOW + WINDOW_MS, NOW + 2 * WINDOW_MS)).verdict == "complete"


def test_an_account_that_is_published_again_makes_its_events_not_late(pipeline: Pipeline) -> None:
    """Its first try was lost, and a later account has promised more in between."""
    pipeline.open("p")
    book = pipeline.books["p", TOPIC]
    pipeline.send("p")
    (lost,) = book.finished(NOW + WINDOW_MS)
    pipeline.tell("p", TOPIC, book.finished(NOW + 2 * WINDOW_MS)[0])
    pipeline.tell("p", TOPIC, lost)
    pipeline.now_ms += 2 * WINDOW_MS
    pipeline.barrier()
    assert late(pipeline.outcome()) == []


def test_a_silent_producer_that_comes_back_is_late_against_what_was_told(pipeline: Pipeline) -> None:
    for name in ("frozen", "alive"):
        pipeline.open(name)
        pipeline.send(name)
    pipeline.pass_time(12_000)
    frozen = pipeline.books.pop(("frozen", TOPIC))
    pipeline.pass_time(SILENT_MS)
    told = pipeline.told()["", ""]
    assert told > NOW + SILENT_AFTER_MS
    pipeline.books["frozen", TOPIC] = frozen
    sequence = pipeline.send("frozen", time_ms=NOW + 12_000)
    pipeline.pass_time(2 * WINDOW_MS)
    outcome = pipeline.outcome()
    assert late(outcome) == [(sequence, sequence, NOW + WINDOW_MS)]
    assert (outcome.complete_until or 0) >= told


def test_a_watermark_that_was_told_stays_whatever_a_clock_that_is_behind_promises(pipeline: Pipeline) -> None:
    pipeline.open("p")
    pipeline.send("p")
    pipeline.pass_time(3 * WINDOW_MS)
    pipeline.close("p")
    told = dict(pipeline.told())
    pipeline.now_ms -= 2 * WINDOW_MS
    pipeline.open("behind")
    pipeline.send("behind")
    pipeline.pass_time(1000)
    assert pipeline.outcome().watermarks == told
