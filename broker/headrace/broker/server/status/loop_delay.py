"""How late the event loop calls what is due: the time for which whatever else it did kept everybody waiting."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

INTERVAL_S = 3.0
"""As rare as housekeeping: an idle broker must not wake for this once a second."""
KEPT_COUNT = 20


class LoopDelay:
    """The delays that were measured last."""

    def __init__(self) -> None:
        self._delays: deque[float] = deque(maxlen=KEPT_COUNT)

    async def run(self, now: Callable[[], float] | None = None) -> None:
        """Measure, until cancelled."""
        clock = now or asyncio.get_running_loop().time
        while True:
            due = clock() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            self._delays.append(max(clock() - due, 0.0))

    @property
    def seconds_max(self) -> float:
        """The longest of the last minute."""
        return max(self._delays, default=0.0)
