"""Compaction in the background: the dirtiest logs first, each in a thread, log.cleaner.threads of them at a time.

The threads share log.cleaner.dedupe.buffer.size and log.cleaner.io.max.bytes.per.second, give way to the event loop
within half a millisecond, and end within one batch when the broker stops. A log that cannot be compacted is reported and
left alone until it is opened again; one whose disk has no room is tried again.
"""

from __future__ import annotations

import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

from headrace.broker.clock import Clock
from headrace.broker.config.sections import Logs
from headrace.broker.errors import KafkaError, StorageError
from headrace.broker.log.compaction import CleanerLimits, Dirt
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import Job
from headrace.broker.log.store import LogStore
from headrace.broker.outage import Outage
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import in_thread

logger = get_logger(__name__)
_PAUSE_MAX_S = 0.1
_GIVE_WAY_S = 0.0005
_IDLE_S_MIN = 1.0


class _Stopped(Exception):
    """The broker stops: raised in the threads."""


class Pace:
    """Called in the threads for every piece read or written: together they keep to `bytes_per_second`."""

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._is_stopped = False
        self._lock = Lock()
        # When all that was read and written so far would be through at that speed.
        self._due_s = time.monotonic()

    def __call__(self, size: int) -> None:
        with self._lock:
            self._due_s = max(self._due_s, time.monotonic()) + size / self.bytes_per_second
            due_s = self._due_s
        while (ahead_s := due_s - time.monotonic()) > _PAUSE_MAX_S and not self._is_stopped:
            time.sleep(min(ahead_s, _PAUSE_MAX_S))
        if self._is_stopped:
            raise _Stopped

    def stop(self) -> None:
        """Let the next call in each thread end its job."""
        self._is_stopped = True


class CleanerFigures(NamedTuple):
    """What the cleaner tells of itself; ratios from 0 to 1, `ended_ms` on the monotonic clock (None: it never ran)."""

    max_dirty_ratio: float = 0.0
    cleaned_bytes: int = 0
    uncleanable_partitions: int = 0
    last_run_s: float = 0.0
    ended_ms: int | None = None


