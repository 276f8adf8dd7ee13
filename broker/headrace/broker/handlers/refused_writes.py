"""The log directories whose disk refuses writes: one line a minute while it does, one when it works again, and figures.

Producers hear KAFKA_STORAGE_ERROR each time, and followers fall behind; whoever runs the broker hears it here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from headrace.broker.errors import StorageError
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)
REPEAT_MS = 60_000


@dataclass(slots=True)
class Refusal:
    """One directory's refusals, from the first until a write succeeds."""

    began_ms: int
    logged_ms: int
    count: int = 0


class RefusedWrites:
    """The directories that refuse writes now, by path, and how many each has refused since the start."""

    def __init__(self) -> None:
        self.directories: dict[str, Refusal] = {}
        self.counts: dict[str, int] = {}

    def refused(self, partition_directory: str, error: StorageError, monotonic_ms: int) -> None:
        """An append failed; `error` says why and what to do."""
        directory = os.path.dirname(partition_directory)
        self.counts[directory] = self.counts.get(directory, 0) + 1
        refusal = self.directories.get(directory)
        is_first = refusal is None
        if refusal is None:
            refusal = self.directories[directory] = Refusal(began_ms=monotonic_ms, logged_ms=monotonic_ms)
        refusal.count += 1
        if is_first or monotonic_ms - refusal.logged_ms >= REPEAT_MS:
            refusal.logged_ms = monotonic_ms
            logger.warning(
                "log directory refuses writes, its replicas take no messages",
                directory=directory,
                refused=refusal.count,
                seconds=(monotonic_ms - refusal.began_ms) // 1000,
                reason=error,
            )

    def worked(self, partition_directory: str, monotonic_ms: int) -> None:
        """An append succeeded; worth a call only while `directories` is not empty."""
        directory = os.path.dirname(partition_directory)
        refusal = self.directories.pop(directory, None)
        if refusal is not None:
            logger.info(
                "log directory takes writes again",
                directory=directory,
                refused=refusal.count,
                seconds=(monotonic_ms - refusal.began_ms) // 1000,
            )
