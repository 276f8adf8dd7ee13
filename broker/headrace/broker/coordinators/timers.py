"""Timers by key in one heap: set, put off and cancelled in their thousands, due in order.

Putting a timer off (every heartbeat does) changes only its entry; the heap learns of it when the old time
comes. Pure: the shell asks for the next deadline, sleeps, and hands in the time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class TimerQueue(Generic[Key, Value]):
    """One value a key, each with a deadline; the heap holds at most about twice as many items as there are
    timers.
    """

    def __init__(self) -> None:
        self._timers: dict[Key, tuple[int, Value]] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._queued: dict[Key, int] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._timers)

    def set(self, key: Key, deadline_ms: int, value: Value) -> None:
        """Bring `value` at `deadline_ms`, instead of whatever the key was set to."""
        self._timers[key] = (deadline_ms, value)
        if self._queued.get(key, deadline_ms + 1) > deadline_ms:
            self._push(key, deadline_ms)

    def cancel(self, key: Key) -> None:
        self._timers.pop(key, None)

    def cancel_where(self, matches: Callable[[Key], bool]) -> None:
        """Cancel every timer whose key matches."""
        self._timers = {key: timer for key, timer in self._timers.items() if not matches(key)}

    def next_deadline(self) -> int | None:
        """When to ask for what is due; may be earlier than any timer."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int, count_max: int | None = None) -> Iterator[Value]:
        """Take out the values whose time has come, one by one in the order of their deadlines; the next call brings what
        `count_max` leaves out.

        What follows from one may put off or cancel those after it, which then do not come.
        """
        ready: list[tuple[tuple[int, Value], Key]] = []
        while self._heap and self._heap[0][0] <= now_ms and len(ready) != count_max:
            deadline_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != deadline_ms:
                continue
            del self._queued[key]
            timer = self._timers.get(key)
            if timer is None:
                continue
            if timer[0] > now_ms:
                self._push(key, timer[0])
            else:
                ready.append((timer, key))
        for timer, key in sorted(ready, key=lambda each: each[0][0]):
            if self._timers.get(key) is timer:
                del self._timers[key]
                yield timer[1]

    def _push(self, key: Key, deadline_ms: int) -> None:
        if len(self._heap) > 2 * len(self._timers) + 64:
            self._rebuild()
        self._sequence += 1
        self._queued[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, self._sequence, key))

    def _rebuild(self) -> None:
        """Drop what was cancelled or superseded."""
        self._queued = {key: timer[0] for key, timer in self._timers.items()}
        self._heap = [(deadline_ms, n, key) for n, (key, deadline_ms) in enumerate(self._queued.items())]
        heapq.heapify(self._heap)
        self._sequence = max(self._sequence, len(self._heap))
