"""What a load's metrics make of its rounds."""

from __future__ import annotations

from headrace.load.driver import RoundReport
from headrace.load.metrics import LoadMetrics


def test_a_load_is_behind_until_a_round_leaves_nothing() -> None:
    now = 100.0
    metrics = LoadMetrics(lambda: now)

    def behind_s() -> float | None:
        return metrics.registry.get_sample_value("headrace_load_seconds_since_caught_up")

    now = 110.0
    assert behind_s() == 10
    metrics.observe(RoundReport(lag=3))
    metrics.observe(RoundReport(failures=["no leader answers"]))
    assert behind_s() == 10
    metrics.observe(RoundReport(rows=3))
    assert behind_s() == 0
    now = 115.0
    assert behind_s() == 5
