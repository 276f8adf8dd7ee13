"""The log's lines about the opening of the logs: at its begin, at intervals while it lasts, and at its end."""

from __future__ import annotations

import asyncio

from headrace.broker.clock import Clock
from headrace.broker.log.progress import OpeningProgress
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)
REPEAT_S = 3.0


class StartReport:
    """Tells of `progress`."""

    def __init__(self, progress: OpeningProgress, clock: Clock) -> None:
        self._progress = progress
        self._clock = clock
        self._began_ms = clock.monotonic_ms()

    async def run(self) -> None:
        """Until it is cancelled."""
        logger.info("opening the logs")
        while True:
            await asyncio.sleep(REPEAT_S)
            progress = self._progress
            logger.info(
                "still opening the logs",
                opened=progress.logs_opened,
                left=progress.logs_left,
                segments_checked=progress.segments_checked,
                bytes_checked=progress.bytes_checked,
                bytes_left=progress.bytes_left,
                seconds=self._seconds,
            )

    def over(self) -> None:
        """All logs are open."""
        self._progress.is_over = True
        logger.info(
            "logs opened",
            logs=self._progress.logs_opened,
            segments_checked=self._progress.segments_checked,
            bytes_checked=self._progress.bytes_checked,
            seconds=self._seconds,
        )

    @property
    def _seconds(self) -> float:
        return round((self._clock.monotonic_ms() - self._began_ms) / 1000, 1)