class Cleaner:
    """Cleans whatever is worth it; `run` does so for ever, `clean_all` once."""

    def __init__(self, config: Logs, logs: LogStore, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._pace = Pace(config.log_cleaner_io_max_bytes_per_second)
        # Logs that a thread works at, and those that this round is through with.
        self._busy: set[PartitionLog] = set()
        self._passed: set[PartitionLog] = set()
        self.figures = CleanerFigures()
        self._config = config
        self._is_changed = asyncio.Event()

    def use_config(self, config: Logs) -> None:
        """Use a changed configuration: the speed at once, the rest with the next round, which waits no longer."""
        if config == self._config:
            return
        self._config = config
        self._is_changed.set()
        self._pace.bytes_per_second = config.log_cleaner_io_max_bytes_per_second

    async def run(self) -> None:
        """Clean, wait log.cleaner.backoff.ms, and so on."""
        while True:
            await self._wait(max(_IDLE_S_MIN, self._config.log_cleaner_backoff_ms / 1000))
            try:
                await self.clean_all()
            except Exception as error:
                # A log that a failing disk keeps from being looked at is no reason to clean no more.
                logger.failure("cleaning failed", error)

    async def _wait(self, length_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(length_s):
                await self._is_changed.wait()
        self._is_changed.clear()

    async def clean_all(self) -> None:
        """Clean until nothing is dirty enough."""
        started_ms = self._clock.monotonic_ms()
        self._passed.clear()
        if self._filthiest() is not None:
            await self._clean_in_threads()
            ended_ms = self._clock.monotonic_ms()
            self.figures = self.figures._replace(last_run_s=(ended_ms - started_ms) / 1000, ended_ms=ended_ms)

    def _filthiest(self) -> tuple[PartitionLog, Dirt] | None:
        """The log with the largest share of dirty bytes of those that are worth a cleaning."""
        now_ms = self._clock.now_ms()
        done = self._busy | self._passed
        compacted = [found for found in self._logs.all() if found.is_compacted]
        candidates = [found for found in compacted if found not in done]
        dirty = [(found, dirt) for found in candidates if (dirt := found.cleaner.find(found, now_ms))]
        self.figures = self.figures._replace(
            max_dirty_ratio=max((dirt.ratio for _, dirt in dirty), default=0.0),
            uncleanable_partitions=sum(found.cleaner.uncleanable is not None for found in compacted),
        )
        worth_it = [found for found in dirty if found[1].is_worth_it(found[0].config)]
        return max(worth_it, key=lambda found: found[1].ratio, default=None)

    async def _clean_in_threads(self) -> None:
        count = self._config.log_cleaner_threads
        share = self._config.log_cleaner_dedupe_buffer_size * self._config.log_cleaner_io_buffer_load_factor
        limits = CleanerLimits(
            dedupe_buffer_size=int(share / count),
            io_buffer_size=self._config.log_cleaner_io_buffer_size,
            pace=self._pace,
        )
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(_GIVE_WAY_S)
        try:
            with ThreadPoolExecutor(count, "cleaner") as pool:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(count):
                        workers.create_task(self._work(pool, limits))
        finally:
            sys.setswitchinterval(interval_s)

    async def _work(self, pool: ThreadPoolExecutor, limits: CleanerLimits) -> None:
        while (found := self._filthiest()) is not None:
            partition_log, dirt = found
            before = partition_log.cleaner.clean_offset
            self._busy.add(partition_log)
            try:
                await self._clean(pool, partition_log, dirt, limits)
            finally:
                self._busy.discard(partition_log)
            if partition_log.cleaner.clean_offset == before:
                self._passed.add(partition_log)

    async def _clean(
        self, pool: ThreadPoolExecutor, partition_log: PartitionLog, dirt: Dirt, limits: CleanerLimits
    ) -> None:
        size, cleaner = partition_log.size, partition_log.cleaner
        jobs = cleaner.clean(partition_log, dirt, limits, self._clock.now_ms())
        try:
            for job in jobs:
                if not await self._has_done(pool, job, partition_log):
                    return
        except Exception as error:
            # Whatever it is, the other logs must not wait behind it.
            cleaner.uncleanable = str(error)
            if isinstance(error, KafkaError):
                logger.error("log cannot be compacted", directory=partition_log.directory, reason=error)
            else:
                logger.failure("log cannot be compacted", error, directory=partition_log.directory)
            return
        finally:
            jobs.close()
        self.figures = self.figures._replace(
            cleaned_bytes=self.figures.cleaned_bytes + dirt.clean_bytes + dirt.dirty_bytes
        )
        for checkpoint in self._logs.checkpoint_jobs():
            # Housekeeping writes the same again, and tells of it.
            with suppress(StorageError):
                await in_thread(checkpoint, pool)
        if cleaner.outage.is_over(self._clock.monotonic_ms()):
            cleaner.outage = Outage()
        logger.info(
            "log compacted",
            directory=partition_log.directory,
            up_to=cleaner.clean_offset,
            size_before=size,
            size=partition_log.size,
        )

    async def _has_done(self, pool: ThreadPoolExecutor, job: Job, partition_log: PartitionLog) -> bool:
        """Do a job; False when there was no room for what it writes, which may be otherwise another time."""
        try:
            await in_thread(job, pool, give_up=self._pace.stop)
        except StorageError as error:
            self._tell_delay(partition_log, error)
            return False
        return True

    def _tell_delay(self, partition_log: PartitionLog, error: StorageError) -> None:
        outage = partition_log.cleaner.outage
        if outage.failed(self._clock.monotonic_ms()):
            logger.error(
                "log not compacted, to be tried again",
                directory=partition_log.directory,
                reason=error,
                failed=outage.count,
                seconds=outage.seconds,
            )
