"""What is settled: it becomes facts, says the same as before, and costs a round nothing."""

from __future__ import annotations

import json

import pytest
from audit_pipeline import DATACENTER, NOW, TOPIC, WINDOW_MS, Pipeline, tallies_of

from headrace.audit.judging.book import Book
from headrace.audit.judging.reconcile import reconcile
from headrace.audit.judging.settling import SETTLED_AFTER_MS, STEP_MS, settle
from headrace.audit.latency import SourcePartition
from headrace.audit.ledger import state
from headrace.audit.outcome import Outcome
from headrace.audit.period import Period
from headrace.audit.windows import AGAIN, Stream

SETTLED_MS = SETTLED_AFTER_MS + 2 * STEP_MS
SILENT_MS = 100_000


class Rounds:
    """A pipeline with an auditor that goes round."""

    def __init__(self) -> None:
        self.pipeline = Pipeline()
        self.book = Book()
        self.settled = 0

    def round(self) -> Outcome:
        ledger, now_ms = self.pipeline.ledger, self.pipeline.now_ms
        ledger.settle(now_ms)
        self.settled = settle(ledger, self.book, now_ms, SILENT_MS)
        outcome = reconcile(ledger, now_ms, silent_after_ms=SILENT_MS, book=self.book)
        assert outcome == reconcile(ledger, now_ms, silent_after_ms=SILENT_MS)
        return outcome

    def age(self) -> Outcome:
        """Let so much time pass that all that is closed is settled."""
        for _ in range(2):
            self.pipeline.pass_time(SETTLED_MS)
            self.round()
        return self.round()

    def live_once(self, name: str, events: int = 3) -> None:
        """Let a producer live: it opens, publishes and closes."""
        self.pipeline.open(name)
        for _ in range(events):
            self.pipeline.send(name)
            self.pipeline.now_ms += 100
        self.pipeline.close(name)


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


def counted(outcome: Outcome) -> tuple[int, ...]:
    counts = outcome.topics[DATACENTER, TOPIC]
    return counts.produced, counts.live, counts.offline, counts.warehouse, counts.lost, counts.duplicated


def test_what_is_settled_leaves_the_ledger_and_says_the_same(rounds: Rounds) -> None:
    pipeline = rounds.pipeline
    pipeline.open("p")
    pipeline.send("p")
    pipeline.send("p", tiers=("live",))
    pipeline.arrive("p", 0, time_ms=pipeline.now_ms)
    pipeline.close("p")
    before = rounds.round()
    after = rounds.age()
    ledger = pipeline.ledger
    assert not any((ledger.streams(), ledger.copies.folded, ledger.accounts, ledger.windows))
    assert (counted(before), before.findings, before.verdict) == (
        counted(after),
        after.findings,
        after.verdict,
    )
    assert counted(after) == (2, 3, 2, 2, 1, 1)
    start = NOW - NOW % WINDOW_MS
    assert ledger.facts.topics[DATACENTER, TOPIC].windows[start].lost == 1
    assert after.complete_until == before.complete_until == start


def test_a_producer_that_lives_on_keeps_its_last_windows_only(rounds: Rounds) -> None:
    pipeline = rounds.pipeline
    pipeline.open("p")
    for _ in range(40):
        pipeline.send("p")
        pipeline.pass_time(3 * WINDOW_MS)
        outcome = rounds.round()
    stream = Stream(DATACENTER, TOPIC, "p")
    assert 20 <= len(pipeline.ledger.windows[stream]) <= 25
    assert len(pipeline.ledger.facts.topics[DATACENTER, TOPIC].windows) >= 15
    assert counted(outcome) == (40, 40, 40, 40, 0, 0)
    assert outcome.complete_until == pipeline.now_ms - pipeline.now_ms % WINDOW_MS - WINDOW_MS
    pipeline.close("p")
    assert (counted(rounds.age()), rounds.round().verdict) == ((40, 40, 40, 40, 0, 0), "complete")


