"""One partition's log: append, read, roll, retire.

Invariants: offsets never go back and are never used twice; a refused or failed append changes nothing; what is
read begins at a batch and ends at `upper_offset` at the latest; one writer, the event loop, calls all of it but the
flush jobs. Must not know: sockets, replication, ZooKeeper, the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID
from zlib import crc32

from headrace.broker.config import LogConfig
from headrace.broker.errors import (
    InvalidRecordError,
    OffsetOutOfRangeError,
    StorageError,
)
from headrace.broker.log import names, timestamps
from headrace.broker.log.files import Files
from headrace.broker.log.producers import ProducerStates
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
from headrace.broker.log.validation import (
    check_client_batch,
    check_integrity,
    check_sizes,
    check_timestamps,
    header_at,
    stamp_append_time,
    whole_batches,
)
from headrace.broker.wire.batches import (
    BatchHeader,
    set_base_offset_and_epoch,
)

_CONTROL_BIT = 0x20


@contextmanager
def _storage_errors(directory: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{directory}: {error.strerror or error}. Free or repair the disk.") from error


class PartitionLog:
    """See the module's text; made by `open`.

    `high_watermark` is where readers' view ends, `last_stable_offset` where that of read_committed ends,
    `recovery_point` the offset below which every batch has been synced. All offsets are exclusive ends.
    """

    __slots__ = (
        "_epochs",
        "_files",
        "_flush_end",
        "_is_stamping",
        "_last_flush_ms",
        "_producers",
        "_segment_ms",
        "_segments",
        "_snapshots",
        "config",
        "directory",
        "findings",
        "high_watermark",
        "latest_epoch",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "recovery_point",
        "topic",
        "topic_id",
    )

    def __init__(self, files: Files, directory: str, config: LogConfig, loaded: LoadedLog) -> None:
        name = names.parse_partition_directory(directory.rpartition("/")[2])
        if name is None:
            raise ValueError(f"{directory} is not named <topic>-<partition>")
        self.topic, self.partition = name
        self.directory = directory
        self.topic_id = loaded.topic_id
        self.findings: list[Finding] = []
        self._files = files
        self._segments = Segments(files, directory, loaded.segments)
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._flush_end: int | None = None
        self._last_flush_ms = 0
        self._snapshots = ProducerSnapshots(files, directory)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self._segments.active.next_offset
        self.high_watermark = self.log_start_offset
        self.recovery_point = min(loaded.recovery_point, self.log_end_offset)
        self.latest_epoch = self._epochs.latest
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
        with _storage_errors(directory):
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
        self._segment_ms = self._jittered_segment_ms()

    def _jittered_segment_ms(self) -> int:
        """segment.ms less a part of segment.jitter.ms that differs by partition and segment, yet is no accident."""
        jitter_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        if jitter_ms == 0:
            return self.config.segment_ms
        seed = f"{self.topic}-{self.partition}-{self._segments.active.base_offset}".encode()
        return self.config.segment_ms - crc32(seed) % jitter_ms

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
        config = self.config
        if size > config.max_message_bytes or size > config.segment_bytes:
            check_sizes(size, size, config)
        check_integrity(records, 0, header)
        if from_client:
            check_client_batch(header)
            check_timestamps(header, config, now_ms)
        producer_id = header.producer_id
        if producer_id >= 0:
            if from_client:
                repeated = self._producers.check(header)
                if repeated is not None:
                    return AppendResult(
                        repeated.first_offset, repeated.last_offset, -1, self.log_start_offset, 0
                    )
            else:
                self._producers.check_epoch(header)
        append_time_ms = -1
        if self._is_stamping:
            append_time_ms = now_ms
            header = stamp_append_time(records, 0, header, now_ms)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        set_base_offset_and_epoch(records, 0, base_offset, leader_epoch)
        segment = self._segments.active
        try:
            if leader_epoch != self.latest_epoch:
                self._assign_epoch(leader_epoch, base_offset)
            if segment.must_roll(
                size, last_offset, header.max_timestamp, now_ms, config.segment_bytes, self._segment_ms
            ):
                segment = self._roll(base_offset, now_ms)
            position = segment.write(records)
        except OSError as error:
            raise StorageError(
                f"{self.directory}: {error.strerror or error}. Free or repair the disk."
            ) from error
        segment.note(position, size, last_offset, header.max_timestamp)
        self.log_end_offset = last_offset + 1
        if producer_id >= 0:
            self._note_producer(records, 0, header, base_offset)
        if last_offset - self.recovery_point >= config.flush_messages - 1:
            self._flush_now()
        return AppendResult(base_offset, last_offset, append_time_ms, self.log_start_offset, 1)

    def _append_several(
        self, records: memoryview, leader_epoch: int, now_ms: int, from_client: bool
    ) -> AppendResult:
        places = whole_batches(records, must_end=True)
        if from_client:
            raise InvalidRecordError(
                f"A produce request holds {len(places)} batches for {self.topic}-{self.partition}: send exactly one."
            )
        next_offset = base_offset = self.log_end_offset
        placed: list[Place] = []
        for position, header in places:
            check_sizes(len(records), header.size, self.config)
            check_integrity(records, position, header)
            if header.producer_id >= 0:
                self._producers.check_epoch(header)
            placed.append(Place(position, header._replace(base_offset=next_offset)))
            next_offset += header.last_offset_delta + 1
        for index, (position, header) in enumerate(placed):
            if self._is_stamping:
                placed[index] = Place(position, stamp_append_time(records, position, header, now_ms))
            set_base_offset_and_epoch(records, position, header.base_offset, leader_epoch)
        with _storage_errors(self.directory):
            self._assign_epoch(leader_epoch, base_offset)
            self._append_run(records, placed, now_ms)
        append_time_ms = now_ms if self._is_stamping else -1
        return AppendResult(base_offset, next_offset - 1, append_time_ms, self.log_start_offset, len(placed))

    def append_as_follower(self, records: memoryview, *, now_ms: int) -> AppendResult:
        """Append batches fetched from the leader, their offsets and epochs kept; a last batch that is cut is left.

        Raises CorruptMessageError, InvalidRecordError (offsets below the log's end), StorageError.
        """
        placed = self._check_placed(records)
        with _storage_errors(self.directory):
            for _, header in placed:
                self._assign_epoch(header.leader_epoch, header.base_offset)
            return self._append_placed(records, placed, now_ms)

    def append_mirrored(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append batches of a source's log: offsets kept, gaps are legal, the epoch stamped with the target's own.

        A last batch that is cut is left. Raises as `append_as_follower`.
        """
        placed = self._check_placed(records)
        for position, header in placed:
            set_base_offset_and_epoch(records, position, header.base_offset, leader_epoch)
        with _storage_errors(self.directory):
            if placed:
                self._assign_epoch(leader_epoch, placed[0].header.base_offset)
            return self._append_placed(records, placed, now_ms)

    def _check_placed(self, records: memoryview) -> list[Place]:
        placed = whole_batches(records, must_end=False)
        next_offset = self.log_end_offset
        for position, header in placed:
            check_integrity(records, position, header)
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                raise InvalidRecordError(
                    f"A batch has the offsets {header.base_offset} to {header.last_offset}, "
                    f"but {self.topic}-{self.partition} goes on at {next_offset}."
                )
            next_offset = header.next_offset
        return placed

    def _append_placed(self, records: memoryview, placed: list[Place], now_ms: int) -> AppendResult:
        first_offset = placed[0].header.base_offset if placed else self.log_end_offset
        for run in self._runs(placed):
            self._append_run(records, run, now_ms)
        return AppendResult(first_offset, self.log_end_offset - 1, -1, self.log_start_offset, len(placed))

    def _runs(self, placed: list[Place]) -> Iterator[list[Place]]:
        """Batches in as few groups as segment.bytes and 32-bit relative offsets allow."""
        run: list[Place] = []
        for place in placed:
            if run and (
                place.position + place.header.size - run[0].position > self.config.segment_bytes
                or place.header.last_offset - run[0].header.base_offset >= 2**31
            ):
                yield run
                run = []
            run.append(place)
        if run:
            yield run

    def _append_run(self, records: memoryview, run: list[Place], now_ms: int) -> None:
        """One write for batches that fit one segment."""
        start, first = run[0]
        last = run[-1].header
        end = run[-1].position + last.size
        segment = self._segments.active
        if segment.must_roll(
            end - start,
            last.last_offset,
            max(header.max_timestamp for _, header in run),
            now_ms,
            self.config.segment_bytes,
            self._segment_ms,
        ):
            segment = self._roll(self._base_of_next_segment(first, last), now_ms)
        written_at = segment.write(records[start:end]) - start
        for position, header in run:
            segment.note(written_at + position, header.size, header.last_offset, header.max_timestamp)
            if header.producer_id >= 0:
                self._note_producer(records, position, header, header.base_offset)
        self.log_end_offset = last.last_offset + 1
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self._flush_now()

    def _base_of_next_segment(self, first: BatchHeader, last: BatchHeader) -> int:
        """The log's end, so that recovery can tell a legal gap from a lost tail, unless the gap is too wide for it."""
        if last.last_offset - self.log_end_offset < 2**31:
            return self.log_end_offset
        self._flush_now()
        return first.base_offset

    def _note_producer(
        self, records: memoryview, position: int, header: BatchHeader, base_offset: int
    ) -> None:
        if header.attributes & _CONTROL_BIT:
            coordinator_epoch = timestamps.coordinator_epoch(records, position, header)
            self._producers.end_transaction(header, base_offset, coordinator_epoch)
        else:
            self._producers.append(header, base_offset)

    def assign_epoch(self, epoch: int) -> None:
        """Begin a leader epoch at the log's end: this broker has become leader."""
        with _storage_errors(self.directory):
            self._assign_epoch(epoch, self.log_end_offset)

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        self._epochs.assign(epoch, start_offset)
        self.latest_epoch = self._epochs.latest

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
            raise StorageError(f"{self.directory}: {error.strerror or error}. Repair the disk.") from error

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp_ms`, or None."""
        with _storage_errors(self.directory):
            found = timestamps.first_at_or_after(self._segments, timestamp_ms, self.log_start_offset)
        return None if found is None else self._with_epoch(*found)

    def latest_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp (KIP-734), or None for an empty log."""
        with _storage_errors(self.directory):
            found = timestamps.largest(self._segments)
        return None if found is None else self._with_epoch(*found)

    def _with_epoch(self, offset: int, timestamp_ms: int) -> TimestampOffset:
        return TimestampOffset(offset, timestamp_ms, self._epochs.epoch_at(offset))

    def epoch_end_offset(self, epoch: int) -> EpochEndOffset:
        """The largest known epoch not above `epoch` and the offset where it ends."""
        return self._epochs.end_offset(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that `offset` belongs to; -1 when none is known."""
        return self._epochs.epoch_at(offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Let readers see up to `offset` (exclusive), at most the log's end; it never goes back."""
        if offset > self.high_watermark:
            self.high_watermark = min(offset, self.log_end_offset)

    # -- change of segments

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        self._snapshots.write(base_offset, self._producers)
        segment = self._segments.roll(base_offset, self.config, now_ms)
        self._segment_ms = self._jittered_segment_ms()
        return segment

    def roll_if_due(self, now_ms: int) -> bool:
        """Begin a new segment when the active one is over its time."""
        if not self._segments.active.is_over(now_ms, self._segment_ms):
            return False
        with _storage_errors(self.directory):
            self._roll(self.log_end_offset, now_ms)
        return True

    def delete_retired(self, now_ms: int) -> list[DeletedSegment]:
        """Take away the segments that retention by time or size no longer keeps, or that DeleteRecords passed.

        Compacted topics without `delete` keep all but the latter. Files go after file.delete.delay.ms.
        """
        deletes = "delete" in self.config.cleanup_policy
        with _storage_errors(self.directory):
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
                self._roll(self.log_end_offset, now_ms)
            deleted = self._segments.take_first(reasons, now_ms + self.config.file_delete_delay_ms)
            self._move_start(next(iter(self._segments)).base_offset)
            first_base_offset = next(iter(self._segments)).base_offset
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
        with _storage_errors(self.directory):
            self._move_start(offset)

    def _move_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            self._epochs.truncate_from_start(offset)

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that ends at or above `offset`, where the log then ends."""
        if offset >= self.log_end_offset:
            return
        if offset <= self.log_start_offset:
            self.start_at(offset)
            return
        with _storage_errors(self.directory):
            self._segments.truncate_to(offset)
            self._epochs.truncate_from_end(offset)
            self._end_at(offset)
            self._snapshots.remove(lambda snapshot_offset: snapshot_offset > offset)
            self._producers, findings = self._snapshots.restore(self._segments, offset)
            self.findings += findings

    def start_at(self, offset: int) -> None:
        """Drop everything and begin anew at `offset` (the empty target of a mirror, a follower that fell behind)."""
        with _storage_errors(self.directory):
            self._segments.restart_at(offset, self.config, self._segments.active.created_ms)
            self._epochs.clear()
            self._producers.clear()
            self._snapshots.remove(lambda _: True)
        self.log_start_offset = offset
        self._end_at(offset)
        self.high_watermark = self.log_end_offset = self.recovery_point = offset

    def _end_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.latest_epoch = self._epochs.latest
        if self._flush_end is not None:
            self._flush_end = min(self._flush_end, offset)

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that have been silent for a day; returns how many."""
        return self._producers.expire(now_ms)

    # -- flush and close

    def flush_due(self, now_ms: int) -> bool:
        """Whether data should be flushed now: a segment was rolled, or flush.ms is over."""
        if self.recovery_point < self._segments.active.base_offset:
            return True
        if self.recovery_point >= self.log_end_offset:
            self._last_flush_ms = now_ms
            return False
        return now_ms - self._last_flush_ms >= self.config.flush_ms

    def flush_task(self) -> Callable[[], int] | None:
        """A job for a thread: it syncs all appended so far and returns the new recovery point. None: nothing to do.

        Hand its answer to `flushed` on the loop. One job is out at a time. The job raises StorageError.
        """
        if self._flush_end is not None or self.recovery_point >= self.log_end_offset:
            return None
        job = self._flush_job()
        self._flush_end = self.log_end_offset
        return job

    def _flush_job(self) -> Callable[[], int]:
        with _storage_errors(self.directory):
            to_sync, must_sync_directory = self._segments.unsynced(self.recovery_point)
        to_sync += self._snapshots.take_unsynced()
        files, directory, end = self._files, self.directory, self.log_end_offset

        def flush() -> int:
            with _storage_errors(directory):
                for file in to_sync:
                    file.sync()
                if must_sync_directory:
                    files.sync_directory(directory)
            return end

        return flush

    def flushed(self, recovery_point: int | None) -> None:
        """The end of a flush job: its answer, or None when it failed."""
        end, self._flush_end = self._flush_end, None
        if recovery_point is None:
            self._segments.names_changed()
        elif end is not None:
            self.recovery_point = max(self.recovery_point, min(recovery_point, end))

    def _flush_now(self) -> None:
        self.recovery_point = max(self.recovery_point, self._flush_job()())

    def close(self) -> None:
        """Write the producers' snapshot, complete the indexes, sync everything; nothing may be called afterwards."""
        with _storage_errors(self.directory):
            self._snapshots.write(self.log_end_offset, self._producers)
            self._segments.close()
            self._segments.names_changed()
        self._flush_now()
