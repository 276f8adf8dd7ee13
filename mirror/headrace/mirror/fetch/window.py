"""How much is asked of a source's broker at once, found by itself, and how much of it a rate allows. Pure.

`Window` is bandwidth times delay: several times what the broker delivered in one round trip, so that it grows for as long as
more in flight brings more, as TCP's BBR does. `Limit` is a token bucket that all connections to a source share.
"""

from __future__ import annotations

GAIN = 4
"""A connection asks, and waits for a round trip before the next bytes come: with three times what the road holds in flight
they come three quarters of the time.
"""
SPAN_MS_MIN = 100
"""Deliveries are counted over at least so long."""
DECAY = 0.9
"""What is left of the best rate after each span: the road may have become narrower."""
BURST_SECONDS = 0.25
"""A limit's bucket holds so much, so that a pause does not end in a flood."""


class Window:
    """Of one broker; sizes in bytes, times in milliseconds."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, max(low, high)
        self._rate = 0.0
        self._delay_ms: float | None = None
        self._span: tuple[float, int] | None = None

    @property
    def size(self) -> int:
        """What should be in flight."""
        wanted = GAIN * self._rate * (self._delay_ms or 0.0)
        return min(max(self._low, int(wanted)), self._high)

    def delayed(self, delay_ms: float) -> None:
        """A new connection's first exchange took so long."""
        self._delay_ms = delay_ms if self._delay_ms is None else min(self._delay_ms, delay_ms)

    def delivered(self, size: int, asked_ms: float, now_ms: float) -> None:
        """An answer of data that was there when it was asked for has come; the best rate of late counts."""
        self.delayed(now_ms - asked_ms)
        if self._span is None or asked_ms > self._span[0] + SPAN_MS_MIN + 2 * (self._delay_ms or 0.0):
            # Nothing was asked for in between: a rate over that time says nothing of the road.
            self._span = asked_ms, size
        else:
            self._span = self._span[0], self._span[1] + size
        began_ms, count = self._span
        if now_ms - began_ms >= max(SPAN_MS_MIN, self._delay_ms or 0.0):
            self._rate = max(count / (now_ms - began_ms), self._rate * DECAY)
            self._span = now_ms, 0


class Limit:
    """Bytes a second, None for no limit; the bucket may be in debt by one answer for each connection."""

    def __init__(self, bytes_per_second: int | None) -> None:
        self.bytes_per_second = bytes_per_second
        self._tokens = 0.0
        self._filled_ms: float | None = None

    def change(self, bytes_per_second: int | None) -> None:
        """From now on; what was owed is owed no more."""
        if bytes_per_second != self.bytes_per_second:
            self.bytes_per_second, self._tokens, self._filled_ms = bytes_per_second, 0.0, None

    def pause_ms(self, now_ms: float) -> float:
        """How long nothing may be asked for; 0 when it may be now."""
        rate = self.bytes_per_second
        if rate is None:
            return 0.0
        elapsed_ms = 0.0 if self._filled_ms is None else max(0.0, now_ms - self._filled_ms)
        self._tokens = min(self._tokens + elapsed_ms * rate / 1000, rate * BURST_SECONDS)
        self._filled_ms = now_ms
        return max(0.0, -self._tokens * 1000 / rate)

    def took(self, size: int) -> None:
        """So many bytes came."""
        if self.bytes_per_second is not None:
            self._tokens -= size

    def share(self, size: int) -> int:
        """The part of `size` that may be asked for at once: what a quarter of a second allows."""
        rate = self.bytes_per_second
        return size if rate is None else min(size, max(1, int(rate * BURST_SECONDS)))
