"""One partition's log: append, read, roll, retire.

Invariants: offsets never go back and are never used twice; a refused or failed append changes nothing; what is
read begins at a batch and ends at `upper_offset` at the latest; one writer, the event loop, calls all of it but the
flush jobs. Must not know: sockets, replication, ZooKeeper, the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from headrace.broker.config import LogConfig
from headrace.broker.errors import NotOneBatchError, OffsetOutOfRangeError
from headrace.broker.log import names, timestamps
from headrace.broker.log.cleaning import LogCleaner
from headrace.broker.log.files import Files, storage_error, storage_errors
from headrace.broker.log.flushing import Flusher
from headrace.broker.log.index import INT32_MAX
from headrace.broker.log.producers import CachedBatch, ProducerStates
from headrace.broker.log.recovery import LoadedLog, load
from headrace.broker.log.results import (
    AppendResult,
    DeletedSegment,
    EpochEndOffset,
    Finding,
    LogSlice,
    RecoveryReport,
    TimestampOffset,
)
from headrace.broker.log.retention import retired
from headrace.broker.log.segment import Place, Segment
from headrace.broker.log.segments import EMPTY_SLICE, Segments
from headrace.broker.log.snapshots import ProducerSnapshots
from headrace.broker.log.transactions import AbortedTransaction
from headrace.broker.log.validation import (
    check_client_batch,
    check_integrity,
    check_keys,
    check_sizes,
    check_timestamps,
    header_at,
    numbered_batches,
    placed_batches,
    runs,
    stamp_append_time,
    whole_batches,
)
from headrace.broker.wire.batches import BatchHeader, read_header, set_base_offset_and_epoch
from headrace.broker.wire.compression import target_codec
from headrace.broker.wire.conversion import recompressed


class PartitionLog:
    """See the module's text; made by `open`.

    `high_watermark` is where readers' view ends, `last_stable_offset` where that of read_committed ends,
    `recovery_point` the offset below which every batch has been synced. All offsets are exclusive ends.
    """

    def __init__(self, files: Files, directory: str, config: LogConfig, loaded: LoadedLog) -> None:
        name = names.partition_of(directory.rpartition("/")[2])
        if name is None:
            raise ValueError(f"{directory} is not named <topic>-<partition>")
        self.topic, self.partition = name
        self.directory = directory
        self.topic_id = loaded.topic_id
        self.findings: list[Finding] = []
        self.on_recovery_point_lowered: Callable[[], None] = lambda: (
            None
        )  # Set by a store, which has checkpoints.
        self._files = files
        self._segments = Segments(files, directory, loaded.segments, loaded.checked)
        self.epochs = loaded.epochs
        self._producers = loaded.producers
        self._snapshots = ProducerSnapshots(files, directory)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self._segments.active.next_offset
        self.high_watermark = self.log_start_offset
        self._flusher = Flusher(files, directory, self._segments, self._snapshots, loaded.recovery_point)
        self.cleaner = LogCleaner(files, directory, self._segments, self._snapshots)
        self.latest_epoch = self.epochs.latest
        self.update_config(config)

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
            )
            return cls(files, directory, config, loaded), report

    def update_config(self, config: LogConfig) -> None:
        """Use a changed topic configuration from the next operation on."""
        self.config = config
        self._is_stamping = config.message_timestamp_type == "LogAppendTime"
        self._codec = target_codec(config.compression_type)
        self._segment_ms = self._segments.jittered_segment_ms(config)

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

    # -- append

    def append_as_leader(
        self, records: memoryview, *, leader_epoch: int, now_ms: int, from_client: bool = True
    ) -> AppendResult:
        """Check `records` (whole v2 batches, writable), stamp offsets and epoch into it and append it.

        A client may send one batch; `from_client=False` is for the broker's own coordinators, which may write
        control batches and several batches at once.
        Raises CorruptMessageError, InvalidRecordError, MessageTooLargeError, RecordListTooLargeError,
        InvalidTimestampError, UnsupportedForMessageFormatError, OutOfOrderSequenceError,
        InvalidProducerEpochError, StorageError; the log is then as it was.
        """
        header = header_at(records, 0)
        size = len(records)
        if header.length + 12 != size:
            return self._append_several(records, leader_epoch, now_ms, from_client)
        repeated = self._check_one(records, header, now_ms, from_client)
        if repeated is not None:
            return AppendResult(*repeated.answer, self.log_start_offset, 0)
        if self._codec is not None and header.codec != self._codec and from_client:
            records = recompressed(records, header, self._codec)
            header, size = read_header(records), len(records)
            check_sizes(size, size, self.config)
        append_time_ms = -1
        if self._is_stamping:
            append_time_ms = now_ms
            header = stamp_append_time(records, 0, header, now_ms)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        set_base_offset_and_epoch(records, 0, base_offset, leader_epoch)
        config, segment = self.config, self._segments.active
        try:
            if leader_epoch != self.latest_epoch:
                self._assign_epoch(leader_epoch, base_offset)
            if segment.must_roll(
                size, last_offset, header.max_timestamp, now_ms, config.segment_bytes, self._segment_ms
            ):
                segment = self._roll(base_offset, last_offset, now_ms)
            position = segment.write(records)
        except OSError as error:
            raise storage_error(self._files, self.directory, error) from error
        segment.note(position, size, last_offset, header.max_timestamp)
        self.log_end_offset = last_offset + 1
        if header.producer_id >= 0:
            segment.note_marker(self._producers.note(records, 0, header, base_offset))
        if last_offset - self._flusher.recovery_point >= config.flush_messages - 1:
            self._flusher.flush(self._segments.active.next_offset)
        answer = (base_offset, last_offset, append_time_ms, self.log_start_offset, 1)
        return tuple.__new__(AppendResult, answer)  # half the time of a call of the class

    def _check_one(
        self, records: memoryview, header: BatchHeader, now_ms: int, from_client: bool
    ) -> CachedBatch | None:
        """Refuse the only batch of an append, or tell which earlier one it repeats."""
        config = self.config
        size = len(records)
        if size > config.max_message_bytes or size > config.segment_bytes:
            check_sizes(size, size, config)
        check_integrity(records, 0, header)
        if not from_client:
            self._producers.check_epoch(header)
            return None
        check_client_batch(header)
        check_timestamps(records, header, config, now_ms)
        if "compact" in config.cleanup_policy:
            check_keys(records, header, config, now_ms)
        return self._producers.check(header) if header.producer_id >= 0 else None

    def _append_several(
        self, records: memoryview, leader_epoch: int, now_ms: int, from_client: bool
    ) -> AppendResult:
        places = whole_batches(records, must_end=not from_client)
        if from_client and len(places) == 1:
            # Bytes behind the batch that are no whole batch are passed over, as in Kafka.
            return self.append_as_leader(
                records[: places[0].header.size], leader_epoch=leader_epoch, now_ms=now_ms
            )
        if from_client:
            raise NotOneBatchError(
                f"A produce request holds {len(places)} batches for {self.topic}-{self.partition}: send exactly one."
            )
        base_offset = self.log_end_offset
        placed = numbered_batches(records, places, base_offset, self.config)
        for _, header in placed:
            self._producers.check_epoch(header)
        for index, (position, header) in enumerate(placed):
            if self._is_stamping:
                placed[index] = Place(position, stamp_append_time(records, position, header, now_ms))
            set_base_offset_and_epoch(records, position, header.base_offset, leader_epoch)
        with storage_errors(self._files, self.directory):
            self._assign_epoch(leader_epoch, base_offset)
            self._append_run(records, placed, now_ms)
        append_time_ms = now_ms if self._is_stamping else -1
        last_offset = self.log_end_offset - 1
        return AppendResult(base_offset, last_offset, append_time_ms, self.log_start_offset, len(placed))

    def append_as_follower(self, records: memoryview, *, now_ms: int) -> AppendResult:
        """Append batches fetched from the leader, their offsets and epochs kept; a last batch that is cut is left.

        Raises CorruptMessageError, InvalidRecordError (offsets below the log's end), StorageError.
        """
        placed = placed_batches(records, self.log_end_offset)
        with storage_errors(self._files, self.directory):
            result = self._append_placed(records, placed, now_ms)
            for _, header in placed:
                self._assign_epoch(header.leader_epoch, header.base_offset)
        return result

    def append_mirrored(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append batches of a source's log: offsets kept, gaps are legal, the epoch stamped with the target's own.

        A last batch that is cut is left. Raises as `append_as_follower`.
        """
        placed = placed_batches(records, self.log_end_offset)
        for position, header in placed:
            set_base_offset_and_epoch(records, position, header.base_offset, leader_epoch)
        with storage_errors(self._files, self.directory):
            self._assign_epoch(leader_epoch, self.log_end_offset)
            return self._append_placed(records, placed, now_ms)

    def _append_placed(self, records: memoryview, placed: list[Place], now_ms: int) -> AppendResult:
        first_offset = placed[0].header.base_offset if placed else self.log_end_offset
        for run in runs(placed, self.config.segment_bytes):
            self._append_run(records, run, now_ms)
        return AppendResult(first_offset, self.log_end_offset - 1, -1, self.log_start_offset, len(placed))

    def _append_run(self, records: memoryview, run: list[Place], now_ms: int) -> None:
        """One write for batches that fit one segment."""
        (start, first), (position, last) = run[0], run[-1]
        end = position + last.size
        segment = self._segments.active
        newest_ms = max(header.max_timestamp for _, header in run)
        if segment.must_roll(
            end - start, last.last_offset, newest_ms, now_ms, self.config.segment_bytes, self._segment_ms
        ):
            segment = self._roll(first.base_offset, last.last_offset, now_ms)
        written_at = segment.write(records[start:end]) - start
        for position, header in run:
            segment.note(written_at + position, header.size, header.last_offset, header.max_timestamp)
            if header.producer_id >= 0:
                segment.note_marker(self._producers.note(records, position, header, header.base_offset))
        self.log_end_offset = last.last_offset + 1
        if self.log_end_offset - self._flusher.recovery_point >= self.config.flush_messages:
            self._flusher.flush(self._segments.active.next_offset)

    def assign_epoch(self, epoch: int) -> None:
        """Begin a leader epoch at the log's end: this broker has become leader."""
        with storage_errors(self._files, self.directory):
            self._assign_epoch(epoch, self.log_end_offset)

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        self.epochs.assign(epoch, start_offset)
        self.latest_epoch = self.epochs.latest

    # -- read

    def read(self, offset: int, *, size_max: int, upper_offset: int, at_least_one: bool = True) -> LogSlice:
        """At most `size_max` bytes from the batch that holds `offset` (or the next one), below `upper_offset`.

        With `at_least_one` the first batch is whole even when it is larger, else the slice is then empty, as it is
        at the log's end. Raises OffsetOutOfRangeError, CorruptMessageError (unreadable headers), StorageError.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"Offset {offset} of {self.topic}-{self.partition} is outside "
                f"{self.log_start_offset} to {self.log_end_offset}."
            )
        if offset >= upper_offset:
            return EMPTY_SLICE
        try:
            return self._segments.read(offset, size_max, upper_offset, at_least_one)
        except OSError as error:
            raise storage_error(self._files, self.directory, error) from error

    def aborted_transactions(self, offset: int, found: LogSlice) -> list[AbortedTransaction]:
        """Those that readers of committed records pass over in what they got from `offset` on."""
        with storage_errors(self._files, self.directory):
            return self._segments.aborted(offset, found)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp_ms`, or None."""
        with storage_errors(self._files, self.directory):
            found = timestamps.first_at_or_after(self._segments, timestamp_ms, self.log_start_offset)
        return None if found is None else TimestampOffset(*found, self.epochs.epoch_at(found[0]))

    def latest_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp (KIP-734), or None for an empty log."""
        with storage_errors(self._files, self.directory):
            found = timestamps.largest(self._segments)
        return None if found is None else TimestampOffset(*found, self.epochs.epoch_at(found[0]))

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

    def _roll(self, first_offset: int, last_offset: int, now_ms: int) -> Segment:
        """Begin a segment for batches with these offsets.

        It is named after the end of the one before, so that recovery can tell a legal gap from a lost tail. Only a
        gap wider than 32 bits cannot be inside a segment: then the tail must not get lost.
        """
        base_offset = self._segments.active.next_offset
        if last_offset - base_offset > INT32_MAX:
            self._flusher.flush(self._segments.active.next_offset)
            base_offset = first_offset
        self._snapshots.write(base_offset, self._producers)
        segment = self._segments.roll(base_offset, self.config, now_ms)
        self._segment_ms = self._segments.jittered_segment_ms(self.config)
        return segment

    def roll_if_due(self, now_ms: int) -> bool:
        """Begin a new segment when the active one is over its time."""
        if not self._segments.active.is_over(now_ms, self._segment_ms):
            return False
        with storage_errors(self._files, self.directory):
            self._roll(self.log_end_offset, self.log_end_offset, now_ms)
        return True

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
            deleted = self._segments.take_first(reasons, now_ms + self.config.file_delete_delay_ms)
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

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that have been silent for a day; returns how many."""
        return self._producers.expire(now_ms, self.high_watermark)

    # -- flush and close

    def take_findings(self) -> list[Finding]:
        """What was found since the last call; for a log line or a metric."""
        taken, self.findings = self.findings, []
        return taken

    @property
    def recovery_point(self) -> int:
        """Every batch below it is on the disk."""
        return self._flusher.recovery_point

    def flush_due(self, now_ms: int) -> bool:
        """Whether data should be flushed now: a segment was rolled, or flush.ms is over."""
        return self._flusher.is_due(self._segments.active.next_offset, now_ms, self.config.flush_ms)

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
