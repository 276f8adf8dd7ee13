"""The rate that moves between data directories keep to: debts fall due, none is forgotten."""

from __future__ import annotations

from headrace.broker.config.keys import LONG_MAX
from headrace.broker.log.throttle import WAIT_MS_MAX, Throttle

NOW_MS = 1_700_000_000_000


def limited(bytes_per_second: int) -> Throttle:
    throttle = Throttle()
    throttle.bytes_per_second = bytes_per_second
    return throttle


def test_without_a_limit_nothing_waits() -> None:
    throttle = Throttle()
    throttle.spend(10**12, NOW_MS)
    assert (throttle.bytes_per_second, throttle.wait_ms(NOW_MS)) == (LONG_MAX, 0)


def test_what_was_spent_falls_due_at_the_rate() -> None:
    throttle = limited(1000)
    assert throttle.wait_ms(NOW_MS) == 0
    throttle.spend(500, NOW_MS)
    assert throttle.wait_ms(NOW_MS) == 500
    assert throttle.wait_ms(NOW_MS + 499) == 1
    assert throttle.wait_ms(NOW_MS + 500) == 0


def test_a_batch_beyond_every_window_is_waited_for_to_its_end() -> None:
    throttle = limited(1000)
    throttle.spend(60_000, NOW_MS)
    assert throttle.wait_ms(NOW_MS) == throttle.wait_ms(NOW_MS + 58_000) == WAIT_MS_MAX
    assert throttle.wait_ms(NOW_MS + 59_500) == 500


def test_idle_time_is_no_credit_and_a_clock_set_back_no_debt() -> None:
    throttle = limited(1000)
    throttle.spend(100, NOW_MS)
    assert throttle.wait_ms(NOW_MS + 3_600_000) == 0
    throttle.spend(100, NOW_MS + 3_600_000)
    assert throttle.wait_ms(NOW_MS) == 100
    assert throttle.wait_ms(NOW_MS + 100) == 0


def test_a_changed_rate_holds_for_what_is_owed_and_zero_stops_everything() -> None:
    throttle = limited(1000)
    throttle.spend(1000, NOW_MS)
    throttle.bytes_per_second = 10_000
    assert throttle.wait_ms(NOW_MS) == 100
    throttle.bytes_per_second = 0
    assert throttle.wait_ms(NOW_MS + 10**9) == WAIT_MS_MAX


def test_a_piece_fits_a_window() -> None:
    throttle = limited(1000)
    throttle.window_s = 3
    assert throttle.piece_size_max == 3000
    throttle.bytes_per_second = 0
    assert throttle.piece_size_max == 1
