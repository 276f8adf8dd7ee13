"""Time as a value that is handed in: the shell owns the clock, the core gets `now_ms` as an argument.

`now_ms` is wall-clock time (milliseconds since 1970, what records carry); `monotonic_ms` never goes back and is what
time-outs are measured with.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the shell needs to know about time."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment, never going back."""
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
