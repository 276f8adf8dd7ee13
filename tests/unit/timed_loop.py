"""A clock and a scheduler that a test moves."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Loop:
    """Runs what was scheduled as its time comes, and only when the test lets time pass."""

    def __init__(self) -> None:
        self.ms = 1_000_000
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def now_ms(self) -> int:
        return self.ms + 700_000_000

    def monotonic_ms(self) -> int:
        return self.ms

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self.call_later(0, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Handle:
        handle = Handle()
        self._sequence += 1
        action = lambda: None if handle.cancelled else callback(*args)  # noqa: E731
        heapq.heappush(self._queue, (self.ms + round(delay * 1000), self._sequence, action))
        return handle

    def step(self) -> None:
        """Run the next thing that is due now."""
        _, _, action = heapq.heappop(self._queue)
        action()

    def run(self, ms: int = 0) -> None:
        end = self.ms + ms
        while self._queue and self._queue[0][0] <= end:
            self.ms = max(self.ms, self._queue[0][0])
            self.step()
        self.ms = end


class Handle:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
