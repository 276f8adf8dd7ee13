"""The span of time that a verdict is about, and which of a stream's sequences belong to its windows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from headrace.audit.windows import Depth, Int64s, depth, once

Windows = Mapping[int, Int64s]
"""Runs of sequences by the start of their window."""

BEGIN_MS: Final = -(1 << 62)
"""Earlier than any time."""
END_MS: Final = 1 << 62
"""Later than any time."""


class Period(NamedTuple):
    """From `since_ms` up to before `until_ms`."""

    since_ms: int
    until_ms: int

    def overlaps(self, since_ms: int, until_ms: int) -> bool:
        """Whether a time of [since, until) lies within; an empty span is its first moment."""
        return self.since_ms < max(until_ms, since_ms + 1) and since_ms < self.until_ms


ALWAYS: Final = Period(BEGIN_MS, END_MS)


def sequences_of(windows: Windows, period: Period, window_size_ms: int, *, are_all_known: bool) -> Depth:
    """Return the sequences of the windows that reach into a period, each once.

    Where older windows are forgotten, the sequences below all known ones are theirs.
    """
    found = [runs for start, runs in windows.items() if period.overlaps(start, start + window_size_ms)]
    if not are_all_known and windows and period.since_ms < min(windows):
        lowest = min(int(runs[0, 0]) for runs in windows.values())
        found.append(np.array([[0, lowest - 1]], dtype=np.int64)[: int(lowest > 0)])
    return once(depth(np.concatenate([np.empty((0, 2), dtype=np.int64), *found])))


class WindowTable:
    """Finds the windows of sequences."""

    def __init__(self, windows: Windows, size_ms: int) -> None:
        starts = [np.full(len(runs), start, dtype=np.int64) for start, runs in windows.items()]
        self._start = np.concatenate([np.empty(0, dtype=np.int64), *starts])
        self._runs = np.concatenate([np.empty((0, 2), dtype=np.int64), *windows.values()])
        self._size_ms = size_ms

    def latest(self, sequence: int) -> int:
        """Return the start of the latest window that a sequence may be in; -1 where none is known."""
        return int(self._start[self._holds(sequence)].max(initial=-1))

    def earliest(self, sequence: int) -> int:
        """Return the start of the earliest window that a sequence may be in; -1 where none is known."""
        return (
            int(self._start[self._holds(sequence)].min(initial=END_MS)) if self.latest(sequence) >= 0 else -1
        )

    def span(self, found: Depth) -> Period | None:
        """Return the time of all windows that some of these sequences may be in; None where none is known."""
        runs = np.array([run[:2] for run in found.runs()], dtype=np.int64).reshape(-1, 2)
        if not len(runs):
            return None
        # The first run that does not end before the window's run begins.
        at = np.searchsorted(runs[:, 1], self._runs[:, 0])
        is_near = at < len(runs)
        touches = is_near & (runs[np.minimum(at, len(runs) - 1), 0] <= self._runs[:, 1])
        starts = self._start[touches]
        return Period(int(starts.min()), int(starts.max()) + self._size_ms) if len(starts) else None

    def _holds(self, sequence: int) -> np.ndarray:
        return (self._runs[:, 0] <= sequence) & (sequence <= self._runs[:, 1])
