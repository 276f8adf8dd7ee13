"""What a broker does by the clock: idle connections, flushing, retention, checkpoints.

One tick in three seconds looks what is due, so that an idle broker wakes less than once a second, ZooKeeper's pings
included. Syncing, checkpoints and removing run in a thread, one after the other; everything else is quick, runs on the
loop, and goes on while a disk takes long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from headrace.broker.clock import Clock
from headrace.broker.config.sections import Logs
from headrace.broker.errors import StorageError
from headrace.broker.log import names
from headrace.broker.log.results import Job
from headrace.broker.log.store import LogStore
from headrace.broker.outage import Outage
from headrace.broker.server.upkeep.syncing import FlushTimes, sync
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks, in_thread

logger = get_logger(__name__)


class Housekeeping:
    """Calls what is due; `run` once every `INTERVAL_MS`."""

    INTERVAL_MS = 3000

    def __init__(
        self,
        config: Logs,
        logs: LogStore,
        clock: Clock,
        sweep: Callable[[], None],
        tasks: Tasks,
        flush_times: FlushTimes,
        wake: Callable[[str, int], None],
    ) -> None:
        """`wake(topic, partition)` is called when the log of a partition begins elsewhere."""
        self._flush_times = flush_times
        self._wake = wake
        self._config = config
        self._logs = logs
        self._clock = clock
        self._sweep = sweep
        self._tasks = tasks
        self._at_the_disk: asyncio.Task[None] | None = None
        self._checkpoint_interval_ms = min(
            config.log_flush_offset_checkpoint_interval_ms,
            config.log_flush_start_offset_checkpoint_interval_ms,
        )
        self._maintained_ms = self._checkpointed_ms = clock.monotonic_ms()
        self._outages: dict[str, Outage] = {}

    def run(self) -> None:
        """One tick."""
        self._sweep()
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._maintained_ms >= self._config.log_retention_check_interval_ms:
            self._maintained_ms = now_ms
            for finding in self._logs.maintain(self._clock.now_ms()):
                logger.info(finding.kind, path=finding.path, size=finding.size, reason=finding.reason)
                if finding.kind == "retired":
                    # Who has a fetch session is told where the log begins.
                    partition = names.partition_of(finding.path.rsplit("/", 2)[1])
                    assert partition is not None
                    self._wake(*partition)
        if self._at_the_disk is None or self._at_the_disk.done():
            self._at_the_disk = self._tasks.start("disk", self._wait_for_disk())

    async def checkpoint_watermarks(self) -> None:
        """Write the high watermarks: call every `replica.high.watermark.checkpoint.interval.ms`."""
        await self._do(self._logs.watermark_jobs(), "checkpoint of the high watermarks")

    async def _wait_for_disk(self) -> None:
        await self._flush()
        await self._note_epochs()
        # A deleted topic's disk space comes back when file.delete.delay.ms says, however rarely retention looks.
        await self._do(self._logs.removals(self._clock.now_ms()), "removal of deleted logs")
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checkpointed_ms >= self._checkpoint_interval_ms:
            self._checkpointed_ms = now_ms
            await self._checkpoint()

    async def _flush(self) -> None:
        tasks = self._logs.flush_tasks(self._clock.monotonic_ms())
        for partition_log, job in tasks:
            await sync(partition_log, job, self._flush_times)
        if tasks:
            await self._checkpoint()

    async def _note_epochs(self) -> None:
        """A flush would do it too, but may be far away."""
        tasks = self._logs.epoch_tasks()
        if not tasks:
            return

        def note() -> None:
            for _, job in tasks:
                job()

        try:
            await in_thread(note)
        finally:
            for partition_log, _ in tasks:
                partition_log.epochs_noted()

    async def _checkpoint(self) -> None:
        await self._do(self._logs.checkpoint_jobs(), "checkpoint")

    async def _do(self, jobs: Iterable[Job], what: str) -> None:
        """Each in its turn; retention and the other logs' flushes go on when one fails, the next tick tries again."""
        outcomes = [await _failure(job) for job in jobs]
        if outcomes:
            self._tell(what, [error for error in outcomes if error is not None])

    def _tell(self, what: str, errors: Sequence[StorageError]) -> None:
        """What came of it, as an outage is told."""
        outage, now_ms = self._outages.setdefault(what, Outage()), self._clock.monotonic_ms()
        if errors and outage.failed(now_ms):
            for error in errors:
                logger.error(f"{what} failed", reason=error, failed=outage.count, seconds=outage.seconds)
        elif not errors and outage.is_over(now_ms):
            del self._outages[what]
            logger.info(f"{what} works again", failed=outage.count, seconds=outage.seconds)


async def _failure(job: Job) -> StorageError | None:
    """Do it; why it could not be done."""
    try:
        await asyncio.to_thread(job)
    except StorageError as error:
        return error
    return None
