"""Two clusters are compared by their batch headers: what is complete, lost, too much, on its way, and not comparable."""

from __future__ import annotations

import pytest
from batch_kit import DATACENTER, NOW, TOPIC, Clicks, batch, batches

from headrace.audit.ledger.batch_judge import COMPACTED, REWRITTEN, UNEVEN
from headrace.audit.outcome import Outcome
from headrace.audit.period import Period
from headrace.audit.windows import WINDOW_SIZE_MS

WINDOW = NOW - NOW % WINDOW_SIZE_MS


@pytest.fixture
def clicks() -> Clicks:
    return Clicks()


def found(outcome: Outcome) -> list[tuple[str, str, int, int, int]]:
    return [
        (item.kind, item.hop, item.first_offset, item.last_offset, item.count) for item in outcome.findings
    ]


def only_reason(outcome: Outcome) -> str:
    (item,) = outcome.incomplete
    assert (item.datacenter, item.topic) == (DATACENTER, TOPIC)
    return item.reason


def test_equal_copies_are_complete_however_they_were_counted(clicks: Clicks) -> None:
    headers = batches(*range(0, 3000, 10))
    clicks.count("live", headers[:120])
    clicks.count("live", headers[120:])
    for at in range(0, 300, 75):
        clicks.count("offline", headers[at : at + 75])
    outcome = clicks.outcome()
    assert (outcome.verdict, outcome.findings, outcome.incomplete) == ("complete", [], [])
    row = outcome.batches[DATACENTER, TOPIC]
    assert (row.live.messages, row.live, row.verdict) == (3000, row.offline, "complete")


def test_a_batch_that_the_copy_lacks_is_a_loss_by_its_offsets_and_window(clicks: Clicks) -> None:
    headers = [
        *batches(0, 10),
        *batches(20, 30, time_ms=NOW + WINDOW_SIZE_MS),
        batch(40, time_ms=NOW + 50_000),
    ]
    clicks.count("live", headers)
    clicks.count("offline", [item for item in headers if item.base_offset not in (20, 30)])
    outcome = clicks.outcome()
    assert (outcome.verdict, found(outcome)) == ("loss", [("loss", "live_to_offline", 20, 39, 20)])
    (item,) = outcome.findings
    assert (item.window_start, item.window_end) == (WINDOW + WINDOW_SIZE_MS, WINDOW + 2 * WINDOW_SIZE_MS)
    assert (item.partition, outcome.batches[DATACENTER, TOPIC].lost) == (0, 20)


def test_a_loss_over_the_border_of_blocks_is_one_finding(clicks: Clicks) -> None:
    headers = batches(*range(0, 3000, 10))
    clicks.count("live", headers)
    clicks.count("offline", [item for item in headers if not 990 <= item.base_offset < 2010])
    assert found(clicks.outcome()) == [("loss", "live_to_offline", 990, 2009, 1020)]


def test_batches_that_only_the_copy_has_are_duplicates(clicks: Clicks) -> None:
    headers = batches(0, 10, 20)
    clicks.count("live", [headers[0], headers[2]])
    clicks.count("offline", headers)
    outcome = clicks.outcome()
    assert (outcome.verdict, found(outcome)) == (
        "duplicates",
        [("duplicate", "live_to_offline", 10, 19, 10)],
    )


def test_what_lies_beyond_the_copy_is_on_its_way_in_its_windows_alone(clicks: Clicks) -> None:
    headers = [*batches(0, 10), batch(20, time_ms=NOW + WINDOW_SIZE_MS)]
    clicks.count("live", headers)
    clicks.count("offline", headers[:2])
    outcome = clicks.outcome()
    assert (outcome.verdict, outcome.findings) == ("incomplete", [])
    assert only_reason(outcome) == "10 messages of partition 0 are on their way from live to offline"
    (item,) = outcome.incomplete
    assert item.period == (WINDOW + WINDOW_SIZE_MS, WINDOW + 2 * WINDOW_SIZE_MS)
    assert outcome.batches[DATACENTER, TOPIC].under_way == 10


def test_blocks_behind_both_are_judged_while_more_is_on_its_way(clicks: Clicks) -> None:
    headers = batches(*range(0, 1500, 10))
    clicks.count("live", headers)
    clicks.count("offline", [item for item in headers if item.base_offset != 500][:-1])
    assert found(clicks.outcome()) == [("loss", "live_to_offline", 500, 509, 10)]


