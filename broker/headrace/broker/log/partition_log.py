"""One partition's log: append, read, roll, retire.

Invariants: offsets never go back and are never used twice; a refused or failed append changes nothing; what is read
begins at a batch and ends at `upper_offset` at the latest; at most one writer, the event loop, calls it.
Must not know: sockets, replication, ZooKeeper, the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from headrace.broker.config import LogConfig
from headrace.broker.log.files import Files
from headrace.broker.log.results import (
    AppendResult,
    DeletedSegment,
    EpochEndOffset,
    LogSlice,
    RecoveryReport,
    TimestampOffset,
)


class PartitionLog:
    """See the module's text; made by `open`."""

    topic: str
    partition: int
    topic_id: UUID | None
    directory: str
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    recovery_point: int
    size: int
    latest_epoch: int

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
    ) -> tuple[PartitionLog, RecoveryReport]:
        """Open the log in `directory` (`<topic>-<partition>`, made when missing), recovering it after an unclean stop.

        `recovery_point`: every batch below it was synced. `topic_id` is written to `partition.metadata` of a new log.
        Raises StorageError.
        """
        raise NotImplementedError

    def append_as_leader(
        self, records: memoryview, *, leader_epoch: int, now_ms: int, from_client: bool = True
    ) -> AppendResult:
        """Check `records` (whole v2 batches, writable), stamp offsets and epoch into it and append it.

        `from_client=False` is for the broker's own coordinators: control batches and several batches are allowed.
        Raises CorruptMessageError, InvalidRecordError, MessageTooLargeError, RecordListTooLargeError,
        InvalidTimestampError, UnsupportedForMessageFormatError, OutOfOrderSequenceError, InvalidProducerEpochError,
        StorageError; the log is then as it was.
        """
        raise NotImplementedError

    def append_as_follower(self, records: memoryview, *, now_ms: int) -> AppendResult:
        """Append batches fetched from the leader: offsets and epochs kept; must begin at or after the log's end."""
        raise NotImplementedError

    def append_mirrored(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append batches of a source log: offsets kept (gaps are legal), the epoch stamped with the target's own."""
        raise NotImplementedError

    def start_at(self, offset: int) -> None:
        """Drop everything and begin anew at `offset` (the empty target of a mirror, a follower that fell behind)."""
        raise NotImplementedError

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that ends at or above `offset`; the log end offset becomes at most `offset`."""
        raise NotImplementedError

    def advance_high_watermark(self, offset: int) -> None:
        """Let readers see up to `offset` (exclusive)."""
        raise NotImplementedError

    def update_config(self, config: LogConfig) -> None:
        """Use a changed topic configuration from the next operation on."""
        raise NotImplementedError

    def read(self, offset: int, *, size_max: int, upper_offset: int, at_least_one: bool = True) -> LogSlice:
        """At most `size_max` bytes from the batch that holds `offset` (or the next one), below `upper_offset`.

        With `at_least_one` the first batch is whole even when it is larger. An empty slice at the log's end.
        Raises OffsetOutOfRangeError below the log start offset or above the log end offset.
        """
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp_ms`, or None."""
        raise NotImplementedError

    def latest_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp (KIP-734), or None for an empty log."""
        raise NotImplementedError

    def epoch_end_offset(self, epoch: int) -> EpochEndOffset:
        """The largest known epoch not above `epoch` and the offset where it ends."""
        raise NotImplementedError

    def roll_if_due(self, now_ms: int) -> bool:
        """Begin a new segment when the active one is over its time."""
        raise NotImplementedError

    def delete_retired(self, now_ms: int) -> list[DeletedSegment]:
        """Take away the segments that retention by time or size no longer keeps; compacted topics keep all."""
        raise NotImplementedError

    def delete_before(self, offset: int) -> list[DeletedSegment]:
        """Move the log start offset to `offset` (DeleteRecords). Raises OffsetOutOfRangeError above the high watermark."""
        raise NotImplementedError

    def flush_due(self, now_ms: int) -> bool:
        """Whether unsynced data should be flushed now: a segment was rolled, flush.messages or flush.ms is reached."""
        raise NotImplementedError

    def flush_task(self) -> Callable[[], int] | None:
        """A job for a thread that syncs all appended so far and returns the new recovery point; None with nothing to do.

        Hand its answer to `flushed()` on the loop. One job is out at a time. The job raises StorageError.
        """
        raise NotImplementedError

    def flushed(self, recovery_point: int | None) -> None:
        """The end of a flush job: its answer, or None when it failed."""
        raise NotImplementedError

    def close(self) -> None:
        """Flush, write the producers' snapshot, trim and close all files."""
        raise NotImplementedError
