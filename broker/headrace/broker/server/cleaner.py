"""Compaction in the background: the dirtiest log first, its work in a thread, one log at a time.

The thread gives way to the event loop within half a millisecond, keeps to log.cleaner.io.max.bytes.per.second, and ends
within one batch when the broker stops. A log that cannot be compacted is reported and left alone until it is opened again.
"""

from __future__ import annotations

import asyncio
import sys
import time

from headrace.broker.clock import Clock
from headrace.broker.config_sections import Logs
from headrace.broker.errors import KafkaError
from headrace.broker.log.cleaning import CleanerLimits, Job
from headrace.broker.log.compaction import Dirt
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.store import LogStore
from headrace.broker.structured_log import get_logger

log = get_logger(__name__)
_PAUSE_MAX_S = 0.1
_GIVE_WAY_S = 0.0005


class _Stopped(Exception):
    """The broker stops: raised in the thread."""


class Pace:
    """Called in the thread for each batch read."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._ahead_s = 0.0
        self._last_s = time.monotonic()
        self.is_stopped = False

    def __call__(self, size: int) -> None:
        now_s = time.monotonic()
        self._ahead_s = max(0.0, self._ahead_s - (now_s - self._last_s)) + size / self._bytes_per_second
        self._last_s = now_s
        while self._ahead_s - (time.monotonic() - now_s) > _PAUSE_MAX_S and not self.is_stopped:
            time.sleep(_PAUSE_MAX_S)
        if self.is_stopped:
            raise _Stopped


class Cleaner:
    """Cleans whatever is worth it; `run` once every `interval_ms`."""

    def __init__(self, config: Logs, logs: LogStore, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._pace = Pace(config.log_cleaner_io_max_bytes_per_second)
        self._limits = CleanerLimits(
            dedupe_buffer_size=int(
                config.log_cleaner_dedupe_buffer_size * config.log_cleaner_io_buffer_load_factor
            ),
            io_buffer_size=config.log_cleaner_io_buffer_size,
            pace=self._pace,
        )
        self.interval_ms = max(1000, config.log_cleaner_backoff_ms)

    async def run(self) -> None:
        """Clean until nothing is dirty enough."""
        while (found := self._logs.filthiest(self._clock.now_ms())) is not None:
            await self._clean(*found)

    async def _clean(self, partition_log: PartitionLog, dirt: Dirt) -> None:
        size, cleaner = partition_log.size, partition_log.cleaner
        jobs = cleaner.clean(partition_log, dirt, self._limits, self._clock.now_ms())
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(_GIVE_WAY_S)
        try:
            for job in jobs:
                await self._in_thread(job)
        except Exception as error:
            # Whatever it is, the other logs must not wait behind it.
            cleaner.uncleanable = str(error)
            if not isinstance(error, KafkaError):
                raise
            log.error("log cannot be compacted", directory=partition_log.directory, reason=error)
            return
        finally:
            sys.setswitchinterval(interval_s)
            jobs.close()
        self._logs.checkpoint()
        log.info(
            "log compacted",
            directory=partition_log.directory,
            up_to=cleaner.clean_offset,
            size_before=size,
            size=partition_log.size,
        )

    async def _in_thread(self, job: Job) -> None:
        working = asyncio.get_running_loop().run_in_executor(None, job)
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            self._pace.is_stopped = True
            await asyncio.wait([working])
            working.exception()
            raise
