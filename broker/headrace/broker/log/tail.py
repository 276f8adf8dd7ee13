"""The end of a partition's log, where batches are appended: by the leader, from the leader, from a mirror's source.

Invariants: offsets never go back and are never used twice; a refused or failed append changes nothing. New pages of a
file are the dearest part of an append, and one write of many batches makes them for less than half: what comes together
is written together. Must not know: who reads, what retention and truncation take away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.broker.config.keys import LONG_MAX
from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import KafkaError, NotOneBatchError, StorageError
from headrace.broker.log import names
from headrace.broker.log.files import Files, storage_error, storage_errors
from headrace.broker.log.flushing import Flusher
from headrace.broker.log.index import INT32_MAX
from headrace.broker.log.producers import CachedBatch, is_next
from headrace.broker.log.recovery import LoadedLog
from headrace.broker.log.results import (
    AppendResult,
)
from headrace.broker.log.segment import Place, Segment
from headrace.broker.log.segments import Segments
from headrace.broker.log.snapshots import ProducerSnapshots
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
from headrace.broker.wire.batches import LENGTH_END, BatchHeader, read_header, set_base_offset_and_epoch
from headrace.broker.wire.compression import target_codec
from headrace.broker.wire.recompression import recompressed

# Half the time of a call of the class.
_new_tuple = tuple.__new__


class Placed(NamedTuple):
    """A batch at `position` of `records`, and its base offset in the log, whatever its header says."""

    records: memoryview
    position: int
    header: BatchHeader
    base_offset: int


class LogTail:
    """See the module's text; the part of `PartitionLog` that appends.

    `high_watermark` is where readers' view ends; all offsets are exclusive ends.
    """

    def __init__(self, files: Files, directory: str, config: LogConfig, loaded: LoadedLog) -> None:
        name = names.partition_of(directory.rpartition("/")[2])
        if name is None:
            raise ValueError(f"{directory} is not named <topic>-<partition>")
        self.topic, self.partition = name
        self.directory = directory
        self._files = files
        self._segments = Segments(files, directory, loaded.segments, loaded.checked)
        self.epochs = loaded.epochs
        self._producers = loaded.producers
        self._snapshots = ProducerSnapshots(files, directory)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self._segments.active.next_offset
        self.high_watermark = self.log_start_offset
        self._flusher = Flusher(files, directory, self._segments, self._snapshots, loaded.recovery_point)
        self.latest_epoch = self.epochs.latest
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Use a changed topic configuration from the next operation on."""
        self.config = config
        self._is_stamping = config.message_timestamp_type == "LogAppendTime"
        self._codec = target_codec(config.compression_type)
        self._is_compacted = "compact" in config.cleanup_policy
        self.is_mirror_copy = config.is_mirror_copy
        self.awaits_sync = config.flush_messages < LONG_MAX
        self._segment_ms = self._segments.jittered_segment_ms(config)

    @property
    def is_sync_due(self) -> bool:
        """Whether `flush.messages` wants what was appended to be on the disk before it is answered."""
        return self.log_end_offset - self._flusher.recovery_point >= self.config.flush_messages

    @property
    def has_failed(self) -> bool:
        """Whether a sync failed: nothing that is not on the disk yet will be vouched for."""
        return self._flusher.has_failed

    @property
    def opens_batches(self) -> bool:
        """Whether what clients append is unpacked, record by record: that takes time, others wait."""
        return self._codec is not None or self._is_compacted

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
        (outcome,) = self.append_each_as_leader(
            (records,), leader_epoch=leader_epoch, now_ms=now_ms, from_client=from_client
        )
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def append_each_as_leader(
        self, appends: Iterable[memoryview], *, leader_epoch: int, now_ms: int, from_client: bool = True
    ) -> list[AppendResult | KafkaError]:
        """Append one after the other, each as `append_as_leader` would, with as few writes as possible.

        What is refused has its error in the answer, which is in the order of `appends`.
        """
        outcomes: list[AppendResult | KafkaError] = []
        append_time_ms = now_ms if self._is_stamping else -1
        run: list[Placed] = []
        run_size = end_offset = 0
        for records in appends:
            try:
                header = header_at(records, 0)
                size = len(records)
                if header.length + LENGTH_END != size:
                    self._write_run(run, outcomes, leader_epoch, append_time_ms)
                    outcomes.append(self._append_several(records, leader_epoch, now_ms, from_client))
                    continue
                self._check_one(records, header, now_ms, from_client)
                if self._codec is not None and header.codec != self._codec and from_client:
                    records = recompressed(records, header, self._codec)
                    header, size = read_header(records), len(records)
                    check_sizes(size, size, self.config)
                if append_time_ms >= 0:
                    header = stamp_append_time(records, 0, header, now_ms)
                if run and self._must_roll(run_size + size, end_offset, header, now_ms):
                    self._write_run(run, outcomes, leader_epoch, append_time_ms)
                if header.producer_id >= 0 and not (run and is_next(run[-1].header, header)):
                    self._write_run(run, outcomes, leader_epoch, append_time_ms)
                    repeated = self._check_producer(header, from_client)
                    if repeated is not None:
                        outcomes.append(AppendResult(*repeated.answer, self.log_start_offset, 0))
                        continue
                if not run:
                    run_size, end_offset = 0, self.log_end_offset
                    if self._must_roll(size, end_offset, header, now_ms):
                        with storage_errors(self._files, self.directory):
                            self._roll(end_offset, end_offset + header.last_offset_delta, now_ms)
                set_base_offset_and_epoch(records, 0, end_offset, leader_epoch)
                run.append(_new_tuple(Placed, (records, 0, header, end_offset)))
                run_size += size
                end_offset += header.last_offset_delta + 1
                if not self._segments.active.size:
                    # By its first batch a segment tells when the next one is due.
                    self._write_run(run, outcomes, leader_epoch, append_time_ms)
            except KafkaError as error:
                self._write_run(run, outcomes, leader_epoch, append_time_ms)
                outcomes.append(error)
        self._write_run(run, outcomes, leader_epoch, append_time_ms)
        return outcomes

    def _check_one(self, records: memoryview, header: BatchHeader, now_ms: int, from_client: bool) -> None:
        """Refuse the only batch of an append for what it says."""
        config = self.config
        size = len(records)
        if size > config.max_message_bytes or size > config.segment_bytes:
            check_sizes(size, size, config)
        check_integrity(records, 0, header)
        if from_client:
            check_client_batch(header)
            check_timestamps(records, header, config, now_ms)
            if self._is_compacted:
                check_keys(records, header, config, now_ms)

    def _check_producer(self, header: BatchHeader, from_client: bool) -> CachedBatch | None:
        """Refuse a batch that is not its producer's next one, or tell which earlier one it repeats."""
        if from_client:
            return self._producers.check(header)
        self._producers.check_epoch(header)
        return None

    def _must_roll(self, size: int, base_offset: int, header: BatchHeader, now_ms: int) -> bool:
        """Whether `size` bytes, the last of them a batch at `base_offset`, have to go into a new segment."""
        last_offset, time_ms = base_offset + header.last_offset_delta, header.max_timestamp
        return self._segments.active.must_roll(
            size, last_offset, time_ms, now_ms, self.config.segment_bytes, self._segment_ms
        )

    def _write_run(
        self,
        run: list[Placed],
        outcomes: list[AppendResult | KafkaError],
        leader_epoch: int,
        append_time_ms: int,
    ) -> None:
        """Write what has gathered, and forget it; the outcome of each is its result, or of all the error."""
        if not run:
            return
        try:
            if leader_epoch != self.latest_epoch:
                self._assign_epoch(leader_epoch, self.log_end_offset)
            self._append_run([batch[0] for batch in run], run)
        except (OSError, StorageError) as error:
            failure = (
                storage_error(self._files, self.directory, error) if isinstance(error, OSError) else error
            )
            outcomes += [failure] * len(run)
        else:
            start_offset = self.log_start_offset
            for _, _, header, base_offset in run:
                last_offset = base_offset + header.last_offset_delta
                result = (base_offset, last_offset, append_time_ms, start_offset, 1)
                outcomes.append(_new_tuple(AppendResult, result))
        run.clear()

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
            self._append_adjacent(records, placed, now_ms)
        append_time_ms = now_ms if self._is_stamping else -1
        last_offset = self.log_end_offset - 1
        return AppendResult(base_offset, last_offset, append_time_ms, self.log_start_offset, len(placed))

    def append_as_follower(self, records: memoryview, *, now_ms: int) -> AppendResult:
        """Append batches fetched from the leader, their offsets and epochs kept; a last batch that is cut is left.

        Raises CorruptMessageError, InvalidRecordError (offsets below the log's end), StorageError.
        """
        placed = placed_batches(records, self.log_end_offset)
        with storage_errors(self._files, self.directory):
            for run in runs(placed, self.config.segment_bytes):
                self._append_adjacent(records, run, now_ms)
                # Not after the last run: a full disk may let one in and refuse the next.
                for _, header in run:
                    self._assign_epoch(header.leader_epoch, header.base_offset)
        return self._result_of(placed)

    def append_mirrored(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append batches of a source's log: offsets kept, gaps are legal, the epoch stamped with the target's own.

        A last batch that is cut is left. Raises as `append_as_follower`.
        """
        placed = placed_batches(records, self.log_end_offset)
        for position, header in placed:
            set_base_offset_and_epoch(records, position, header.base_offset, leader_epoch)
        with storage_errors(self._files, self.directory):
            self._assign_epoch(leader_epoch, self.log_end_offset)
            for run in runs(placed, self.config.segment_bytes):
                self._append_adjacent(records, run, now_ms)
        return self._result_of(placed)

    def _result_of(self, placed: list[Place]) -> AppendResult:
        """What an append of batches with their own offsets answers, now that they are in the log."""
        first_offset = placed[0].header.base_offset if placed else self.log_end_offset
        return AppendResult(first_offset, self.log_end_offset - 1, -1, self.log_start_offset, len(placed))

    def _append_adjacent(self, records: memoryview, run: list[Place], now_ms: int) -> None:
        """One write for batches that lie side by side in `records`, carry their offsets and fit one segment."""
        (start, first), (position, last) = run[0], run[-1]
        end = position + last.size
        newest_ms = max(header.max_timestamp for _, header in run)
        if self._segments.active.must_roll(
            end - start, last.last_offset, newest_ms, now_ms, self.config.segment_bytes, self._segment_ms
        ):
            self._roll(first.base_offset, last.last_offset, now_ms)
        placed = [Placed(records, position, header, header.base_offset) for position, header in run]
        self._append_run([records[start:end]], placed)

    def _append_run(self, buffers: Sequence[memoryview], placed: Sequence[Placed]) -> None:
        """Write the buffers, which hold just these batches, to the active segment, and take in the batches."""
        if self.awaits_sync:
            self._flusher.check()
        segment = self._segments.active
        position = segment.write(buffers)
        last_offset = -1
        for records, at, header, base_offset in placed:
            size, last_offset = header.length + LENGTH_END, base_offset + header.last_offset_delta
            segment.note(position, size, last_offset, header.max_timestamp)
            position += size
            if header.producer_id >= 0:
                segment.note_marker(self._producers.note(records, at, header, base_offset))
        self.log_end_offset = last_offset + 1

    def assign_epoch(self, epoch: int) -> None:
        """Begin a leader epoch at the log's end: this broker has become leader."""
        with storage_errors(self._files, self.directory):
            self._assign_epoch(epoch, self.log_end_offset)

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        self.epochs.assign(epoch, start_offset)
        self.latest_epoch = self.epochs.latest

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
