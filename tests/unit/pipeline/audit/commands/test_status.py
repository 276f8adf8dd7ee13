"""When a hop counts as slower than it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.audit.commands.status import EVENTS_MIN, latencies, slower
from headrace.audit.latency import SPANS
from headrace.audit.period import END_MS, Period
from headrace.audit.recent import RecentLatencies

HOUR_MS = 3_600_000


def hops(before: int, since: int, count: int = EVENTS_MIN) -> dict[str, dict[str, Any]]:
    """So many events end to end before and since the second hour, of these milliseconds each."""
    recent = RecentLatencies()
    for time_ms, value in ((HOUR_MS - 1, before), (HOUR_MS, since)):
        columns = (np.full(count, number, dtype=np.int64) for number in (time_ms, value))
        recent.observe(("dc-east", "end_to_end"), *columns)
    return latencies(recent, Period(HOUR_MS, END_MS))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (hops(1000, 4000), ["end_to_end"]),
        (hops(1000, 2900), []),
        (hops(100, 900), []),
        (hops(1000, 4000, EVENTS_MIN - 1), []),
        (latencies(RecentLatencies(), Period(0, END_MS)), []),
    ],
    ids=["slower", "within the factor", "by less than a second", "too few events", "no events"],
)
def test_slower_is_beyond_the_factor_by_enough_events(
    found: dict[str, dict[str, Any]], expected: list[str]
) -> None:
    assert list(found) == list(SPANS)
    assert slower(found, 3.0) == expected
