"""The producer's window accounts: every sequence is in exactly one, and what they promise holds."""

from __future__ import annotations

import io
import random

import pytest
from fastavro import schemaless_reader, schemaless_writer

from headrace.events.avro_schemas import parsed_schema
from headrace.events.envelope import Header
from headrace.events.fingerprint import MASK, fingerprint
from headrace.events.monitoring import (
    EVENTS_MAX,
    RANGES_MAX,
    Account,
    Acknowledgement,
    MonitoringEvent,
    Undelivered,
    WindowLedger,
    coalesce,
)

PRODUCER = "8f14e45f-ceea-467f-a0d6-1f3d9a3f2a11"
NOW = 1_700_000_000_000
WINDOW = 10_000


def new_ledger() -> WindowLedger:
    return WindowLedger(PRODUCER, window_size_ms=WINDOW, now_ms=NOW)


def test_a_window_is_accounted_once_it_is_over_and_settled() -> None:
    ledger = new_ledger()
    for sequence in range(3):
        ledger.on_sent(sequence, NOW + sequence)
    ledger.on_acknowledged(0, NOW, NOW + 5)
    ledger.on_acknowledged(1, NOW + 1, NOW + 5)
    assert ledger.finished(NOW + WINDOW - 1) == []
    late = ledger.finished(NOW + WINDOW)
    assert [account.kind for account in late] == ["heartbeat"], "sequence 2 is still on its way"
    assert late[0].complete_until == NOW
    ledger.on_acknowledged(2, NOW + 2, NOW + WINDOW + 7)
    [account] = ledger.finished(NOW + WINDOW + 8)
    assert account == Account(
        kind="window",
        window_start=NOW,
        window_size_ms=WINDOW,
        first_sequence=0,
        last_sequence=2,
        count=3,
        fingerprint=sum(fingerprint(PRODUCER, sequence) for sequence in range(3)) & MASK,
        undelivered=(),
        acknowledgements=(Acknowledgement(0, 1, NOW + 5), Acknowledgement(2, 2, NOW + WINDOW + 7)),
        complete_until=NOW + WINDOW + 8,
        next_sequence=3,
    )


def test_failed_and_unknown_sequences_are_named_with_their_reason_and_not_counted() -> None:
    ledger = new_ledger()
    for sequence in range(5):
        ledger.on_sent(sequence, NOW)
    ledger.on_failed(3, NOW, outcome="failed", reason="too large")
    ledger.on_failed(2, NOW, outcome="failed", reason="too large")
    ledger.on_failed(4, NOW, outcome="unknown", reason="timed out")
    ledger.on_acknowledged(0, NOW, NOW)
    ledger.on_acknowledged(1, NOW, NOW)
    [account] = ledger.finished(NOW + WINDOW)
    assert account.count == 2
    assert account.undelivered == (
        Undelivered(2, 3, "failed", "too large"),
        Undelivered(4, 4, "unknown", "timed out"),
    )
    assert (account.first_sequence, account.last_sequence) == (0, 4)


def test_an_idle_producer_gives_one_heartbeat_a_window_length() -> None:
    ledger = new_ledger()
    kinds = [[account.kind for account in ledger.finished(NOW + at)] for at in range(0, 3 * WINDOW + 1, 1000)]
    assert [kind for due in kinds for kind in due] == ["heartbeat"] * 3


def test_of_several_accounts_only_the_last_promises_completeness() -> None:
    ledger = new_ledger()
    for sequence, time_ms in enumerate((NOW, NOW + WINDOW)):
        ledger.on_sent(sequence, time_ms)
        ledger.on_acknowledged(sequence, time_ms, time_ms)
    first, second = ledger.finished(NOW + 2 * WINDOW)
    assert (first.complete_until, second.complete_until) == (0, NOW + 2 * WINDOW)


def test_the_closing_account_comes_last_and_names_the_total() -> None:
    ledger = new_ledger()
    ledger.on_sent(0, NOW)
    ledger.on_acknowledged(0, NOW, NOW)
    window, closing = ledger.closed(NOW + 1)
    assert (window.kind, window.count) == ("window", 1)
    assert (closing.kind, closing.count, closing.next_sequence) == ("closing", 0, 1)
    assert closing.complete_until == NOW + 1
    assert (closing.first_sequence, closing.last_sequence) == (0, -1)


def test_a_window_without_events_of_its_own_is_not_accounted() -> None:
    [closing] = new_ledger().closed(NOW)
    assert closing.kind == "closing"


