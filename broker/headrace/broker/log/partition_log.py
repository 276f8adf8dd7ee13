"""One partition's log: append (`tail`), read, roll, retire.

Invariants: offsets never go back and are never used twice; a refused or failed append changes nothing; what is
read begins at a batch and ends at `upper_offset` at the latest; one writer, the event loop, calls all of it but the
flush jobs. Must not know: sockets, replication, ZooKeeper, the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from uuid import UUID

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import OffsetOutOfRangeError
from headrace.broker.log import timestamps
from headrace.broker.log.cleaning import LogCleaner
from headrace.broker.log.files import Files, storage_error, storage_errors
from headrace.broker.log.producers import ProducerStates
from headrace.broker.log.progress import OpeningProgress
from headrace.broker.log.recovery import LoadedLog, load
from headrace.broker.log.results import (
    NOTHING_YET,
    DeletedSegment,
    EpochEndOffset,
    Finding,
    LogSlice,
    RecoveryReport,
    TimestampOffset,
)
from headrace.broker.log.retention import retired
from headrace.broker.log.tail import LogTail
from headrace.broker.log.transactions import AbortedTransaction


class PartitionLog(LogTail):
    """See the module's text; made by `open`.

    `high_watermark` is where readers' view ends, `last_stable_offset` where that of read_committed ends,
    `recovery_point` the offset below which every batch has been synced. All offsets are exclusive ends.
    """

    def __init__(self, files: Files, directory: str, config: LogConfig, loaded: LoadedLog) -> None:
        super().__init__(files, directory, config, loaded)
        self.topic_id = loaded.topic_id
        self.findings: list[Finding] = []
        self.cleaner = LogCleaner(files, directory, self._segments, self._snapshots)
        # Set by a store, which has checkpoints.
        self.on_recovery_point_lowered: Callable[[], None] = lambda: None

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        recovery_point: int = 0,
        clean_shutdown: bool = False,
        log_start_offset: int = 0,
        topic_id: UUID | None = None,
        progress: OpeningProgress | None = None,
    ) -> tuple[PartitionLog, RecoveryReport]:
        """Open the log in `directory` (`<topic>-<partition>`, made when missing); recover it after an unclean stop.

        `recovery_point`: every batch below it was synced. `topic_id` is written to `partition.metadata` of a log
        that has none. Raises StorageError.
        """
        with storage_errors(files, directory):
            loaded, report = load(
                files,
                directory,
                config,
                now_ms=now_ms,
                recovery_point=recovery_point,
                clean_shutdown=clean_shutdown,
                log_start_offset=log_start_offset,
                topic_id=topic_id,
                progress=progress or OpeningProgress(),
            )
            return cls(files, directory, config, loaded), report

    @property
    def size(self) -> int:
        """Bytes of all its `.log` files."""
        return self._segments.size

    @property
    def last_stable_offset(self) -> int:
        """Below it lies no open transaction and nothing above the high watermark."""
        return self._producers.last_stable_offset(self.high_watermark)

    @property
    def producers(self) -> ProducerStates:
        """The idempotent and transactional producers known here."""
        return self._producers

    @property
    def has_moved_start(self) -> bool:
        """Whether DeleteRecords moved the start into the first segment, which its name does not tell."""
        return self.log_start_offset > next(iter(self._segments)).base_offset

    @property
    def segment_count(self) -> int:
        """How many segments it has; at least one."""
        return len(self._segments)

    # -- read

    def check_offset(self, offset: int) -> None:
        """Raises OffsetOutOfRangeError unless `offset` can be read, now or once something is appended there."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"Offset {offset} of {self.topic}-{self.partition} is outside "
                f"{self.log_start_offset} to {self.log_end_offset}."
            )

    def read(self, offset: int, *, size_max: int, upper_offset: int, at_least_one: bool = True) -> LogSlice:
        """At most `size_max` bytes from the batch that holds `offset` (or the next one), below `upper_offset`.

        With `at_least_one` the first batch is whole even when it is larger, else the slice is then empty, as it is
        at the log's end. Raises OffsetOutOfRangeError, CorruptMessageError (unreadable headers), StorageError.
        """
        self.check_offset(offset)
        if offset >= upper_offset:
            return NOTHING_YET
        try:
            return self._segments.read(offset, size_max, upper_offset, at_least_one)
        except OSError as error:
            raise storage_error(self._files, self.directory, error) from error

    def storage_errors(self) -> AbstractContextManager[None]:
        """For who reads the bytes of a slice: errors of the disk become StorageError, as in the log's own reads."""
        return storage_errors(self._files, self.directory)

    def segment_end(self, offset: int) -> int:
        """Where the segment that holds `offset` ends, and another may be readable when this one is not."""
        return self._segments.end_at(offset)

    def aborted_transactions(self, offset: int, found: LogSlice) -> list[AbortedTransaction]:
        """Those that readers of committed records pass over in what they got from `offset` on."""
        with storage_errors(self._files, self.directory):
            return self._segments.aborted(offset, found)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp_ms`, or None."""
        with storage_errors(self._files, self.directory):
            return timestamps.first_at_or_after(self._segments, timestamp_ms, self.log_start_offset)

    def latest_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp (KIP-734), or None for an empty log."""
        with storage_errors(self._files, self.directory):
            return timestamps.largest(self._segments)

    def epoch_end_offset(self, epoch: int) -> EpochEndOffset:
        """The largest known epoch not above `epoch` and the offset where it ends."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that `offset` belongs to; -1 when none is known."""
        return self.epochs.epoch_at(offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Let readers see up to `offset` (exclusive), at most the log's end; it never goes back."""
        if offset > self.high_watermark:
            self.high_watermark = min(offset, self.log_end_offset)

    # -- change of segments

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty.

        Appends do so when it is due; an idle log keeps its active segment, as in Kafka.
        """
        if self._segments.active.size:
            with storage_errors(self._files, self.directory):
                self._roll(self.log_end_offset, self.log_end_offset, now_ms)

    def delete_retired(self, now_ms: int) -> list[DeletedSegment]:
        """Take away the segments that retention by time or size no longer keeps, or that DeleteRecords passed.

        Compacted topics without `delete` keep all but the latter. Files go after file.delete.delay.ms.
        """
        deletes = "delete" in self.config.cleanup_policy
        with storage_errors(self._files, self.directory):
            self._segments.remove_due(now_ms)
            reasons = retired(
                self._segments.facts(),
                retention_ms=self.config.retention_ms if deletes else -1,
                retention_bytes=self.config.retention_bytes if deletes else -1,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
            )
            if not reasons:
                return []
            if len(reasons) == len(self._segments):
                self._roll(self.log_end_offset, self.log_end_offset, now_ms)
            deleted = self._segments.take_first(reasons, now_ms, self.config.file_delete_delay_ms)
            first_base_offset = next(iter(self._segments)).base_offset
            self._move_start(first_base_offset)
            self._snapshots.remove(lambda offset: offset < first_base_offset)
        return deleted

    def delete_before(self, offset: int) -> None:
        """Move the log start offset up to `offset` (DeleteRecords); whole segments below it go with `delete_retired`.

        Raises OffsetOutOfRangeError above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"Records of {self.topic}-{self.partition} can be deleted up to {self.high_watermark}, not {offset}."
            )
        with storage_errors(self._files, self.directory):
            self._move_start(offset)

    def _move_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            self.epochs.truncate_from_start(offset)

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that ends at or above `offset`, where the log then ends."""
        if offset >= self.log_end_offset:
            return
        if offset <= self.log_start_offset:
            self.start_at(offset)
            return
        with storage_errors(self._files, self.directory):
            # Where the last batch before a gap ends is not known yet; its segment's begin is low enough.
            self.cleaner.log_ends_at(offset)
            self._lower_recovery_point(self._segments.base_offset_at(offset))
            self._segments.truncate_to(offset)
            self.epochs.truncate_from_end(offset)
            self._end_at(offset)
            self._producers, findings = self._snapshots.restore(self._segments, offset)
            self.findings += findings

    def start_at(self, offset: int) -> None:
        """Drop everything and begin anew at `offset` (the empty target of a mirror, a follower that fell behind)."""
        with storage_errors(self._files, self.directory):
            self.cleaner.log_ends_at(offset)
            self._lower_recovery_point(offset)
            self._producers.clear()
            self._snapshots.remove(lambda _: True)
            self._segments.restart_at(offset, self.config, self._segments.active.created_ms)
            self.epochs.clear()
        self._end_at(offset)
        self.log_start_offset = self.high_watermark = offset

    def _end_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.latest_epoch = self.epochs.latest

    def _lower_recovery_point(self, offset: int) -> None:
        """On the disk as well, before other batches get the offsets above: recovery would believe them unchecked."""
        self._flusher.log_ends_at(offset)
        self.on_recovery_point_lowered()

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been silent for `expiration_ms`; returns how many."""
        return self._producers.expire(now_ms, self.high_watermark, expiration_ms)

    # -- flush and close

    def take_findings(self) -> list[Finding]:
        """What was found since the last call; for a log line or a metric."""
        taken, self.findings = self.findings, []
        return taken

    @property
    def recovery_point(self) -> int:
        """Every batch below it is on the disk."""
        return self._flusher.recovery_point

    def flush_due(self, monotonic_ms: int) -> bool:
        """Whether data should be flushed now: a segment was rolled, or flush.ms is over."""
        return self._flusher.is_due(self._segments.active.next_offset, monotonic_ms, self.config.flush_ms)

    def flush_task(self) -> Callable[[], int] | None:
        """A job for a thread: it syncs all appended so far and returns the new recovery point. None: nothing to do.

        Hand its answer to `flushed` on the loop. One job is out at a time. The job raises StorageError.
        """
        return self._flusher.task(self._segments.active.next_offset)

    def flushed(self, recovery_point: int | None) -> None:
        """The end of a flush job: its answer, or None when it failed."""
        self._flusher.done(recovery_point)

    def close(self) -> None:
        """Write the producers' snapshot, complete the indexes, sync everything; nothing may be called afterwards."""
        with storage_errors(self._files, self.directory):
            self._snapshots.write(self._segments.active.next_offset, self._producers)
            self._segments.close()
            self._segments.names_changed()
        self._flusher.flush(self._segments.active.next_offset)
