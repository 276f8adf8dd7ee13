"""The times of events, joined by sequence and offset."""

from __future__ import annotations

import numpy as np

from headrace.audit.clocks import Clocks, Skew
from headrace.audit.latency import (
    SPANS,
    Latencies,
    Rows,
    SourcePartition,
    Spans,
)
from headrace.audit.windows import Stream

STREAM = Stream("dc-east", "pageviews", "p")
PLACE = SourcePartition("dc-east", "pageviews", 0)
NOW = 1_000_000


def numbers(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def rows(first: int, count: int, *, time_ms: int = NOW, file: str = "f") -> Rows:
    at = np.arange(first, first + count, dtype=np.int64)
    return Rows(
        file=file,
        place=PLACE,
        streams=(STREAM,),
        stream=np.zeros(count, dtype=np.intp),
        time_ms=np.full(count, time_ms, dtype=np.int64),
        sequence=at,
        offset=at,
    )


def test_spans_answer_for_what_they_cover() -> None:
    spans = Spans()
    spans.add(10, 19, 500)
    spans.add(0, 4, 100)
    assert spans.at(numbers(0, 4, 5, 10, 19, 20)).tolist() == [100, 100, -1, 500, 500, -1]
    spans.forget_below(5)
    assert spans.at(numbers(4, 10)).tolist() == [-1, 500]


def told(latencies: Latencies) -> None:
    latencies.on_acknowledged(STREAM, 0, 9, NOW + 10)
    latencies.on_appended(PLACE, 0, 9, NOW + 110)
    latencies.on_committed(PLACE, 0, 9, NOW + 1110)


def test_rows_wait_for_all_their_times_and_are_observed_once() -> None:
    latencies = Latencies(60_000)
    latencies.on_rows(rows(0, 10))
    latencies.join(NOW)
    assert latencies.histogram("end_to_end").count == 0
    told(latencies)
    latencies.join(NOW)
    assert {span: latencies.histogram(span).max_ms for span in SPANS} == {
        "producer_to_live": 10,
        "live_to_offline": 100,
        "offline_to_warehouse": 1000,
        "end_to_end": 1110,
    }
    latencies.on_rows(rows(0, 10, file="rewritten"))
    latencies.join(NOW, is_last=True)
    assert latencies.histogram("end_to_end").count == 10


def test_a_row_whose_account_never_comes_counts_in_the_hops_that_are_known() -> None:
    latencies = Latencies(60_000)
    latencies.on_appended(PLACE, 0, 9, NOW + 110)
    latencies.on_committed(PLACE, 0, 9, NOW + 1110)
    latencies.on_rows(rows(0, 10))
    latencies.join(NOW + 200_000)
    assert {span: latencies.histogram(span).count for span in SPANS} == {
        "producer_to_live": 0,
        "live_to_offline": 0,
        "offline_to_warehouse": 10,
        "end_to_end": 10,
    }


def test_late_is_said_of_the_first_hop_behind_the_bound() -> None:
    latencies = Latencies(100)
    told(latencies)
    latencies.on_rows(rows(0, 10))
    latencies.join(NOW)
    assert {key: item.count for key, item in latencies.late.items()} == {("live_to_offline", STREAM): 10}


def test_negative_latencies_are_counted_by_host_and_in_no_figure() -> None:
    latencies = Latencies(60_000)
    latencies.on_producer("p", "web-1")
    latencies.on_acknowledged(STREAM, 0, 9, NOW + 10)
    latencies.on_appended(PLACE, 0, 3, NOW - 40, "broker-1")
    latencies.on_appended(PLACE, 4, 9, NOW + 40, "broker-2")
    latencies.on_committed(PLACE, 0, 9, NOW + 100, "loader")
    latencies.on_rows(rows(0, 10))
    latencies.join(NOW)
    assert latencies.skews.found == {
        Clocks("dc-east", "live_to_offline", "web-1", "broker-1"): Skew(count=4, largest_ms=50, certain=4)
    }
    offline = latencies.histogram("live_to_offline")
    assert (offline.count, offline.percentile(0.01), offline.max_ms) == (6, 30, 30)
    assert latencies.histogram("offline_to_warehouse").count == 10


def test_a_copy_that_is_quicker_than_the_acknowledgement_needs_no_wrong_clock() -> None:
    latencies = Latencies(60_000)
    latencies.on_acknowledged(STREAM, 0, 9, NOW + 10)
    latencies.on_appended(PLACE, 0, 9, NOW + 3, "broker-1")
    latencies.on_rows(rows(0, 10))
    latencies.join(NOW, is_last=True)
    assert latencies.skews.found == {
        Clocks("dc-east", "live_to_offline", "", "broker-1"): Skew(count=10, largest_ms=7, certain=0)
    }


def test_a_clock_that_runs_behind_gives_no_latency() -> None:
    latencies = Latencies(60_000)
    latencies.on_producer("p", "web-1")
    latencies.on_acknowledged(STREAM, 0, 9, NOW - 50)
    latencies.on_rows(rows(0, 10))
    latencies.join(NOW, is_last=True)
    assert latencies.histogram("producer_to_live").summary() is None
    assert latencies.skews.found == {
        Clocks("dc-east", "producer_to_live", "web-1", "web-1"): Skew(count=10, largest_ms=50, certain=10)
    }


def test_hosts_of_spans_are_kept_with_them() -> None:
    spans = Spans()
    spans.add(10, 19, 500, 2)
    spans.add(0, 4, 100)
    assert Spans.from_json(spans.as_json()).host_at(numbers(0, 5, 10)).tolist() == [0, 0, 2]
    before_hosts = spans.as_json()[:3]
    assert Spans.from_json(before_hosts).host_at(numbers(10)).tolist() == [0]
    spans.forget_below(5)
    assert spans.host_at(numbers(4, 10)).tolist() == [0, 2]