@pytest.mark.parametrize("seed", range(20))
def test_accounts_add_up_to_what_was_sent_in_any_order_of_outcomes(seed: int) -> None:
    chance = random.Random(seed)
    ledger, now, accounts = new_ledger(), NOW, []
    waiting: list[tuple[int, int]] = []
    acknowledged, undelivered = set(), set()

    def settle() -> None:
        sequence, time_ms = waiting.pop(chance.randrange(len(waiting)))
        if chance.random() < 0.8:
            ledger.on_acknowledged(sequence, time_ms, now)
            acknowledged.add(sequence)
        else:
            ledger.on_failed(sequence, time_ms, outcome="failed", reason=chance.choice("ab"))
            undelivered.add(sequence)

    for sequence in range(4000):
        now += chance.choice((0, 0, 1, 30))
        time_ms = now - chance.choice((0, 0, 0, 25_000))
        ledger.on_sent(sequence, time_ms)
        waiting.append((sequence, time_ms))
        if len(waiting) > 50:
            settle()
        accounts += ledger.finished(now)
    while waiting:
        settle()
    assert ledger.pending == 0
    accounts += ledger.closed(now)

    assert sum(account.count for account in accounts) == len(acknowledged)
    expected = sum(fingerprint(PRODUCER, sequence) for sequence in acknowledged) & MASK
    assert sum(account.fingerprint for account in accounts) & MASK == expected
    runs = [run for account in accounts for run in account.acknowledgements]
    assert sorted(at for run in runs for at in range(run[0], run[1] + 1)) == sorted(acknowledged)
    ranges = [entry for account in accounts for entry in account.undelivered]
    assert sorted(at for entry in ranges for at in range(entry[0], entry[1] + 1)) == sorted(undelivered)
    assert all(len(account.acknowledgements) <= RANGES_MAX for account in accounts)
    assert [account.kind for account in accounts].count("closing") == 1


def test_a_window_with_too_many_ranges_is_accounted_in_parts_while_it_goes_on() -> None:
    ledger = new_ledger()
    for sequence in range(3 * RANGES_MAX):
        ledger.on_sent(sequence, NOW)
    for sequence in range(0, 3 * RANGES_MAX, 2):
        ledger.on_failed(sequence, NOW, outcome="unknown", reason="timed out")
    parts = ledger.finished(NOW + 1)
    assert [len(part.undelivered) for part in parts] == [RANGES_MAX, RANGES_MAX // 2]
    assert {part.complete_until for part in parts} == {0, NOW}
    for sequence in range(1, 3 * RANGES_MAX, 2):
        ledger.on_acknowledged(sequence, NOW, NOW)
    rest = ledger.finished(NOW + WINDOW)
    assert sum(part.count for part in rest) == 3 * RANGES_MAX // 2


def test_a_window_with_very_many_events_is_accounted_in_parts_while_it_goes_on() -> None:
    ledger = new_ledger()
    for sequence in range(EVENTS_MAX + 2):
        ledger.on_sent(sequence, NOW)
        if sequence <= EVENTS_MAX:
            ledger.on_acknowledged(sequence, NOW, NOW + 1)
    [part] = ledger.finished(NOW + 1)
    assert (part.count, part.first_sequence, part.complete_until) == (EVENTS_MAX + 1, 0, NOW)
    assert ledger.pending == 1
    ledger.on_acknowledged(EVENTS_MAX + 1, NOW, NOW + 1)
    [rest, closing] = ledger.closed(NOW + 2)
    assert (rest.count, rest.first_sequence, closing.next_sequence) == (1, EVENTS_MAX + 1, EVENTS_MAX + 2)


def test_runs_join_across_small_differences_in_time_only_when_there_are_too_many() -> None:
    few = [Acknowledgement(1, 1, NOW + 1), Acknowledgement(0, 0, NOW)]
    assert coalesce(few) == [Acknowledgement(0, 0, NOW), Acknowledgement(1, 1, NOW + 1)]
    many = [Acknowledgement(at, at, NOW + at % 2) for at in range(3 * RANGES_MAX)]
    assert coalesce(many) == [Acknowledgement(0, 3 * RANGES_MAX - 1, NOW + 1)]


def test_a_joined_run_never_spans_more_time_than_the_granularity() -> None:
    slow = [Acknowledgement(at, at, NOW + at) for at in range(2 * RANGES_MAX)]
    joined = coalesce(slow)
    assert len(joined) <= RANGES_MAX
    assert max(run.last_sequence - run.first_sequence for run in joined) <= 2
    assert all(run.acknowledged_at == NOW + run.last_sequence for run in joined)


def test_a_monitoring_event_survives_avro() -> None:
    ledger = new_ledger()
    for sequence in range(9):
        ledger.on_sent(sequence, NOW)
        ledger.on_acknowledged(sequence, NOW, NOW + 3)
    ledger.on_sent(9, NOW)
    ledger.on_failed(9, NOW, outcome="unknown", reason="timed out")
    [account] = ledger.finished(NOW + WINDOW)
    event = MonitoringEvent(
        header=Header(NOW, "web-1", "shop", PRODUCER, 0),
        topic="pageviews",
        datacenter="dc-east",
        account=account,
    )
    buffer = io.BytesIO()
    schemaless_writer(buffer, parsed_schema("monitoring_event"), event.as_record())
    buffer.seek(0)
    record = schemaless_reader(buffer, parsed_schema("monitoring_event"), None)
    assert isinstance(record, dict)
    assert MonitoringEvent.from_record(record) == event
