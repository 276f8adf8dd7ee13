"""Taking away the end of logs, or all of them: begun on the event loop, done by threads, ended on the loop.

Recovery believes what lies below a recovery point unchecked, so one above the cut has to be gone from the disk before
other batches get the offsets there: the loop lowers it in memory, one job a data directory writes the checkpoint for all
logs that are cut together (`lower_on_disk`), and then each is cut by a job of its own (`Truncation.run`).
From `begin` to `end` a log `is_truncating`: it shows the offsets of before, gives nothing to read, and is neither flushed,
cleaned, retired nor moved; whoever truncates sees to it that nobody appends and no epoch begins.
Must not know: whose checkpoint tells of a log (`store.py`), why it is cut.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.errors import StorageError
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import Job, LogFinding


class Truncation:
    """A log that is to end at `offset`, or, when it `empties`, to begin there, wherever that is.

    One that ends there already loses but the epochs that begin there: this broker led in them, and appended nothing.

    `error` says why it could not be done; the log is to be truncated again then. `first` has to be done before the cut.
    """

    def __init__(
        self, log: PartitionLog, offset: int, *, empties: bool = False, first: Job | None = None
    ) -> None:
        self.log = log
        self.error: StorageError | None = None
        self._body = log.body
        self._offset = offset
        self._empties = empties or offset <= log.log_start_offset
        self.leaves_batches = offset >= log.log_end_offset and not self._empties
        self._first = first
        self._has_run = False
        self._findings: list[LogFinding] = []

    def begin(self) -> None:
        """On the loop: from now on the log is left to `run`."""
        assert not self.log.is_truncating, "one truncation at a time"
        self.log.is_truncating = True
        if self.leaves_batches:
            return
        self.log.cleaner.log_ends_at(self._offset)
        segments = self._body.segments
        segments.generation += 1
        if not self._empties:
            segments.part_from(self._offset)
        # Where the last batch before a gap ends is not known yet; its segment's begin is low enough.
        synced = self._offset if self._empties else segments.base_offset_at(self._offset)
        self._body.flusher.log_ends_at(synced)

    def run(self) -> None:
        """In any one thread, once what `lower_on_disk` does is done: cut the files."""
        if self.error is not None:
            return
        try:
            with self._body.storage_errors():
                if self._first is not None:
                    self._first()
                if self._empties:
                    self._empty()
                elif self.leaves_batches:
                    self._body.epochs.truncate_from_end(self._offset)
                else:
                    self._cut()
            self._has_run = True
        except StorageError as error:
            self.error = error

    def _cut(self) -> None:
        body = self._body
        body.segments.truncate_to(self._offset)
        body.epochs.truncate_from_end(self._offset)
        body.producers, self._findings = body.snapshots.restore(body.segments, self._offset)

    def _empty(self) -> None:
        body = self._body
        body.producers.clear()
        body.snapshots.remove(lambda _: True)
        body.segments.restart_at(self._offset, self.log.config, body.segments.active.created_ms)
        body.epochs.clear()

    def end(self) -> None:
        """On the loop, after `run`: the log has its new offsets. Raises StorageError when it could not be cut, or was not."""
        log = self.log
        log.is_truncating = False
        log.restless[log] = None
        if not self._has_run and self.error is None:
            # Whoever saw to it was stopped.
            self.error = StorageError(f"{log.directory} was not cut to {self._offset}.")
        if self.error is not None:
            raise self.error
        log.findings += self._findings
        log.log_end_offset = self._offset
        log.high_watermark = min(log.high_watermark, self._offset)
        if self._empties:
            log.log_start_offset = log.high_watermark = self._offset


def lower_on_disk(checkpoint: Job, truncations: Iterable[Truncation]) -> None:
    """A job: write the checkpoint that tells of these; where that fails they must not be cut."""
    try:
        checkpoint()
    except StorageError as error:
        for truncation in truncations:
            truncation.error = truncation.error or error


def truncate_to(log: PartitionLog, offset: int) -> None:
    """Drop at once every batch that ends at or above `offset`, of a log that no checkpoint tells of.

    Raises StorageError.
    """
    if offset < log.log_end_offset:
        at_once(Truncation(log, offset))


def start_at(log: PartitionLog, offset: int) -> None:
    """Empty a log that no checkpoint tells of at once; it begins at `offset`. Raises StorageError."""
    at_once(Truncation(log, offset, empties=True))


def at_once(truncation: Truncation) -> None:
    """All of it, from begin to end, where nothing has to be lowered on the disk. Raises StorageError."""
    truncation.begin()
    truncation.run()
    truncation.end()
