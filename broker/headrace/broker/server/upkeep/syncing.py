"""Syncs logs in threads, so that a slow disk costs nobody but those who wait for it.

Invariants: a log has one sync under way at a time; however a sync ends, and also when the broker stops meanwhile, the log
is told of it before anything else happens to the log; each data directory has threads of its own.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

from headrace.broker.errors import StorageError
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.replication.partition import Partition
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks

logger = get_logger(__name__)
THREADS_PER_DIRECTORY = 4
# Until housekeeping's own sync of the same log has ended.
PAUSE_SECONDS = 0.01


class FlushTimes:
    """How often logs were synced, and how long that took in all."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0

    def took(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds


async def sync(
    partition_log: PartitionLog, job: Callable[[], int], times: FlushTimes, pool: Executor | None = None
) -> None:
    """Have a thread do the flush job of a log, and tell the log how it ended; a failure is logged."""
    began = time.monotonic()
    syncing = asyncio.get_running_loop().run_in_executor(pool, job)
    try:
        await asyncio.shield(syncing)
    except StorageError as error:
        logger.error("flush failed", directory=partition_log.directory, reason=error)
    finally:
        # Also when the broker stops: the log must know how its sync ended before it is closed.
        await asyncio.wait([syncing])
        times.took(time.monotonic() - began)
        partition_log.flushed(syncing.result() if syncing.exception() is None else None)


class Syncs:
    """Syncs what `flush.messages` wants on the disk; `wake(topic, partition)` is called after each."""

    def __init__(self, tasks: Tasks, wake: Callable[[str, int], None], times: FlushTimes) -> None:
        self._times = times
        self._tasks = tasks
        self._wake = wake
        self._under_way: set[Partition] = set()
        self._securing: set[Partition] = set()
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def request(self, partition: Partition) -> None:
        """Sync a partition's log until no sync is due any more."""
        if partition not in self._under_way:
            self._under_way.add(partition)
            self._tasks.start("sync", self._sync(partition))

    def request_all(self, partition: Partition) -> None:
        """Sync all that a partition's log holds now."""
        if partition not in self._securing:
            self._securing.add(partition)
            self._tasks.start("sync", self._secure(partition))

    async def all_of(self, partition: Partition) -> bool:
        """Sync all that a partition's log holds now; False when the disk could not, or the broker stops."""
        log, end_offset = partition.log, partition.log.log_end_offset
        while log.recovery_point < min(end_offset, log.log_end_offset) and not log.has_failed:
            job = log.flush_task()
            if job is None:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            await sync(log, job, self._times, self._pool_of(log))
            partition.synced()
            self._wake(partition.topic, partition.partition)
        return not log.has_failed

    async def _secure(self, partition: Partition) -> None:
        try:
            await self.all_of(partition)
        finally:
            self._securing.discard(partition)

    async def _sync(self, partition: Partition) -> None:
        def synced() -> None:
            partition.synced()
            self._wake(partition.topic, partition.partition)

        try:
            await self.until_none_is_due(partition.log, synced)
        finally:
            self._under_way.discard(partition)

    async def until_none_is_due(
        self, partition_log: PartitionLog, synced: Callable[[], None] = lambda: None
    ) -> None:
        """Sync a log as `flush.messages` asks, and call `synced()` after each; ends also when a sync failed."""
        while partition_log.is_sync_due and not partition_log.has_failed:
            job = partition_log.flush_task()
            if job is None:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            await sync(partition_log, job, self._times, self._pool_of(partition_log))
            synced()

    def _pool_of(self, partition_log: PartitionLog) -> ThreadPoolExecutor:
        directory = os.path.dirname(partition_log.directory)
        if directory not in self._pools:
            self._pools[directory] = ThreadPoolExecutor(THREADS_PER_DIRECTORY, "sync")
        return self._pools[directory]
