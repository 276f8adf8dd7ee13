"""What the ledger must say of a pipeline whose faults are known, by kinds of seeds."""

from __future__ import annotations

import math
from collections import Counter

from audit_simulation import (
    HEARD_MS,
    WINDOW_MS,
    Pipeline,
    accept_losses,
    faults_of,
    found_faults,
    found_late,
    found_overdue,
    run,
    seen_faults,
)

from headrace.audit.judging import reconcile
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.period import Period
from headrace.audit.windows import Stream


def check(seed: int) -> None:
    pipeline, ledger, outcome = run(seed)
    assert found_faults(outcome) == pipeline.expected
    assert found_late(outcome) == arrived_late(pipeline)
    kinds = {kind for kind, _, _ in pipeline.expected}
    assert outcome.verdict == ("loss" if "loss" in kinds else "duplicates" if kinds else "complete")
    assert sum(counts.produced for counts in outcome.topics.values()) == pipeline.acknowledged
    assert ledger.latencies.histogram("producer_to_live").max_ms == slowest_acknowledgement(pipeline)
    assert ledger.latencies.histogram("end_to_end").count == sum(map(len, pipeline.rows.values()))


def check_holes(seed: int) -> None:
    pipeline, _, outcome = run(seed, blind=True)
    found = found_faults(outcome)
    for fault, sequences in seen_faults(pipeline).items():
        assert sequences <= found.get(fault, Counter()), fault
    if pipeline.holes and not found:
        assert outcome.verdict == "incomplete"


def check_odd(seed: int) -> None:
    """Producers send what is older than they promised, and are killed: late by window, and unknown by producer."""
    pipeline, ledger, outcome = run(seed, odd=True)
    assert found_faults(outcome) == pipeline.expected
    assert found_overdue(outcome) == pipeline.overdue
    open_ones = {
        (item.datacenter, item.topic, item.producer) for item in outcome.incomplete if "silent" in item.reason
    }
    assert open_ones == set(map(tuple, pipeline.killed))
    begin_ms = min(pipeline.times.values()) + seed % 20 * 1000
    period = Period(begin_ms, begin_ms + 15_000)
    part = found_faults(reconcile.reconcile(ledger, HEARD_MS, period=period))
    for fault, sequences in faults_of(pipeline, period).items():
        assert sequences <= part.get(fault, Counter()), fault
    for fault, sequences in part.items():
        assert sequences <= pipeline.expected[fault], fault


def check_aged(seed: int) -> None:
    """What is settled on the way is found as if it were open, and nothing stays open."""
    pipeline, ledger, outcome = run(seed, stumbling=False, aged=True)
    assert found_faults(outcome) == pipeline.expected
    kinds = {kind for kind, _, _ in pipeline.expected}
    assert outcome.verdict == ("loss" if "loss" in kinds else "duplicates" if kinds else "complete")
    assert sum(counts.produced for counts in outcome.topics.values()) == pipeline.acknowledged
    for key, facts in ledger.facts.topics.items():
        assert sum(item.live for item in facts.windows.values()) == outcome.topics[key].live
        assert sum(item.lost for item in facts.windows.values()) == outcome.topics[key].lost
    for stream, at in known_losses(pipeline):
        until_ms = outcome.watermarks[stream.datacenter, stream.topic]
        assert until_ms <= pipeline.times[stream, at], f"{stream} {at} is lost below {until_ms}"
    check_accepted(pipeline, ledger)
    assert not any((ledger.streams(), ledger.copies.folded, ledger.accounts, ledger.windows, ledger.waiting))


def known_losses(pipeline: Pipeline) -> set[tuple[Stream, int]]:
    """Return the lost events that are accounted for."""
    return {
        (stream, at)
        for (kind, _, stream), found in pipeline.expected.items()
        if kind == "loss"
        for at in found
    } & pipeline.accounted


def check_told(seed: int) -> None:
    pipeline, ledger, _ = run(seed, odd=True, told=True)
    check_accepted(pipeline, ledger)


def check_accepted(pipeline: Pipeline, ledger: Ledger) -> None:
    """Once all losses are accepted, none holds the watermark of its topic, nor does an acceptance change a verdict."""
    before = reconcile.reconcile(ledger, HEARD_MS)
    accept_losses(pipeline, ledger)
    outcome = reconcile.reconcile(ledger, HEARD_MS)
    assert (outcome.verdict, outcome.findings) == (before.verdict, before.findings)
    for stream, at in pipeline.accepted & pipeline.accounted:
        if pipeline.times[stream, at] >= last_account_ms(pipeline, stream):
            continue
        until_ms = outcome.watermarks[stream.datacenter, stream.topic]
        assert pipeline.times[stream, at] < until_ms, f"{stream} {at} is accepted and holds {until_ms}"


def last_account_ms(pipeline: Pipeline, stream: Stream) -> float:
    """The window of a killed producer's last account: nobody knows what else was in it, so no watermark passes it."""
    if stream not in pipeline.killed:
        return math.inf
    last_ms = max(pipeline.times[known] for known in pipeline.accounted if known[0] == stream)
    return last_ms - last_ms % WINDOW_MS


def arrived_late(pipeline: Pipeline) -> dict[object, str]:
    """What came late and has a row: only what arrived can be late."""
    rows = {(event.stream, event.sequence) for rows in pipeline.rows.values() for _, event in rows}
    return {key: hop for key, hop in pipeline.late.items() if key in rows}


def slowest_acknowledgement(pipeline: Pipeline) -> int:
    rows = {(event.stream, event.sequence) for rows in pipeline.rows.values() for _, event in rows}
    return max((delay for key, delay in pipeline.delays.items() if key in rows), default=0)
