"""The log directories whose disk refuses writes: one line a minute while it does, one when it works again.

Producers hear KAFKA_STORAGE_ERROR each time; whoever runs the broker hears it here.
"""

from __future__ import annotations

import os

from headrace.broker.errors import StorageError
from headrace.broker.structured_log import get_logger

log = get_logger(__name__)
REPEAT_MS = 60_000


class RefusedWrites:
    """When each directory that refuses writes was logged last, by path."""

    def __init__(self) -> None:
        self.directories: dict[str, int] = {}

    def refused(self, partition_directory: str, error: StorageError, monotonic_ms: int) -> None:
        """An append failed; `error` says why and what to do."""
        directory = os.path.dirname(partition_directory)
        logged_ms = self.directories.get(directory)
        if logged_ms is None or monotonic_ms - logged_ms >= REPEAT_MS:
            self.directories[directory] = monotonic_ms
            log.warning(
                "log directory refuses writes, producers get KAFKA_STORAGE_ERROR",
                directory=directory,
                reason=error,
            )

    def worked(self, partition_directory: str) -> None:
        """An append succeeded; worth a call only while `directories` is not empty."""
        directory = os.path.dirname(partition_directory)
        if self.directories.pop(directory, None) is not None:
            log.info("log directory takes writes again", directory=directory)
