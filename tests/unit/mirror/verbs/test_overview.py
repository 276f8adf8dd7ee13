"""What `headrace mirror status` makes of states, reports and ends: unknown is never "copying", and never 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from mirror_kit import finding

from headrace.mirror.memory import reports
from headrace.mirror.memory.findings import Kind
from headrace.mirror.memory.orders import Promoted
from headrace.mirror.memory.reports import (
    AGGREGATES_MAX,
    GROUPS,
    LISTED_MAX,
    SILENT_AFTER_MS,
    STALE_AFTER_MS,
    AggregateReport,
    PartitionReport,
    Report,
    SourceReport,
    SyncReport,
    TopicReport,
    bounded,
    failed,
    shortened,
)
from headrace.mirror.memory.state import NO_ID, Skip, State
from headrace.mirror.names import CopyNames
from headrace.mirror.verbs.needs import needs
from headrace.mirror.verbs.overview import Heard, bootstraps, overview

NOW = 1_000_000
EAST = SourceReport(name="dc-east", bootstrap="east:9092", answered_ms=NOW - 400, problem="")
REPORT = Report(broker=1, at_ms=NOW - 1000, sources=(EAST,))
STATE = State(target_id=UUID(int=3), source_bootstrap="old:9092")


def heard(*, state: State | None = STATE, report: Report | None = REPORT, leader: int = 1) -> Heard:
    return Heard(
        leaders={("dc-east.t", 0): leader, ("other", 0): 1},
        log_ends={"dc-east.t-0": 90, "other-0": 4},
        states={} if state is None else {"dc-east.t-0": state},
        reports={} if report is None else {1: report},
    )


def shown(found: Heard, source_end: int | None = 100) -> tuple[dict[str, Any], bool]:
    ends = {} if source_end is None else {"dc-east": {"t-0": source_end}}
    rows = overview(found, ends, NOW)
    (partition,) = rows["partitions"]
    return partition, not needs(rows)


def test_a_copy_whose_source_answers_is_copying() -> None:
    row, is_good = shown(heard())
    assert (row["state"], row["lag"], row["reason"], is_good) == ("copying", 10, None, True)
    assert bootstraps(heard()) == {"dc-east": "east:9092"}


def test_a_copy_that_differs_needs_somebody_and_it_is_said_when_all_were_compared_last() -> None:
    differs = finding(Kind.DIFFERENCE, 7, 7)
    row, is_good = shown(heard(state=replace(STATE, different=differs)))
    assert (row["state"], row["reason"], is_good) == ("different", "from offset 7 on: so it is", False)
    checked = replace(EAST, checked_ms=NOW - 5000, unchecked=2, check_problem="it is away")
    (source,) = overview(heard(report=replace(REPORT, sources=(checked,))), {}, NOW)["sources"]
    assert (source["checked_seconds_ago"], source["unchecked"], source["reason"]) == (5, 2, "it is away")


def test_why_metadata_did_not_come_is_said_of_a_source_whose_connections_answer() -> None:
    told = replace(EAST, problem="timed out", check_problem="it is away")
    (source,) = overview(heard(report=replace(REPORT, sources=(told,))), {}, NOW)["sources"]
    assert source["reason"] == "timed out"


def test_a_copy_with_a_name_of_its_own_is_shown_by_it_and_one_that_lost_its_name_is_nobodys() -> None:
    found = Heard(
        leaders={("t", 0): 1, ("dc-east.west.t", 0): 1},
        log_ends={"t-0": 90, "dc-east.west.t-0": 4},
        states={"t-0": STATE, "dc-east.west.t-0": STATE},
        reports={1: REPORT},
        names=CopyNames({"t": "dc-east.west.t"}),
    )
    lost, named = overview(found, {"dc-east": {"west.t-0": 100}}, NOW)["partitions"]
    assert (named["topic"], named["state"], named["lag"]) == ("t", "copying", 10)
    assert (lost["topic"], lost["state"], lost["reason"]) == (
        "dc-east.west.t",
        "not mirrored",
        "t is the copy of that name",
    )
    assert bootstraps(found) == {"dc-east": "east:9092"}


def test_what_was_promoted_is_listed_and_needs_nobody() -> None:
    found = replace(heard(), promoted={"dc-east.u": Promoted("EAST", UUID(int=4)), "v": Promoted("", NO_ID)})
    found = replace(found, names=CopyNames({"v": "dc-west.v"}))
    rows = overview(found, {}, NOW)
    assert rows["promoted"] == [
        {"topic": "dc-east.u", "source": "dc-east", "cluster": "EAST"},
        {"topic": "v", "source": "dc-west", "cluster": None},
    ]
    assert not needs(rows)


def test_what_was_skipped_is_no_lag() -> None:
    skipped = Skip(log_end_offset=90, first_offset=90, last_offset=94)
    assert shown(heard(state=replace(STATE, skipped=skipped)))[0]["lag"] == 5


def test_a_resumed_copy_waits_for_a_source_that_is_shorter_until_it_is_longer() -> None:
    resumed = replace(STATE, resumed_at=90)
    row, is_good = shown(heard(state=resumed), source_end=3)
    assert (row["state"], row["lag"], is_good) == ("waiting", None, False)
    assert row["reason"].startswith("it was resumed, and takes nothing before its source is past offset 90: ")
    for state, source_end in ((resumed, 90), (resumed, 100), (STATE, 3)):
        assert shown(heard(state=state), source_end)[0]["state"] == "copying"


def test_a_lag_that_nobody_can_ask_for_is_not_known() -> None:
    assert shown(heard(), source_end=None)[0]["lag"] is None


@pytest.mark.parametrize(
    ("source_end", "lag_max", "is_good"),
    [(100, 10, True), (100, 9, False), (None, 1000, False), (None, None, True)],
)
def test_a_copy_may_be_so_far_behind_and_its_lag_must_be_known(
    source_end: int | None, lag_max: int | None, *, is_good: bool
) -> None:
    ends = {} if source_end is None else {"dc-east": {"t-0": source_end}}
    assert (not needs(overview(heard(), ends, NOW), lag_max)) is is_good


@pytest.mark.parametrize(
    ("found", "state", "reason"),
    [
        (heard(state=replace(STATE, stopped=finding(Kind.GAP, 90, 95))), "stopped", "gap: so it is"),
        (
            heard(state=replace(STATE, rotten=finding(Kind.ROT, 90, 95))),
            "rotten",
            "offsets 90-95: so it is; `headrace mirror skip dc-east.t 0 --offsets 90-95` gives them up",
        ),
        (heard(state=replace(STATE, rotten=finding(Kind.ROT, 90, -1))), "rotten", "offsets 90-LAST: "),
        (heard(leader=-1), "no leader", "no broker of the offline cluster leads it"),
        (heard(leader=-1, state=None), "no leader", "no broker"),
        (heard(report=None), "unknown", "its broker reports nothing"),
        (heard(leader=2), "unknown", "its broker reports nothing"),
        (
            heard(report=replace(REPORT, at_ms=NOW - STALE_AFTER_MS - 1)),
            "unknown",
            "broker 1 last reported 30 s ago",
        ),
        (
            heard(report=replace(REPORT, sources=(replace(EAST, answered_ms=None, problem="refused"),))),
            "source never reached",
            "dc-east at east:9092: refused",
        ),
        (
            heard(report=replace(REPORT, sources=(replace(EAST, answered_ms=NOW - SILENT_AFTER_MS - 1),))),
            "source silent",
            "dc-east at east:9092: no answer",
        ),
        (
            heard(
                report=replace(
                    REPORT,
                    partitions=(
                        PartitionReport(topic="dc-east.t", partition=0, state="waiting", reason="no leader"),
                    ),
                )
            ),
            "waiting",
            "no leader",
        ),
    ],
)
def test_what_is_not_copied_is_not_called_copying(found: Heard, state: str, reason: str) -> None:
    row, is_good = shown(found)
    assert (row["state"], is_good) == (state, False)
    assert row["reason"].startswith(reason)


def test_where_a_report_is_full_a_partition_that_is_not_in_it_is_not_known() -> None:
    other = PartitionReport(topic="dc-east.other", partition=0, state="waiting", reason="no leader")
    row, is_good = shown(heard(report=replace(REPORT, partitions=(other,) * LISTED_MAX)))
    assert (row["state"], is_good) == ("unknown", False)


def test_a_source_that_was_taken_out_of_the_configuration_needs_nobody() -> None:
    row, is_good = shown(heard(report=replace(REPORT, sources=())))
    assert (row["state"], is_good) == ("not mirrored", True)


def test_a_source_that_was_never_reached_is_named_though_it_has_no_copies() -> None:
    source = replace(EAST, answered_ms=None, problem="connection refused")
    found = Heard(leaders={}, log_ends={}, states={}, reports={1: replace(REPORT, sources=(source,))})
    rows = overview(found, {}, NOW)
    assert rows["sources"] == [
        {
            "source": "dc-east",
            "broker": 1,
            "bootstrap": "east:9092",
            "mode": "copy",
            "state": "never reached",
            "answered_seconds_ago": None,
            "checked_seconds_ago": None,
            "unchecked": 0,
            "reason": "connection refused",
        }
    ]
    assert needs(rows)


def test_the_last_answer_of_a_source_is_told_in_seconds() -> None:
    silent = replace(EAST, answered_ms=NOW - 61_000, problem="timed out")
    (row,) = overview(heard(report=replace(REPORT, sources=(silent,))), {}, NOW)["sources"]
    assert (row["state"], row["answered_seconds_ago"], row["reason"]) == ("silent", 61.0, "timed out")
    (row,) = overview(heard(report=replace(REPORT, at_ms=1)), {}, NOW)["sources"]
    assert (row["state"], "last reported" in row["reason"]) == ("unknown", True)


def test_topics_without_a_copy_are_told_once_however_many_brokers_tell() -> None:
    topic = TopicReport(source="dc-east", topic="dc-east.x", reason="too long")
    told = {n: replace(REPORT, broker=n, topics=(topic,)) for n in (1, 2)}
    rows = overview(replace(heard(), reports=told), {}, NOW)
    assert rows["topics"] == [{"source": "dc-east", "topic": "dc-east.x", "reason": "too long"}]
    assert needs(rows)


def test_reports_are_read_as_they_were_written_and_fit_a_message() -> None:
    topics = [TopicReport(source="s" * 200, topic="t" * 249, reason=shortened("r" * 999))] * (LISTED_MAX + 1)
    partitions = [PartitionReport(topic="t" * 249, partition=2**31 - 1, state="waiting", reason="r" * 300)]
    syncs = (failed("dc-east", GROUPS, None, "r" * 999),)
    brought = AggregateReport(
        source="s" * 200, topic="t" * 249, partition=2**31 - 1, state="copying", lag=2**40, reason="r" * 300
    )
    aggregates = [brought] * (AGGREGATES_MAX + 1)
    report = bounded(1, 5, (EAST,), topics, partitions * (LISTED_MAX + 2), syncs, aggregates)
    assert len(report.aggregates) == AGGREGATES_MAX
    assert (len(report.topics), len(report.partitions)) == (LISTED_MAX, LISTED_MAX)
    assert reports.decode(report.encode()) == report
    assert len(report.encode()) < 1_000_000


@pytest.mark.parametrize("value", [b"{}", b"7", b"", b'{"broker": 1, "at_ms": 1, "sources": [{}]}'])
def test_what_is_no_report_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"no report|Expecting"):
        reports.decode(value)


def test_what_is_brought_is_told_by_the_newest_report_of_it() -> None:
    old = SyncReport(source="dc-east", what=GROUPS, succeeded_ms=NOW - 9000, in_step=7)
    new = replace(old, succeeded_ms=NOW - 2000, in_step=3, left_alone=1, behind=20)
    reports = {
        1: replace(REPORT, broker=1, at_ms=NOW - 9000, syncs=(old,)),
        2: replace(REPORT, broker=2, syncs=(new,)),
    }
    rows = overview(replace(heard(), reports=reports), {}, NOW)
    assert rows["syncs"] == [
        {
            "source": "dc-east",
            "what": "groups",
            "broker": 2,
            "state": "brought",
            "succeeded_seconds_ago": 2.0,
            "in_step": 3,
            "left_alone": 1,
            "behind": 20,
            "reason": None,
        }
    ]
    assert not needs(rows)


def test_what_cannot_be_brought_needs_a_person() -> None:
    told = failed("dc-east", GROUPS, None, "no answer")
    rows = overview(replace(heard(), reports={1: replace(REPORT, syncs=(told,))}), {}, NOW)
    (row,) = rows["syncs"]
    assert (row["state"], row["succeeded_seconds_ago"], row["reason"]) == ("fails", None, "no answer")
    assert needs(rows)
    late = replace(REPORT, at_ms=NOW - STALE_AFTER_MS - 1, syncs=(replace(told, problem=""),))
    (row,) = overview(replace(heard(), reports={1: late}), {}, NOW)["syncs"]
    assert row["state"] == "unknown"


def test_a_copy_that_was_left_out_is_in_order_though_its_broker_says_nothing_of_it() -> None:
    found = replace(heard(), left_out=frozenset({"dc-east.t"}))
    row, is_good = shown(found)
    assert (row["state"], row["reason"], is_good) == (
        "left out",
        "`headrace mirror topics dc-east` chose others",
        True,
    )


def test_an_aggregate_is_as_the_newest_owner_says() -> None:
    old = AggregateReport(source="dc-east", topic="t", partition=0, state="copying", lag=900, reason="")
    reports = {
        1: replace(REPORT, broker=1, at_ms=NOW - 9000, aggregates=(old,)),
        2: replace(REPORT, broker=2, aggregates=(replace(old, lag=3),)),
    }
    rows = overview(replace(heard(), reports=reports), {}, NOW)
    (row,) = rows["aggregates"]
    assert (row["owner"], row["state"], row["lag"], row["reason"]) == (2, "copying", 3, None)
    assert not needs(rows)
    assert needs(rows, 2)


@pytest.mark.parametrize("state", ["stopped", "waiting"])
def test_an_aggregate_that_does_not_go_on_needs_a_person(state: str) -> None:
    told = AggregateReport(source="dc-east", topic="t", partition=0, state=state, lag=None, reason="gap: …")
    rows = overview(replace(heard(), reports={1: replace(REPORT, aggregates=(told,))}), {}, NOW)
    assert rows["aggregates"][0]["reason"] == "gap: …"
    assert needs(rows)
    late = replace(REPORT, at_ms=NOW - STALE_AFTER_MS - 1, aggregates=(replace(told, state="copying"),))
    (row,) = overview(replace(heard(), reports={1: late}), {}, NOW)["aggregates"]
    assert (row["state"], row["lag"]) == ("unknown", None)
