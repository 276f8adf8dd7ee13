"""The log directories whose disk refuses writes: told as an outage is, and in figures.

Producers hear KAFKA_STORAGE_ERROR each time, and followers fall behind; whoever runs the broker hears it here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from headrace.broker.clock import Clock
from headrace.broker.errors import StorageError
from headrace.broker.outage import Outage
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)
T = TypeVar("T")


class RefusedWrites:
    """The directories that refuse writes now, by path, how many each has refused since the start, and which outages last.

    `on_refused()` is called for each refusal.
    """

    def __init__(self) -> None:
        self.directories: set[str] = set()
        self.counts: dict[str, int] = {}
        self.outages: dict[str, Outage] = {}
        self.on_refused: Callable[[], object] = lambda: None

    def refused(self, partition_directory: str, error: StorageError, monotonic_ms: int) -> None:
        """An append failed; `error` says why and what to do."""
        directory = os.path.dirname(partition_directory)
        self.directories.add(directory)
        self.counts[directory] = self.counts.get(directory, 0) + 1
        self.on_refused()
        outage = self.outages.setdefault(directory, Outage())
        if outage.failed(monotonic_ms):
            logger.warning(
                "log directory refuses writes, its replicas take no messages",
                directory=directory,
                refused=outage.count,
                seconds=outage.seconds,
                reason=error,
            )

    def worked(self, partition_directory: str, monotonic_ms: int) -> None:
        """An append succeeded; worth a call only while there are `outages`."""
        directory = os.path.dirname(partition_directory)
        self.directories.discard(directory)
        outage = self.outages.get(directory)
        if outage is not None and outage.is_over(monotonic_ms):
            del self.outages[directory]
            logger.info(
                "log directory takes writes again",
                directory=directory,
                refused=outage.count,
                seconds=outage.seconds,
            )

    def noted(self, partition_directory: str, clock: Clock, append: Callable[[], T]) -> T:
        """Append by `append()`, and note whether the disk refused it; raises what that does."""
        try:
            result = append()
        except StorageError as error:
            self.refused(partition_directory, error, clock.monotonic_ms())
            raise
        if self.outages:
            self.worked(partition_directory, clock.monotonic_ms())
        return result
