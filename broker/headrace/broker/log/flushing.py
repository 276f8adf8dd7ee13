"""Bringing a log to the disk: what is synced already, what one flush has to sync.

Invariant: the recovery point never passes data that is not on the disk, not even when the log was truncated and
written anew while a flush was under way, nor the begin of a leader epoch that is not. After one failed sync it stays
where it is until the log is opened again: the kernel reports lost pages once, a second fsync would vouch for them. The
jobs run in threads and touch nothing but the files they were given.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from headrace.broker.errors import StorageError
from headrace.broker.log.epochs import LeaderEpochs
from headrace.broker.log.files import Files, storage_errors
from headrace.broker.log.segments import Segments
from headrace.broker.log.snapshots import ProducerSnapshots


class Flusher:
    """See the module's text. `recovery_point`: every batch below it is on the disk; `has_failed`: it will stay there."""

    __slots__ = (
        "_directory",
        "_end_under_way",
        "_epochs",
        "_files",
        "_segments",
        "_snapshots",
        "_waits_since_ms",
        "_writes_epochs",
        "has_failed",
        "recovery_point",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        segments: Segments,
        epochs: LeaderEpochs,
        snapshots: ProducerSnapshots,
        recovery_point: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._segments = segments
        self._epochs = epochs
        self._writes_epochs = False
        self._snapshots = snapshots
        self._end_under_way: int | None = None
        self.has_failed = False
        self._waits_since_ms: int | None = None
        self.recovery_point = recovery_point

    def is_due(self, monotonic_ms: int, looked_ms: int, flush_ms: int) -> bool:
        """Whether to flush now what there is to flush: a segment was rolled, or something may have waited for `flush_ms`.

        `looked_ms`: at the look before this one nothing waited, unless this was asked.
        """
        if self.has_failed:
            return False
        if self._segments.has_rolled:
            return True
        if self._waits_since_ms is None:
            self._waits_since_ms = looked_ms
        return monotonic_ms - self._waits_since_ms >= flush_ms

    def task(self, end_offset: int) -> Callable[[], int] | None:
        """A job for a thread, or None: nothing to do, or one is out already."""
        if (
            self.has_failed
            or self._end_under_way is not None
            or self._epochs.is_being_written
            or not (self._segments.has_rolled or self.recovery_point < end_offset)
        ):
            return None
        try:
            job = self._job(end_offset)
        except StorageError as error:
            # An index has no room for its newest entries. No sync has failed, the next job may do better.
            return partial(_fail, error)
        self._end_under_way = end_offset
        self._writes_epochs = self._epochs.is_being_written
        return job

    def _job(self, end_offset: int) -> Callable[[], int]:
        files, directory = self._files, self._directory
        with storage_errors(files, directory):
            if not self._epochs.is_written:
                self._segments.names_changed()
            to_sync, must_sync_directory = self._segments.unsynced(self.recovery_point)
        to_sync += self._snapshots.take_unsynced()
        write_epochs = self._epochs.writing()

        def flush() -> int:
            with storage_errors(files, directory):
                if write_epochs is not None:
                    write_epochs()
                for file in to_sync:
                    file.sync()
                if must_sync_directory:
                    # The folder of a partition that was deleted meanwhile has another name.
                    with suppress(FileNotFoundError):
                        files.sync_directory(directory)
            return end_offset

        return flush

    def done(self, recovery_point: int | None) -> None:
        """The end of a job: its answer, or None when it failed. One that began before the log moved says nothing."""
        end, self._end_under_way = self._end_under_way, None
        if self._writes_epochs:
            self._writes_epochs = False
            self._epochs.job_done()
        if end is None:
            return
        if recovery_point is None:
            self.has_failed = True
        else:
            self.recovery_point = max(self.recovery_point, min(recovery_point, end))
            self._waits_since_ms = None

    def flush(self, end_offset: int) -> None:
        """Flush at once and wait for it. Raises StorageError, from the first failure on at every call."""
        self.check()
        with storage_errors(self._files, self._directory):
            self._epochs.write()
        job = self._job(end_offset)
        self.has_failed = True
        self.recovery_point = max(self.recovery_point, job())
        self.has_failed = False
        self._waits_since_ms = None

    def check(self) -> None:
        """Raises StorageError when a sync failed."""
        if self.has_failed:
            raise StorageError(
                f"{self._directory}: an earlier sync failed. Repair the disk and restart the broker."
            )

    def log_ends_at(self, offset: int) -> None:
        """The log was truncated: what a job under way syncs above is not what will lie there."""
        self.recovery_point = min(self.recovery_point, offset)
        if self._end_under_way is not None:
            self._end_under_way = min(self._end_under_way, offset)


def _fail(error: StorageError) -> int:
    raise error