def test_a_round_touches_what_changed_and_nothing_that_is_settled(rounds: Rounds) -> None:
    for number in range(300):
        rounds.live_once(f"gone-{number}", 1)
    rounds.pipeline.open("idle")
    rounds.pipeline.send("idle")
    rounds.age()
    rounds.live_once("new")
    rounds.round()
    assert rounds.book.touched <= 2
    assert rounds.pipeline.ledger.streams() == {Stream(DATACENTER, TOPIC, name) for name in ("idle", "new")}
    rounds.round()
    assert (rounds.book.touched, rounds.settled) == (0, 0)
    assert counted(rounds.round())[:4] == (304, 304, 304, 304)


def test_what_is_open_is_judged_again_only_where_something_new_is_known_of_it(rounds: Rounds) -> None:
    pipeline = rounds.pipeline
    for number in range(20):
        rounds.live_once(f"done-{number}")
        if number >= 18:
            rounds.round()
    rounds.live_once("new")
    pipeline.ledger.settle(pipeline.now_ms)
    rounds.book.follow(pipeline.ledger)
    assert rounds.book.touched == 1
    # Counted ranges of all of them are folded.
    pipeline.now_ms += SETTLED_AFTER_MS
    pipeline.ledger.settle(pipeline.now_ms)
    assert len(pipeline.ledger.copies.folded) == 3 * 21
    rounds.book.follow(pipeline.ledger)
    assert rounds.book.touched == 0


def test_what_a_tier_turns_out_not_to_have_is_judged_again(rounds: Rounds) -> None:
    pipeline = rounds.pipeline
    for name in ("p", "r"):
        rounds.live_once(name)
        rounds.round()
    found = tallies_of("q", pipeline.now_ms, 0)
    pipeline.ledger.on_count(pipeline._counted("live", TOPIC, pipeline.offsets[TOPIC], found))
    assert rounds.round().topics[DATACENTER, TOPIC].lost == 0
    pipeline.ledger.on_count(pipeline._counted("offline", TOPIC, pipeline.offsets[TOPIC], ()))
    outcome = rounds.round()
    assert outcome.topics[DATACENTER, TOPIC].lost == 1
    assert [(item.kind, item.hop) for item in outcome.findings] == [("loss", "live_to_offline")]


def test_a_further_copy_is_a_finding_of_the_window_in_which_it_came(rounds: Rounds) -> None:
    pipeline = rounds.pipeline
    rounds.live_once("p")
    assert rounds.age().verdict == "complete"
    pipeline.arrive("p", 1, time_ms=NOW)
    pipeline.barrier()
    outcome = rounds.round()
    [finding] = outcome.findings
    assert (finding.kind, finding.hop, finding.first_sequence, finding.count) == (
        "duplicate",
        "producer_to_live",
        1,
        1,
    )
    assert finding.window_start == pipeline.now_ms - pipeline.now_ms % WINDOW_MS
    assert "settled" in finding.reason
    assert finding.stream.producer == "p"
    settled = Period(NOW - WINDOW_MS, NOW + WINDOW_MS)
    assert reconcile(pipeline.ledger, pipeline.now_ms, period=settled).verdict == "complete"
    after = rounds.age()
    assert (after.findings, after.verdict) == ([finding], "duplicates")
    assert Stream(DATACENTER, TOPIC, "p" + AGAIN) not in pipeline.ledger.streams()


def test_a_further_copy_that_the_mirror_loses_is_lost(rounds: Rounds) -> None:
    rounds.live_once("p")
    rounds.age()
    rounds.pipeline.arrive("p", 1, time_ms=NOW, tiers=("live",))
    rounds.pipeline.barrier()
    assert {(item.kind, item.hop) for item in rounds.round().findings} == {
        ("duplicate", "producer_to_live"),
        ("loss", "live_to_offline"),
    }


def test_what_was_told_of_settled_windows_may_be_told_again(rounds: Rounds) -> None:
    pipeline = rounds.pipeline
    pipeline.open("p")
    pipeline.send("p")
    books = dict(pipeline.books)
    accounts = books["p", TOPIC].closed(pipeline.now_ms)
    del pipeline.books["p", TOPIC]
    for _ in range(2):
        for account in accounts:
            pipeline.tell("p", TOPIC, account)
        pipeline.barrier()
        outcome = rounds.age()
        assert (counted(outcome), outcome.verdict) == ((1, 1, 1, 1, 0, 0), "complete")


