"""When nothing is asked after a failure: each pause is twice as long as the one before, up to a bound. Pure."""

from __future__ import annotations


class Pause:
    """Times are milliseconds; a clock that is set back ends it."""

    def __init__(self, ms_min: int, ms_max: int) -> None:
        self._ms_min, self._ms_max = ms_min, ms_max
        self._next_ms = ms_min
        self._span_ms = range(0)

    def lasts(self, now_ms: int) -> bool:
        return now_ms in self._span_ms

    def begin(self, now_ms: int) -> None:
        """Something failed."""
        self._span_ms = range(now_ms, now_ms + self._next_ms)
        self._next_ms = min(self._next_ms * 2, self._ms_max)

    def end(self) -> None:
        """Something went well: the next pause is a short one."""
        self._next_ms, self._span_ms = self._ms_min, range(0)
