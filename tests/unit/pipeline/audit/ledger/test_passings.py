"""What the load was told to pass over is lost where it was counted, and never on its way for ever."""

from __future__ import annotations

import json

import numpy as np

from headrace.audit.judging.reconcile import reconcile
from headrace.audit.latency import SourcePartition
from headrace.audit.ledger import state
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.ledger.passings import Passed
from headrace.audit.outcome import Outcome
from headrace.audit.records import Counted, CounterTier, Standstill
from headrace.audit.report import as_json
from headrace.audit.windows import Tally, tally
from headrace.audit.wording import fault
from headrace.broker.wire.partitions import TopicPartition

PLACE = SourcePartition("dc-east", "pageviews", 0)
NOW = 1_700_000_000_000
TIERS: tuple[CounterTier, ...] = ("live", "offline")


def tallies(first: int, following: int) -> tuple[Tally, ...]:
    sequence = np.arange(first, following, dtype=np.int64)
    nobody = np.zeros(len(sequence), dtype=np.intp)
    return tuple(tally(["p"], nobody, np.full(len(sequence), NOW), sequence, 10_000))


def count(ledger: Ledger, first: int, following: int, *tiers: CounterTier) -> None:
    """Count one event an offset, whose sequence is its offset, in both tiers if none is named."""
    for tier in tiers or TIERS:
        record = Counted(
            tier=tier,
            datacenter="dc-east" if tier == "live" else "offline",
            partition=TopicPartition("pageviews" if tier == "live" else "dc-east.pageviews", 0),
            first=first,
            next=following,
            tallies=tallies(first, following),
            at_ms=NOW,
        )
        ledger.on_count(record)


def load(ledger: Ledger, first: int, following: int) -> None:
    ledger.on_loaded(PLACE, first, following, NOW)
    ledger.on_file("pageviews", f"file-{first}", [(PLACE, first, following, tallies(first, following))])


def passed(first: int, following: int, kind: str = "retention", life: int = 0) -> Passed:
    return Passed(PLACE, first, following, kind, "they were gone", life, NOW + 1000)


def judged(ledger: Ledger) -> Outcome:
    """Judge the ledger, and one that was saved and loaded again, which has to say the same."""
    ledger.settle(NOW)
    again = state.from_json(json.loads(json.dumps(state.as_json(ledger))))
    outcome = reconcile(ledger, NOW)
    assert reconcile(again, NOW) == outcome
    return outcome


def hop(outcome: Outcome) -> tuple[int, int, int]:
    counts = outcome.hops["dc-east", "pageviews", "offline_to_warehouse"]
    return counts.lost, counts.under_way, counts.unknown


def test_counted_events_that_were_passed_over_are_lost_with_the_reason() -> None:
    ledger = Ledger()
    for first in range(0, 100, 20):
        count(ledger, first, first + 20)
    load(ledger, 0, 40)
    assert hop(judged(ledger)) == (0, 60, 0)
    ledger.on_passed(passed(40, 60))
    load(ledger, 60, 100)
    outcome = judged(ledger)
    assert hop(outcome) == (20, 0, 0)
    (loss,) = (item for item in outcome.findings if item.kind == "loss")
    assert (loss.first_sequence, loss.last_sequence, loss.count) == (40, 59, 20)
    assert (loss.partition, loss.first_offset, loss.last_offset) == (0, 40, 59)
    assert "retention: they were gone" in loss.reason
    assert outcome.verdict == "loss"
    (row,) = (item for item in as_json(outcome, ledger, NOW)["findings"] if item["kind"] == "loss")
    assert "20 events of pageviews in dc-east" in fault(row)
    assert "sequences 40 to 59; offsets 40 to 59 of partition 0: the load was told to pass over" in fault(row)
    assert "producer p" in fault(row)


def test_events_at_the_end_are_lost_although_nothing_is_loaded_behind_them() -> None:
    ledger = Ledger()
    count(ledger, 0, 40)
    count(ledger, 40, 60)
    load(ledger, 0, 40)
    ledger.on_passed(passed(40, 60, "corruption"))
    ledger.on_passed(passed(40, 60, "corruption"))
    assert hop(judged(ledger)) == (20, 0, 0)


def test_another_loss_beside_them_has_no_reason() -> None:
    ledger = Ledger()
    count(ledger, 0, 40)
    count(ledger, 40, 60)
    load(ledger, 0, 30)
    ledger.on_loaded(PLACE, 30, 40, NOW)
    ledger.on_passed(passed(40, 60))
    losses = [item for item in judged(ledger).findings if item.kind == "loss"]
    assert [(item.first_sequence, bool(item.reason)) for item in losses] == [(40, True), (30, False)]


def test_what_was_never_counted_is_unknown_and_not_on_its_way() -> None:
    ledger = Ledger()
    count(ledger, 0, 40)
    load(ledger, 0, 40)
    ledger.on_passed(passed(40, 60))
    gone = Standstill(
        tier="offline",
        datacenter="offline",
        partition=TopicPartition("dc-east.pageviews", 0),
        first=40,
        next=60,
        reason="gone",
        at_ms=NOW,
    )
    outcome = judged(ledger)
    assert hop(outcome) == (0, 0, 0)
    assert any(
        "40 to 59 of partition 0, which are not all counted" in item.reason for item in outcome.incomplete
    )
    ledger.on_count(gone)
    count(ledger, 40, 60, "live")
    outcome = judged(ledger)
    assert hop(outcome) == (0, 0, 0)
    assert outcome.verdict == "incomplete"
    assert any(
        "40 to 59 of partition 0, which are not all counted" in item.reason for item in outcome.incomplete
    )


def test_a_partition_that_uses_offsets_again_is_named_and_not_judged() -> None:
    ledger = Ledger()
    count(ledger, 0, 40)
    load(ledger, 0, 40)
    count(ledger, 40, 60)
    ledger.on_passed(passed(40, 0, "recreation", 1))
    ledger.on_loaded(PLACE, 0, 10, NOW + 2000)
    ledger.on_file("pageviews", "new", [(PLACE, 0, 10, tallies(1000, 1010))])
    outcome = judged(ledger)
    lost, under_way, unknown = hop(outcome)
    assert (lost, under_way) == (0, 0)
    assert unknown == 30
    (finding,) = outcome.findings
    assert (finding.kind, finding.hop, finding.partition) == ("recreation", "offline_to_warehouse", 0)
    assert "go on at offset 0 of another log: they were gone" in finding.reason
    assert outcome.verdict == "incomplete"
