"""The measure of replication against a rate."""

from __future__ import annotations

import pytest

from headrace.broker.replication.throttle import Throttle, throttled_partitions


def test_without_a_rate_nothing_is_exceeded() -> None:
    throttle = Throttle()
    throttle.record(10**12, 0)
    assert not throttle.is_exceeded(0)


def test_the_rate_is_measured_over_the_windows_and_forgets_old_ones() -> None:
    throttle = Throttle(windows=3, window_ms=1000)
    throttle.rate_max = 1000
    throttle.record(1000, 0)
    assert not throttle.is_exceeded(0), "at the rate, not above it"
    throttle.record(1, 500)
    assert throttle.is_exceeded(500)
    assert not throttle.is_exceeded(1002), "1001 bytes in 1.002 s"
    throttle.record(3000, 1500)
    assert throttle.rate(2000) == 4001 * 1000 / 2000
    assert throttle.rate(3100) == 3000 * 1000 / 1600, "the first window is over"
    assert throttle.rate(4600) == 0.0


def test_a_burst_is_paid_for_by_waiting() -> None:
    throttle = Throttle()
    throttle.rate_max = 1000
    throttle.record(5000, 0)
    assert [ms for ms in range(0, 8000, 1000) if throttle.is_exceeded(ms)] == [0, 1000, 2000, 3000, 4000]


@pytest.mark.parametrize(
    ("text", "throttled"),
    [("*", [0, 1, 2]), ("", []), ("0:1,1:2,2:1", [0, 2]), (" 1:1 , 2:2 ", [1])],
)
def test_the_replicas_under_a_throttle_are_named_by_partition_and_broker(
    text: str, throttled: list[int]
) -> None:
    is_throttled = throttled_partitions(text, 1)
    assert [number for number in range(3) if is_throttled(number)] == throttled
