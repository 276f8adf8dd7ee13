"""One partition's log as others know it: who it is, how it is configured, where it begins and ends, and what it holds.

What that lies in is its `body`, the files of one directory; a move to another directory sets the body, and whoever holds
the log goes on with it. `appender.py` appends, `cleaning.py` compacts, `truncation.py` cuts, `moving.py` moves.
Invariants: offsets never go back and are never used twice; a refused or failed change changes nothing; what is
read begins at a batch and ends at `upper_offset` at the latest; one writer, the event loop, calls all of it but the
flush jobs. Must not know: sockets, replication, ZooKeeper, the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from uuid import UUID

from headrace.broker.config.keys import LONG_MAX
from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import OffsetOutOfRangeError
from headrace.broker.log import names, timestamps
from headrace.broker.log.body import LogBody
from headrace.broker.log.cleaning import LogCleaner
from headrace.broker.log.files import Files, storage_error, storage_errors
from headrace.broker.log.producers import ProducerStates
from headrace.broker.log.progress import OpeningProgress
from headrace.broker.log.recovery import load
from headrace.broker.log.results import (
    NOTHING_YET,
    DeletedSegment,
    EpochEndOffset,
    Job,
    LogFinding,
    LogSlice,
    RecoveryReport,
    TimestampOffset,
)
from headrace.broker.log.retention import retired
from headrace.broker.log.transactions import AbortedTransaction
from headrace.broker.wire.compression import target_codec


class PartitionLog:
    """See the module's text; made by `open`.

    `high_watermark` is where readers' view ends, `last_stable_offset` where that of read_committed ends,
    `recovery_point` the offset below which every batch has been synced. All offsets are exclusive ends. `restless` has
    it as a key from any change on that may leave something for the disk until somebody found it `is_at_rest`.
    What every append or fetch asks for is a slot, not a property.
    """

    __slots__ = (
        "awaits_sync",
        "body",
        "cleaner",
        "codec",
        "config",
        "directory",
        "findings",
        "high_watermark",
        "is_compacted",
        "is_mirror_copy",
        "is_stamping",
        "is_truncating",
        "log_end_offset",
        "log_start_offset",
        "lost_end",
        "opens_batches",
        "partition",
        "restless",
        "rotten_places",
        "topic",
        "topic_id",
    )

    def __init__(
        self, body: LogBody, config: LogConfig, *, topic_id: UUID | None, log_start_offset: int
    ) -> None:
        name = names.partition_of(body.directory.rpartition("/")[2])
        if name is None:
            raise ValueError(f"{body.directory} is not named <topic>-<partition>")
        self.topic, self.partition = name
        self.topic_id = topic_id
        self.log_start_offset = self.high_watermark = log_start_offset
        self.log_end_offset = body.segments.active.next_offset
        # The high watermark of before an unclean stop where the log ends below it now, until it has it all again.
        self.lost_end: int | None = None
        self.findings: list[LogFinding] = []
        # How many stretches of bad bytes recovery found in it, and kept.
        self.rotten_places = 0
        # Whether a thread cuts it (`truncation.py`): nobody else works on its body meanwhile.
        self.is_truncating = False
        self.config = config
        # A dict for its order.
        self.restless: dict[PartitionLog, None] = {}
        self.go_on_in(body)

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
            log = cls(
                LogBody(files, directory, loaded),
                config,
                topic_id=loaded.topic_id,
                log_start_offset=loaded.log_start_offset,
            )
        log.rotten_places = report.rotten_places
        return log, report

    def go_on_in(self, body: LogBody) -> None:
        """From now on the log lies in `body`, which holds all that is between its offsets."""
        self.body = body
        self.directory = body.directory
        self.cleaner = LogCleaner(body)
        self.update_config(self.config)

    def update_config(self, config: LogConfig) -> None:
        """Use a changed topic configuration from the next operation on."""
        self.restless[self] = None
        self.config = config
        self.is_stamping = config.message_timestamp_type == "LogAppendTime"
        self.codec = target_codec(config.compression_type)
        self.is_compacted = "compact" in config.cleanup_policy
        # Whether what clients append is unpacked, record by record: that takes time, others wait.
        self.opens_batches = self.codec is not None or self.is_compacted
        self.is_mirror_copy = config.is_mirror_copy
        self.awaits_sync = config.flush_messages < LONG_MAX
        self.body.segments.use_config(config)

    @property
    def is_sync_due(self) -> bool:
        """Whether `flush.messages` wants what was appended to be on the disk before it is answered."""
        return self.log_end_offset - self.body.flusher.recovery_point >= self.config.flush_messages

    @property
    def has_failed(self) -> bool:
        """Whether a sync failed: nothing that is not on the disk yet will be vouched for."""
        return self.body.flusher.has_failed

    @property
    def size(self) -> int:
        """Bytes of all its `.log` files."""
        return self.body.segments.size

    @property
    def last_stable_offset(self) -> int:
        """Below it lies no open transaction and nothing above the high watermark."""
        return self.body.producers.last_stable_offset(self.high_watermark, self.log_start_offset)

    @property
    def producers(self) -> ProducerStates:
        """The idempotent and transactional producers known here."""
        return self.body.producers

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch; -1 when none is known."""
        return self.body.epochs.latest

    @property
    def has_moved_start(self) -> bool:
        """Whether DeleteRecords moved the start into the first segment, which its name does not tell."""
        return self.log_start_offset > next(iter(self.body.segments)).base_offset

    @property
    def segment_count(self) -> int:
        """How many segments it has; at least one."""
        return len(self.body.segments)

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
        if not self.log_start_offset <= offset <= self.log_end_offset:
            self.check_offset(offset)
        if offset >= upper_offset or self.is_truncating:
            return NOTHING_YET
        try:
            return self.body.segments.read(offset, size_max, upper_offset, at_least_one)
        except OSError as error:
            raise storage_error(self.body.files, self.directory, error) from error

    def storage_errors(self) -> AbstractContextManager[None]:
        """For who reads the bytes of a slice: errors of the disk become StorageError, as in the log's own reads."""
        return self.body.storage_errors()

    def segment_end(self, offset: int) -> int:
        """Where the segment that holds `offset` ends, and another may be readable when this one is not."""
        return self.body.segments.end_at(offset)

    def aborted_transactions(self, offset: int, found: LogSlice) -> list[AbortedTransaction]:
        """Those that readers of committed records pass over in what they got from `offset` on."""
        with self.body.storage_errors():
            return self.body.segments.aborted(offset, found)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp_ms`, or None."""
        with self.body.storage_errors():
            return timestamps.first_at_or_after(self.body.segments, timestamp_ms, self.log_start_offset)

    def latest_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp (KIP-734), or None for an empty log."""
        with self.body.storage_errors():
            return timestamps.largest(self.body.segments)

    def epoch_end_offset(self, epoch: int) -> EpochEndOffset:
        """The largest known epoch not above `epoch` and the offset where it ends."""
        return self.body.epochs.end_offset(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that `offset` belongs to; -1 when none is known."""
        return self.body.epochs.epoch_at(offset)

    def has_epoch_from(self, offset: int) -> bool:
        """Whether a leader epoch is known that begins at `offset` or behind."""
        entries = self.body.epochs.entries
        return bool(entries) and entries[-1][1] >= offset

    def assign_epoch(self, epoch: int) -> None:
        """Begin a leader epoch at the log's end: this broker has become leader."""
        self.restless[self] = None
        with self.body.storage_errors():
            self.body.epochs.assign(epoch, self.log_end_offset)

    def epoch_task(self) -> Job | None:
        """A job for a thread that notes new leader epochs on the disk, before a flush has to; None: nothing to do, or one is
        out already. Call `epochs_noted` on the loop when it has ended, however. The job raises OSError.
        """
        epochs = self.body.epochs
        if self.is_truncating or epochs.is_written or epochs.is_being_written:
            return None
        return epochs.writing()

    def epochs_noted(self) -> None:
        """The end of the job of `epoch_task`."""
        self.body.epochs.job_done()
        self.body.segments.names_changed()

    def advance_high_watermark(self, offset: int) -> None:
        """Let readers see up to `offset` (exclusive), at most the log's end; it never goes back."""
        if offset > self.high_watermark:
            self.high_watermark = min(offset, self.log_end_offset)

    # -- change of segments

    def delete_retired(self, now_ms: int) -> list[DeletedSegment]:
        """Take away the segments that retention by time or size no longer keeps, or that DeleteRecords passed.

        Compacted topics without `delete` keep all but the latter. Files go after file.delete.delay.ms.
        """
        deletes = "delete" in self.config.cleanup_policy
        with self.body.storage_errors():
            self.body.segments.remove_due(now_ms)
            reasons = retired(
                self.body.segments.facts(),
                retention_ms=self.config.retention_ms if deletes else -1,
                retention_bytes=self.config.retention_bytes if deletes else -1,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
            )
            if not reasons:
                return []
            if len(reasons) == len(self.body.segments):
                self.restless[self] = None
                self.body.roll(self.log_end_offset, self.log_end_offset, self.config, now_ms)
            deleted = self.body.segments.take_first(reasons, now_ms, self.config.file_delete_delay_ms)
            first_base_offset = next(iter(self.body.segments)).base_offset
            self._move_start(first_base_offset)
            self.body.snapshots.remove(lambda offset: offset < first_base_offset)
        return deleted

    def delete_before(self, offset: int) -> None:
        """Move the log start offset up to `offset` (DeleteRecords); whole segments below it go with `delete_retired`.

        Raises OffsetOutOfRangeError above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"Records of {self.topic}-{self.partition} can be deleted up to {self.high_watermark}, not {offset}."
            )
        with self.body.storage_errors():
            self._move_start(offset)

    def _move_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            self.body.epochs.truncate_from_start(offset)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been silent for `expiration_ms`; returns how many."""
        return self.body.producers.expire(now_ms, self.high_watermark, expiration_ms)

    # -- flush and close

    def take_findings(self) -> list[LogFinding]:
        """What was found since the last call; for a log line or a metric."""
        taken, self.findings = self.findings, []
        return taken

    @property
    def recovery_point(self) -> int:
        """Every batch below it is on the disk."""
        return self.body.flusher.recovery_point

    @property
    def is_flushed(self) -> bool:
        """Whether there is nothing to flush, as in a log that rests."""
        body = self.body
        segments = body.segments
        return body.flusher.recovery_point >= segments.active.next_offset and not segments.has_rolled

    @property
    def is_at_rest(self) -> bool:
        """Whether no flush, no note of an epoch and no new high watermark will be due before something changes, however late."""
        body = self.body
        if self.high_watermark != self.log_end_offset or self.lost_end is not None:
            return False
        if body.segments.has_rolled or not body.epochs.is_written:
            return False
        return self.config.flush_ms == LONG_MAX or self.is_flushed

    def flush_due(self, monotonic_ms: int, looked_ms: int) -> bool:
        """Whether data should be flushed now: a segment was rolled, or flush.ms is over.

        `looked_ms`: when it was asked last, of a log that `is_flushed` had it been asked.
        """
        if self.is_truncating:
            return False
        return self.body.flusher.is_due(monotonic_ms, looked_ms, self.config.flush_ms)

    def flush_task(self) -> Callable[[], int] | None:
        """A job for a thread: it syncs all appended so far and returns the new recovery point. None: nothing to do.

        Hand its answer to `flushed` on the loop. One job is out at a time. The job raises StorageError.
        """
        if self.is_truncating:
            return None
        return self.body.flusher.task(self.body.segments.active.next_offset)

    def flushed(self, recovery_point: int | None) -> None:
        """The end of a flush job: its answer, or None when it failed."""
        self.body.flusher.done(recovery_point)

    def close(self) -> None:
        """Bring all of it to the disk; nothing may be called afterwards."""
        self.body.close()