def test_a_silent_producer_is_settled_and_comes_back(rounds: Rounds) -> None:
    pipeline = rounds.pipeline
    pipeline.open("p")
    pipeline.send("p")
    pipeline.pass_time(2 * WINDOW_MS)
    book = pipeline.books.pop(("p", TOPIC))
    outcome = rounds.age()
    assert not pipeline.ledger.accounts
    [reason] = outcome.incomplete
    assert "went silent" in reason.reason
    pipeline.books["p", TOPIC] = book
    pipeline.send("p")
    pipeline.close("p")
    after = rounds.age()
    assert (counted(after)[:4], after.findings, after.incomplete) == ((2, 2, 2, 2), [], [reason])


def test_a_table_that_is_counted_anew_leaves_what_is_settled(rounds: Rounds) -> None:
    pipeline = rounds.pipeline
    rounds.live_once("p")
    pipeline.open("q")
    pipeline.send("q")
    rounds.age()
    ledger = pipeline.ledger
    files = [(TOPIC, path) for path in ledger.files[TOPIC]]
    ledger.forget_warehouse()
    place = SourcePartition(DATACENTER, TOPIC, 0)
    rows = [("p", 0), ("p", 1), ("p", 2), ("q", 0)]
    for (table, path), (offset, (producer, sequence)) in zip(files, enumerate(rows), strict=True):
        time_ms = NOW + 100 * min(offset, 3)
        ledger.on_file(table, path, [(place, offset, offset + 1, tallies_of(producer, time_ms, sequence))])
    outcome = rounds.round()
    assert (counted(outcome), outcome.findings) == ((4, 4, 4, 4, 0, 0), [])


def test_nothing_is_settled_while_a_neighbour_is_behind(rounds: Rounds) -> None:
    pipeline = rounds.pipeline
    pipeline.open("p")
    pipeline.send("p", tiers=("live", "offline"))
    pipeline.ledger.reach.loaded.clear()
    pipeline.close("p")
    outcome = rounds.age()
    assert (pipeline.ledger.facts.until_ms(DATACENTER, TOPIC), outcome.verdict) == (NOW, "incomplete")
    pipeline.ledger.on_loaded(SourcePartition(DATACENTER, TOPIC, 0), 0, 1, pipeline.now_ms)
    outcome = rounds.age()
    assert pipeline.ledger.facts.until_ms(DATACENTER, TOPIC) > NOW
    assert counted(outcome) == (1, 1, 1, 0, 1, 0)


def test_nothing_is_settled_before_the_accounts_are_read(rounds: Rounds) -> None:
    pipeline = rounds.pipeline
    rounds.live_once("p")
    pipeline.now_ms += SETTLED_MS
    pipeline.barrier(unread=1)
    rounds.round()
    assert pipeline.ledger.facts.until_ms(DATACENTER, TOPIC) <= NOW
    pipeline.barrier()
    rounds.round()
    assert pipeline.ledger.facts.until_ms(DATACENTER, TOPIC) > NOW


def test_a_saved_ledger_knows_what_is_settled(rounds: Rounds) -> None:
    rounds.live_once("p")
    rounds.pipeline.open("q")
    rounds.pipeline.send("q")
    before = rounds.age()
    saved = state.from_json(json.loads(json.dumps(state.as_json(rounds.pipeline.ledger))))
    assert state.as_json(saved) == state.as_json(rounds.pipeline.ledger)
    after = reconcile(saved, rounds.pipeline.now_ms, silent_after_ms=SILENT_MS)
    assert (after.topics, after.findings, after.watermarks) == (
        before.topics,
        before.findings,
        before.watermarks,
    )


def test_a_ledger_of_the_version_before_is_read(rounds: Rounds) -> None:
    rounds.live_once("p")
    rounds.round()
    fields = json.loads(json.dumps(state.as_json(rounds.pipeline.ledger)))
    for name in ("facts", "recounted"):
        del fields[name]
    for *_, entry in fields["accounts"]:
        del entry["settled"]
    fields["coverage"] = [[*item[:-1], item[-1][:4]] for item in fields["coverage"]]
    rounds.pipeline.ledger = state.from_json({**fields, "version": 4})
    outcome = rounds.age()
    assert (counted(outcome), outcome.verdict) == ((3, 3, 3, 3, 0, 0), "complete")
    assert rounds.pipeline.ledger.facts.topics
