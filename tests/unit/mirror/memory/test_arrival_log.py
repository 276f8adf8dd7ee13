"""When arrivals are written: committed ones only, few at a time, and what a predecessor left out as an estimate."""

from __future__ import annotations

from mirror_kit import LedPartition, SharedTopic, lead

from headrace.mirror.memory import arrivals
from headrace.mirror.memory.arrival_log import SUMMARY_INTERVAL_MS, UNCOMMITTED_MAX, ArrivalLog
from headrace.mirror.memory.arrivals import Arrival, decode

PLACE = b"dc-east.t-0"


class Script:
    """A broker that copies to one partition, which it has taken over at offset `end`."""

    def __init__(self, end: int = 0) -> None:
        self.topic = SharedTopic()
        self.log = ArrivalLog(self.topic)
        self.partition = LedPartition(end=end)
        self.lead = lead(self.partition)
        self.log.take_over(self.lead, 77)

    def arrived(self, first: int, last: int, now_ms: int = 5) -> None:
        self.log.arrived(self.lead, Arrival(first, last, now_ms))

    @property
    def written(self) -> list[Arrival]:
        return [decode(value or b"") for _, value in self.topic.pairs]


def test_an_arrival_is_written_once_it_is_committed() -> None:
    script = Script()
    script.arrived(0, 4)
    script.arrived(5, 9)
    script.log.flush(1)
    assert script.written == []
    script.partition.high_watermark = 7
    script.log.flush(1)
    assert script.written == [Arrival(0, 4, 5)]
    assert script.log.is_waiting
    script.partition.high_watermark = 10
    script.log.flush(1)
    assert script.written[1:] == [Arrival(5, 9, 5)]
    assert not script.log.is_waiting


def test_one_write_is_under_way_at_a_time() -> None:
    script = Script()
    script.topic.is_away = True
    script.partition.high_watermark = 100
    for first in (0, 10, 20):
        script.arrived(first, first + 9)
        script.log.flush(1)
    assert len(script.topic.away) == 1
    script.topic.commit()
    script.log.flush(1)
    script.topic.commit()
    assert [arrival.first_offset for arrival in script.written] == [0, 10, 20]


def test_what_a_predecessor_did_not_write_is_estimated_before_anything_else_is_written() -> None:
    script = Script(end=50)
    script.arrived(50, 59)
    script.partition.high_watermark = 60
    script.log.flush(1)
    assert (script.written, script.log.unrecorded) == ([], {PLACE})
    script.log.complete({PLACE: 40}, {PLACE})
    script.log.flush(1)
    assert script.written == [Arrival(40, 49, 77, is_estimated=True), Arrival(50, 59, 5)]
    assert script.log.unrecorded == set()


def test_a_copy_that_another_broker_leads_now_is_none_of_this_ones() -> None:
    script = Script()
    script.arrived(0, 4)
    script.log.let_go(script.lead)
    script.arrived(5, 9)
    script.partition.high_watermark = 10
    script.log.complete({PLACE: 0}, {PLACE})
    script.log.flush(SUMMARY_INTERVAL_MS)
    script.log.flush(2 * SUMMARY_INTERVAL_MS)
    assert script.written == []
    again = lead(script.partition, 2)
    script.log.take_over(again, 78)
    script.log.let_go(script.lead)
    script.log.arrived(again, Arrival(0, 9, 6))
    script.log.flush(2 * SUMMARY_INTERVAL_MS)
    assert script.written == [Arrival(0, 9, 6)], "the end of an earlier leadership ends no later one"


def test_how_far_copies_are_recorded_is_repeated_by_number_and_by_time() -> None:
    script = Script()
    script.partition.high_watermark = 10_000
    script.log.flush(0)
    for offset in range(arrivals.SUMMARY_EVERY):
        script.arrived(offset, offset)
        script.log.flush(1)
    summary = Arrival(arrivals.SUMMARY_EVERY, arrivals.SUMMARY_EVERY - 1, 1)
    assert script.written[-1] == summary
    script.log.flush(SUMMARY_INTERVAL_MS)
    assert len(script.written) == arrivals.SUMMARY_EVERY + 1
    script.log.flush(1 + SUMMARY_INTERVAL_MS)
    assert script.written[-1] == summary._replace(append_ms=1 + SUMMARY_INTERVAL_MS)


def test_arrivals_that_are_not_committed_for_long_are_merged() -> None:
    script = Script()
    for offset in range(UNCOMMITTED_MAX + 5):
        script.arrived(offset, offset, offset)
    script.partition.high_watermark = UNCOMMITTED_MAX + 5
    script.log.flush(1)
    assert len(script.written) == UNCOMMITTED_MAX
    assert script.written[-1] == Arrival(UNCOMMITTED_MAX - 1, UNCOMMITTED_MAX + 4, UNCOMMITTED_MAX + 4)
