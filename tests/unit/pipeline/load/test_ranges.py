"""Planning a round: from positions and log offsets to ranges and findings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.wire.partitions import TopicPartition
from headrace.load.ranges import Limits, LogOffsets, OffsetRange, assign, plan

P0 = TopicPartition("dc-east.pageviews", 0)
P1 = TopicPartition("dc-east.pageviews", 1)


def spans(ranges: tuple[OffsetRange, ...]) -> list[tuple[int, int, int]]:
    return [(item.partition, item.first_offset, item.next_offset) for item in ranges]


def test_a_range_goes_on_where_the_table_stands() -> None:
    planned = plan({P0: 40}, {P0: LogOffsets(0, 100)}, Limits())
    assert spans(planned.ranges) == [(0, 40, 100)]
    assert planned.lag == 60
    assert planned.findings == ()


def test_a_new_partition_begins_at_its_log_start() -> None:
    planned = plan({P0: 40}, {P0: LogOffsets(0, 40), P1: LogOffsets(7, 9)}, Limits())
    assert spans(planned.ranges) == [(1, 7, 9)]


def test_a_long_backlog_is_cut_into_rounds_and_stays_in_the_lag() -> None:
    planned = plan({}, {P0: LogOffsets(0, 1000)}, Limits(records_per_range_max=300))
    assert spans(planned.ranges) == [(0, 0, 300)]
    assert planned.lag == 1000


def test_offsets_deleted_before_they_were_loaded_stop_the_partition_alone() -> None:
    planned = plan({P0: 40, P1: 5}, {P0: LogOffsets(60, 100), P1: LogOffsets(0, 10)}, Limits())
    assert spans(planned.ranges) == [(1, 5, 10)]
    (finding,) = planned.findings
    assert (finding.kind, finding.partition, finding.offset) == ("retention", 0, 40)
    assert "40 to 59" in finding.detail


def test_a_log_that_ends_before_the_table_does_is_a_truncation() -> None:
    planned = plan({P0: 40}, {P0: LogOffsets(0, 39)}, Limits())
    assert planned.ranges == ()
    assert [finding.kind for finding in planned.findings] == ["truncation"]


def test_a_topic_made_anew_is_not_taken_for_the_one_that_was_loaded() -> None:
    logs = {P0: LogOffsets(0, 100), P1: LogOffsets(0, 100)}
    planned = plan({P0: 40}, logs, Limits(), strangers={P0: "made anew", P1: "made anew"})
    assert [(finding.kind, finding.partition) for finding in planned.findings] == [
        ("recreation", 0),
        ("recreation", 1),
    ]
    assert planned.ranges == ()


def test_a_stopped_partition_gets_no_range_but_counts_in_the_lag() -> None:
    planned = plan({}, {P0: LogOffsets(0, 10), P1: LogOffsets(0, 10)}, Limits(), {P0})
    assert spans(planned.ranges) == [(1, 0, 10)]
    assert planned.lag == 20


offsets = st.integers(0, 50).flatmap(
    lambda start: st.integers(start, 100).map(lambda end: LogOffsets(start, end))
)


@given(
    st.dictionaries(st.integers(0, 8), st.integers(0, 120), max_size=9),
    st.dictionaries(st.integers(0, 8), offsets, max_size=9),
    st.integers(1, 30),
)
def test_ranges_never_skip_repeat_or_leave_the_log(
    held: dict[int, int], logs: dict[int, LogOffsets], count_max: int
) -> None:
    positions = {TopicPartition("t", number): offset for number, offset in held.items()}
    log_offsets = {TopicPartition("t", number): item for number, item in logs.items()}
    planned = plan(positions, log_offsets, Limits(records_per_range_max=count_max))
    assert len({item.topic_partition for item in planned.ranges}) == len(planned.ranges)
    for item in planned.ranges:
        log = log_offsets[item.topic_partition]
        assert item.first_offset == positions.get(item.topic_partition, log.start)
        assert log.start <= item.first_offset < item.next_offset <= log.end
        assert item.count <= count_max


@given(st.lists(st.integers(1, 1000), max_size=20), st.integers(1, 5))
def test_every_range_is_assigned_to_exactly_one_task(counts: list[int], task_count_max: int) -> None:
    ranges = [
        OffsetRange(topic="t", partition=number, first_offset=0, next_offset=count)
        for number, count in enumerate(counts)
    ]
    tasks = assign(ranges, task_count_max)
    assert len(tasks) == min(task_count_max, len(ranges))
    assert all(tasks)
    assert sorted(item.partition for members in tasks for item in members) == list(range(len(counts)))


def test_long_ranges_are_spread_first() -> None:
    ranges = [
        OffsetRange(topic="t", partition=number, first_offset=0, next_offset=count)
        for number, count in enumerate([10, 100, 20, 90])
    ]
    loads = [sum(item.count for item in members) for members in assign(ranges, 2)]
    assert sorted(loads) == [110, 110]