def test_batches_that_were_written_anew_are_not_comparable(clicks: Clicks) -> None:
    clicks.count("live", batches(0, 10))
    clicks.count("offline", batches(0, 10, codec=4))
    outcome = clicks.outcome()
    assert (outcome.verdict, outcome.findings) == ("incomplete", [])
    assert only_reason(outcome) == f"partition 0, offsets 0 to 19: {REWRITTEN}"


def test_another_cut_of_the_same_records_is_not_comparable(clicks: Clicks) -> None:
    clicks.count("live", batches(0, 20, count=20))
    clicks.count("offline", batches(0, 10, 20, 30))
    assert (clicks.outcome().verdict, clicks.outcome().findings) == ("incomplete", [])


@pytest.mark.parametrize("is_told", [True, False])
def test_of_a_compacted_topic_nothing_is_called_lost(clicks: Clicks, is_told: bool) -> None:
    headers = batches(0, 10, 20)
    clicks.count("live", headers)
    rest = [headers[0] if is_told else headers[0]._replace(record_count=4), headers[2]]
    clicks.count("offline", rest, is_compacted=is_told)
    outcome = clicks.outcome()
    assert (outcome.verdict, outcome.findings) == ("incomplete", [])
    assert only_reason(outcome) == f"partition 0, offsets 0 to 29: {COMPACTED}"


def test_a_compacted_topic_with_equal_batches_is_complete(clicks: Clicks) -> None:
    headers = [batch(0), batch(20)]
    clicks.count("live", headers, is_compacted=True)
    clicks.count("offline", headers, is_compacted=True)
    assert clicks.outcome().verdict == "complete"


def test_what_one_cluster_began_to_count_later_is_not_comparable_there_alone(clicks: Clicks) -> None:
    headers = batches(*range(0, 2000, 10))
    clicks.count("live", headers[50:], first=500)
    clicks.count("offline", headers)
    outcome = clicks.outcome()
    assert (outcome.findings, only_reason(outcome)) == ([], f"partition 0, offsets 0 to 999: {UNEVEN}")


def test_both_may_begin_at_the_same_offset(clicks: Clicks) -> None:
    headers = batches(510, 520)
    clicks.count("live", headers, first=510)
    clicks.count("offline", headers, first=510)
    assert clicks.outcome().verdict == "complete"


def test_a_topic_that_one_cluster_does_not_count_is_incomplete(clicks: Clicks) -> None:
    clicks.count("live", batches(0))
    outcome = clicks.outcome()
    assert outcome.batches[DATACENTER, TOPIC].live.messages == 10
    assert only_reason(outcome).startswith("no counter counts it by its batch headers in the offline cluster")


def test_sequences_that_break_off_or_come_again_are_named_in_the_live_log(clicks: Clicks) -> None:
    headers = [
        batch(0, producer_id=7, producer_epoch=0, base_sequence=0),
        batch(10, producer_id=7, producer_epoch=0, base_sequence=15),
        batch(20, producer_id=7, producer_epoch=0, base_sequence=15),
        batch(30, producer_id=7, producer_epoch=1, base_sequence=0),
    ]
    for header in headers:
        clicks.copy([header])
    outcome = clicks.outcome()
    assert found(outcome) == [
        ("loss", "producer_to_live", 10, 10, 5),
        ("duplicate", "producer_to_live", 20, 20, 10),
    ]
    assert [item.reason for item in outcome.findings] == [
        "sequences 10 to 14 of the idempotent producer 7, epoch 0, are missing before this batch",
        "sequences 15 to 24 of the idempotent producer 7, epoch 0, are there once more",
    ]


def test_a_period_takes_its_windows(clicks: Clicks) -> None:
    late = NOW + 10 * WINDOW_SIZE_MS
    clicks.count("live", [*batches(0, 10), batch(20, time_ms=late)])
    clicks.count("offline", [batch(0), batch(20, time_ms=late)])
    outcome = clicks.outcome(Period(late, late + 1))
    assert (outcome.verdict, outcome.batches[DATACENTER, TOPIC].live.messages) == ("complete", 10)
