"""Distributions: what is exact and what is close."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.audit.histogram import OBSERVED_MS_MAX, Histogram, bucket_of, upper_of


@given(st.integers(0, 2**50))
def test_a_bucket_is_at_most_one_percent_wide(value: int) -> None:
    upper = upper_of(int(bucket_of(np.array([value], dtype=np.int64))[0]))
    assert value <= upper <= value * 1.01


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=200))
def test_mean_and_maximum_are_exact_and_percentiles_close(values: list[int]) -> None:
    histogram = Histogram()
    histogram.observe(np.array(values, dtype=np.int64))
    summary = histogram.summary()
    assert summary is not None
    assert summary["max"] == max(values) / 1000
    assert abs(summary["mean"] - sum(values) / len(values) / 1000) < 1e-5
    exact = sorted(values)[-(-99 * len(values) // 100) - 1] / 1000
    assert exact <= summary["p99"] + 1e-9
    assert summary["p99"] <= exact * 1.01 + 1e-9
    assert Histogram.from_json(histogram.as_json()).summary() == summary


def test_times_out_of_all_bounds_are_counted_at_the_bound() -> None:
    histogram = Histogram()
    histogram.observe(np.array([2**62, 2**63 - 1, 5, -(2**63)], dtype=np.int64))
    assert (histogram.count, histogram.max_ms, histogram.sum_ms) == (
        4,
        OBSERVED_MS_MAX,
        2 * OBSERVED_MS_MAX + 5,
    )


def test_without_data_there_is_no_summary() -> None:
    assert Histogram().summary() is None
