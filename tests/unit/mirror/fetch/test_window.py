"""How much is asked of a source at once: bandwidth times delay, found by itself, and what a limit lets through."""

from __future__ import annotations

import pytest

from headrace.mirror.fetch.window import GAIN, Limit, Window

MIB = 1024 * 1024


def flow(window: Window, delay_ms: float, rate: float, rounds: int = 20) -> int:
    """Ask for a window again and again, over a road of `rate` bytes a millisecond; the window then."""
    now = 0.0
    for _ in range(rounds):
        asked = now
        now += max(delay_ms, 1) + window.size / rate
        window.delivered(window.size, asked, now)
    return window.size


@pytest.mark.parametrize("delay_ms", [50, 200])
def test_the_window_grows_to_what_the_road_holds(delay_ms: int) -> None:
    window = Window(2 * MIB, 512 * MIB)
    window.delayed(delay_ms)
    rate = 100_000
    size = flow(window, delay_ms, rate)
    assert size / (delay_ms + size / rate) > 0.7 * rate
    assert size <= GAIN * rate * delay_ms


def test_a_short_road_needs_no_more_than_the_least() -> None:
    window = Window(2 * MIB, 64 * MIB)
    window.delayed(0.5)
    assert flow(window, 0.5, 500_000) == 2 * MIB


def test_the_window_has_an_end_and_shrinks_when_the_road_does() -> None:
    window = Window(2 * MIB, 64 * MIB)
    window.delayed(200)
    assert flow(window, 200, 10**7) == 64 * MIB
    assert flow(window, 200, 10_000, rounds=60) < 10 * MIB


def test_idle_time_is_no_slow_road() -> None:
    window = Window(2 * MIB, 64 * MIB)
    window.delayed(100)
    before = flow(window, 100, 200_000)
    window.delivered(MIB, 900_000, 900_100)
    assert window.size >= 0.8 * before


def test_a_limit_lets_its_rate_through_and_no_flood_after_a_pause() -> None:
    limit = Limit(1_000)
    now, got = 0.0, 0
    while now < 20_000:
        now += limit.pause_ms(now)
        limit.took(500)
        got += 500
    assert got == pytest.approx(20_000, rel=0.1)
    assert limit.pause_ms(now + 60_000) == 0
    limit.took(1_250)
    assert limit.pause_ms(now + 60_000) == pytest.approx(1_000)


def test_a_limit_is_changed_and_taken_away_while_it_holds() -> None:
    limit = Limit(10)
    assert limit.pause_ms(0) == 0
    limit.took(10_000)
    assert limit.pause_ms(0) == 1_000_000
    limit.change(1_000_000)
    assert limit.pause_ms(0) == 0
    assert limit.share(MIB) == 250_000
    limit.change(None)
    limit.took(10**12)
    assert (limit.pause_ms(0), limit.share(MIB)) == (0, MIB)
