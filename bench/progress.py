"""How long a benchmark still takes: what its cells are expected to take, corrected by what they have taken so far."""

from __future__ import annotations

import time
from collections.abc import Mapping

JUDGED_FROM_SECONDS = 60.0


class TimeLeft:
    """Counts runs against the plan: cell → (runs, seconds that they all are expected to take)."""

    def __init__(self, plan: Mapping[str, tuple[int, float]]) -> None:
        self._began = time.monotonic()
        self._runs = {cell: runs for cell, (runs, _) in plan.items()}
        self._each = {cell: seconds / runs for cell, (runs, seconds) in plan.items()}
        self._expected_so_far = 0.0

    def ran(self, cell: str) -> None:
        """A run of the cell has ended."""
        if self._runs.get(cell):
            self._runs[cell] -= 1
            self._expected_so_far += self._each[cell]

    def is_complete(self, cell: str) -> bool:
        """Whether the cell has no more runs to come."""
        return not self._runs.get(cell)

    def __str__(self) -> str:
        expected = sum(runs * self._each[cell] for cell, runs in self._runs.items())
        minutes = expected * self._pace / 60
        return "less than a minute left" if minutes < 1 else f"about {minutes:.0f} min left"

    @property
    def _pace(self) -> float:
        """Seconds that passed for each that was expected, once there is something to judge by."""
        if self._expected_so_far < JUDGED_FROM_SECONDS:
            return 1.0
        return (time.monotonic() - self._began) / self._expected_so_far
