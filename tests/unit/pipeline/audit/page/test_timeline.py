"""The time axis: bars, lines and marks at their minutes, whatever times events bear."""

from __future__ import annotations

from headrace.audit.page.timeline import timeline
from headrace.audit.recent import Figures

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 60_000


def minutes(*known: int) -> dict[str, dict[int, Figures]]:
    figures = {minute: Figures(100 + at, 0.02, 0.5) for at, minute in enumerate(known)}
    return {"end_to_end": figures, "live_to_offline": figures}


def finding(kind: str, window_start: str | None) -> dict[str, object]:
    return {"kind": kind, "window_start": window_start, "count": 7}


def test_each_minute_is_told_with_its_events_latencies_and_faults() -> None:
    told = timeline(
        minutes(NOW - 2, NOW - 1), [finding("loss", "2023-11-14T22:12:10Z"), finding("late", None)], NOW_MS
    )
    assert told.count('class="bar"') == 2
    assert told.count('class="mark loss"') == 1
    assert "22:12 UTC: 101 events, live to offline p99 500 ms, loss: 7" in told
    assert "at most 101" in told


def test_a_minute_without_events_is_a_gap() -> None:
    told = timeline(minutes(NOW - 9, NOW - 1), [], NOW_MS)
    assert 'viewBox="0 0 9 100"' in told
    assert told.count('class="bar"') == 2


def test_times_far_from_now_stretch_nothing() -> None:
    """Events of the year 9999, and findings of any time."""
    far = 9999 * 525_960
    told = timeline(minutes(NOW - 1, far, 5), [finding("loss", "9999-01-01T00:00:00Z")], NOW_MS)
    assert 'viewBox="0 0 1 100"' in told
    assert told.count('class="bar"') == 1
    assert "loss: 7" not in told
    assert "No event" in timeline(minutes(far), [], NOW_MS)
