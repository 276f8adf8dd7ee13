"""How long events of a stretch of time took, whatever all others before them did."""

from __future__ import annotations

import numpy as np

from headrace.audit.period import Period
from headrace.audit.recent import KEPT_MINUTES_MAX, MINUTE_MS, Figures, RecentLatencies

KEY = ("dc-east", "end_to_end")


def observe(recent: RecentLatencies, minute: int, *values_ms: int, key: tuple[str, str] = KEY) -> None:
    times = np.full(len(values_ms), minute * MINUTE_MS + 5, dtype=np.int64)
    recent.observe(key, times, np.array(values_ms, dtype=np.int64))


def minutes(first: int, last: int) -> Period:
    return Period(first * MINUTE_MS, last * MINUTE_MS)


def test_only_the_minutes_of_the_period_count_and_all_datacenters() -> None:
    recent = RecentLatencies()
    observe(recent, 10, 100, 100, 200)
    observe(recent, 11, 5, key=("dc-west", "end_to_end"))
    observe(recent, 12, 100_000)
    observe(recent, 10, 7, key=("dc-east", "live_to_offline"))
    assert recent.figures("end_to_end", minutes(10, 12)) == Figures(4, 0.1, 0.2)
    assert recent.figures("end_to_end", minutes(11, 12)) == Figures(1, 0.005, 0.005)
    assert recent.figures("end_to_end", minutes(13, 14)) is None
    again = RecentLatencies.from_json(recent.as_json())
    assert again.figures("end_to_end", minutes(10, 12)) == Figures(4, 0.1, 0.2)


def test_what_is_old_is_forgotten() -> None:
    recent = RecentLatencies()
    observe(recent, 0, 1)
    observe(recent, KEPT_MINUTES_MAX, 2)
    observe(recent, 1, 3)
    assert recent.figures("end_to_end", minutes(0, 1)) is None
    figures = recent.figures("end_to_end", minutes(0, 1000))
    assert figures is not None
    assert figures.events == 2


def test_events_of_one_call_keep_their_minutes_and_buckets_however_long_they_took() -> None:
    recent = RecentLatencies()
    times = np.array([12, 10, 12, 10, 10], dtype=np.int64) * MINUTE_MS
    recent.observe(KEY, times, np.array([7, 2**63 - 1, 7, 0, 7], dtype=np.int64))
    found = recent.minutes("end_to_end")
    assert {minute: figures.events for minute, figures in found.items()} == {10: 3, 12: 2}
    assert found[12].p99 == 0.007
    assert found[10] == Figures(3, 0.007, (2**63 - 1) / 1000)
