"""What rates and token buckets let pass, moment by moment; the figures are Apache Kafka's."""

from __future__ import annotations

import pytest

from headrace.broker.quotas.buckets import FOREVER, Rate, TokenBucket, Windows

WINDOWS = Windows(count=11, size_ms=1000)
NOW_MS = 1_000_000


def test_a_young_rate_is_measured_over_all_windows_but_one() -> None:
    rate = Rate(WINDOWS)
    rate.record(5000, 500, NOW_MS)
    assert rate.measure(NOW_MS) == (500, 10_000)
    assert rate.throttle_ms(500, NOW_MS) == 0
    rate.record(1, 500, NOW_MS)
    # (500.1 - 500) / 500 of ten seconds.
    assert rate.throttle_ms(500, NOW_MS) == 2


def test_a_throttle_brings_the_rate_down_to_the_limit() -> None:
    rate = Rate(WINDOWS)
    for second in range(11):
        rate.record(1000, 500, NOW_MS + second * 1000)
    now_ms = NOW_MS + 10_000
    throttle_ms = rate.throttle_ms(500, now_ms)
    assert (rate.measure(now_ms), throttle_ms) == ((1100, 10_000), 12_000)
    assert rate.throttle_ms(500, now_ms + throttle_ms) == 0


def test_what_is_older_than_all_windows_is_forgotten() -> None:
    rate = Rate(WINDOWS)
    rate.record(10_000, 500, NOW_MS)
    assert rate.measure(NOW_MS + 10_999) == (10_000 * 1000 / 10_999, 10_999)
    assert rate.measure(NOW_MS + 11_000) == (0, 10_000)


def test_usage_is_kept_by_windows() -> None:
    rate = Rate(WINDOWS)
    for second in range(20):
        rate.record(100, 500, NOW_MS + second * 1000)
    # Ten whole windows and what has passed of the last one.
    assert rate.measure(NOW_MS + 19_000) == (110, 10_000)


def test_what_was_not_used_after_all_counts_no_more() -> None:
    rate = Rate(WINDOWS)
    rate.record(10_000, 500, NOW_MS)
    rate.record(-10_000, 500, NOW_MS)
    assert rate.throttle_ms(500, NOW_MS) == 0


@pytest.mark.parametrize("make", [Rate, TokenBucket])
@pytest.mark.parametrize(("limit", "throttle_ms"), [(0, FOREVER), (-1, 0)])
def test_a_limit_of_nothing_throttles_for_ever_and_one_below_it_nobody(
    make: type[Rate | TokenBucket], limit: int, throttle_ms: int
) -> None:
    bucket = make(WINDOWS)
    bucket.record(0, limit, NOW_MS)
    assert bucket.throttle_ms(limit, NOW_MS) == 0
    bucket.record(10_000, limit, NOW_MS)
    assert bucket.throttle_ms(limit, NOW_MS + 1) == throttle_ms


def test_tokens_may_be_overdrawn_once_and_come_back_at_the_limit() -> None:
    bucket = TokenBucket(Windows(count=10, size_ms=1000))
    assert bucket.throttle_ms(2, NOW_MS) == 0
    # A burst is what all windows bring: 20.
    bucket.record(20, 2, NOW_MS)
    assert bucket.throttle_ms(2, NOW_MS) == 0
    bucket.record(5, 2, NOW_MS)
    assert bucket.throttle_ms(2, NOW_MS) == 2500
    assert bucket.throttle_ms(2, NOW_MS + 2499) == 1
    assert bucket.throttle_ms(2, NOW_MS + 2500) == 0


def test_a_bucket_holds_no_more_than_a_burst() -> None:
    bucket = TokenBucket(Windows(count=10, size_ms=1000))
    bucket.record(1, 2, NOW_MS)
    bucket.record(21, 2, NOW_MS + 1_000_000)
    assert bucket.throttle_ms(2, NOW_MS + 1_000_000) == 500
