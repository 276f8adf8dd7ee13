"""Appending to a log: what clients sent to the leader, what a follower got from its leader, a mirror from its source.

Invariants: offsets never go back and are never used twice; a refused or failed append changes nothing. New pages of a
file are the dearest part of an append, and one write of many batches makes them for less than half: what comes together
is written together. Must not know: who reads, what retention and truncation take away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from headrace.broker.errors import InvalidRecordError, KafkaError, NotOneBatchError, StorageError
from headrace.broker.log.files import storage_error
from headrace.broker.log.index import INT32_MAX
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.producers import Marker, encode_marker, is_next
from headrace.broker.log.results import AppendResult
from headrace.broker.log.segment import NO_ROOM, Place
from headrace.broker.log.validation import (
    check_client_batch,
    check_integrity,
    check_keys,
    check_sizes,
    check_timestamps,
    header_at,
    is_ordinary,
    placed_batches,
    runs,
    stamp_append_time,
    whole_batches,
)
from headrace.broker.wire.batches import LENGTH_END, BatchHeader, read_header, set_base_offset_and_epoch
from headrace.broker.wire.recompression import recompressed

# Half the time of a call of the class.
_new_tuple = tuple.__new__
_epoch_of = attrgetter("header.leader_epoch")


class Placed(NamedTuple):
    """A batch at `position` of `records`, and its base offset in the log, whatever its header says."""

    records: memoryview
    position: int
    header: BatchHeader
    base_offset: int


class Run:
    """Batches that a leader is about to write together, stamped with their place behind the log's end.

    `batches` has the header of each, as its producer sent it, and its base offset in the log; `numbered` are those of
    producers with an id.
    """

    __slots__ = ("append_time_ms", "batches", "buffers", "end_offset", "leader_epoch", "numbered", "size")

    def __init__(self, leader_epoch: int, append_time_ms: int) -> None:
        self.leader_epoch = leader_epoch
        self.append_time_ms = append_time_ms
        self.buffers: list[memoryview] = []
        self.batches: list[tuple[BatchHeader, int]] = []
        self.numbered: list[Placed] = []
        self.size = self.end_offset = 0

    def add(self, records: memoryview, header: BatchHeader, size: int) -> None:
        """Have a batch of that size written, too."""
        set_base_offset_and_epoch(records, 0, self.end_offset, self.leader_epoch)
        self.buffers.append(records)
        self.batches.append((header, self.end_offset))
        if header.producer_id >= 0:
            self.numbered.append(Placed(records, 0, header, self.end_offset))
        self.size += size
        self.end_offset += header.last_offset_delta + 1

    def clear(self) -> None:
        """Forget all batches: they are written, or refused."""
        self.buffers.clear()
        self.batches.clear()
        self.numbered.clear()
        self.size = 0


class Appender:
    """See the module's text; held by whoever leads or follows the partition. It goes along when the log moves."""

    __slots__ = ("_log",)

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def append_as_leader(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> AppendResult:
        """Check `records` (one v2 batch, writable), stamp offset and epoch into it and append it.

        Raises CorruptMessageError, InvalidRecordError, NotOneBatchError, MessageTooLargeError, InvalidTimestampError,
        UnsupportedForMessageFormatError, OutOfOrderSequenceError, InvalidProducerEpochError, StorageError; the log is
        then as it was.
        """
        (outcome,) = self.append_each_as_leader((records,), leader_epoch=leader_epoch, now_ms=now_ms)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def append_each_as_leader(
        self, appends: Iterable[memoryview], *, leader_epoch: int, now_ms: int
    ) -> list[AppendResult | KafkaError]:
        """Append one after the other, each as `append_as_leader` would, with as few writes as possible.

        What is refused has its error in the answer, which is in the order of `appends`.
        """
        log = self._log
        config, segments = log.config, log.body.segments
        outcomes: list[AppendResult | KafkaError] = []
        append_time_ms = now_ms if log.is_stamping else -1
        size_max = 0 if log.is_compacted else min(config.max_message_bytes, config.segment_bytes)
        earliest_ms = now_ms - config.message_timestamp_before_max_ms
        latest_ms = now_ms + config.message_timestamp_after_max_ms
        is_rewritten = log.codec is not None or log.is_stamping
        run, room = Run(leader_epoch, append_time_ms), NO_ROOM
        for records in appends:
            try:
                header = header_at(records, 0)
                size = len(records)
                if header.length + LENGTH_END != size:
                    self._write_run(run, outcomes)
                    outcomes.append(self._append_first(records, leader_epoch, now_ms))
                    continue
                if size > size_max or not is_ordinary(records, header, earliest_ms, latest_ms):
                    self._check_one(records, header, now_ms)
                if is_rewritten:
                    records, header = self._rewritten(records, header, now_ms)
                    size = len(records)
                last_offset, time_ms = run.end_offset + header.last_offset_delta, header.max_timestamp
                if run.batches and not room.takes(run.size + size, last_offset, time_ms):
                    self._write_run(run, outcomes)
                if header.producer_id >= 0 and not (run.batches and is_next(run.batches[-1][0], header)):
                    self._write_run(run, outcomes)
                    repeated = log.body.producers.check(header)
                    if repeated is not None:
                        outcomes.append(AppendResult(*repeated.answer, log.log_start_offset, 0))
                        continue
                if not run.batches:
                    run.end_offset = log.log_end_offset
                    last_offset = run.end_offset + header.last_offset_delta
                    if segments.active.must_roll(size, last_offset, time_ms, now_ms, segments.limits):
                        with log.body.storage_errors():
                            log.body.roll(run.end_offset, last_offset, config, now_ms)
                    room = segments.active.room(now_ms, segments.limits)
                run.add(records, header, size)
                if not segments.active.size:
                    # By its first batch a segment tells when the next one is due.
                    self._write_run(run, outcomes)
            except KafkaError as error:
                self._write_run(run, outcomes)
                outcomes.append(error)
        self._write_run(run, outcomes)
        return outcomes

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: Marker, *, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """End a producer's transaction, on its coordinator's word; never compressed, whatever the topic's codec.

        Raises MessageTooLargeError, RecordListTooLargeError, InvalidProducerEpochError,
        TransactionCoordinatorFencedError, StorageError; the log is then as it was.
        """
        records = memoryview(encode_marker(producer_id, producer_epoch, marker, now_ms))
        header = read_header(records)
        body = self._log.body
        check_sizes(header.size, header.size, self._log.config)
        body.producers.check_marker(header, marker)
        result = self._append_own(records, header, leader_epoch, now_ms)
        body.segments.active.note_marker(body.producers.end_transaction(header, result.base_offset, marker))
        return result

    def append_own(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append what a coordinator of this broker made: its records are known to be sound, and have no numbers of a producer.

        Raises MessageTooLargeError, RecordListTooLargeError, InvalidProducerEpochError, StorageError; the log is then as
        it was.
        """
        header = read_header(records)
        check_sizes(header.size, header.size, self._log.config)
        self._log.body.producers.check_epoch(header)
        records, header = self._rewritten(records, header, now_ms)
        result = self._append_own(records, header, leader_epoch, now_ms)
        if header.producer_id >= 0:
            self._log.body.producers.append(header, result.base_offset)
        return result

    def _append_own(
        self, records: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """One batch of this broker's own making; what it means for its producer is for the caller to note."""
        log, body = self._log, self._log.body
        if log.is_stamping:
            header = stamp_append_time(records, 0, header, now_ms)
        offset = log.log_end_offset
        last_offset = offset + header.last_offset_delta
        limits = body.segments.limits
        if body.segments.active.must_roll(header.size, last_offset, header.max_timestamp, now_ms, limits):
            with body.storage_errors():
                body.roll(offset, last_offset, log.config, now_ms)
        set_base_offset_and_epoch(records, 0, offset, leader_epoch)
        try:
            self._begin_epoch(leader_epoch)
            self._append_run((records,), ((header, offset),), ())
        except OSError as error:
            raise storage_error(body.files, body.directory, error) from error
        time_ms = now_ms if log.is_stamping else -1
        return _new_tuple(AppendResult, (offset, last_offset, time_ms, log.log_start_offset, 1))

    def _begin_epoch(self, leader_epoch: int) -> None:
        """Note where the leader epoch begins, if it begins here."""
        epochs = self._log.body.epochs
        if leader_epoch != epochs.latest:
            epochs.assign(leader_epoch, self._log.log_end_offset)

    def _check_one(self, records: memoryview, header: BatchHeader, now_ms: int) -> None:
        """Refuse the only batch of an append for what it says."""
        config = self._log.config
        size = len(records)
        if size > config.max_message_bytes or size > config.segment_bytes:
            check_sizes(size, size, config)
        check_integrity(records, 0, header)
        check_client_batch(header)
        check_timestamps(records, header, config, now_ms)
        if self._log.is_compacted:
            check_keys(records, header, config, now_ms)

    def _rewritten(
        self, records: memoryview, header: BatchHeader, now_ms: int
    ) -> tuple[memoryview, BatchHeader]:
        """The batch with the topic's own codec, and with the time of the append where the topic wants that."""
        log = self._log
        if log.codec is not None and header.codec != log.codec:
            records = recompressed(records, header, log.codec)
            header = read_header(records)
            check_sizes(header.size, header.size, log.config)
        if log.is_stamping:
            header = stamp_append_time(records, 0, header, now_ms)
        return records, header

    def _write_run(self, run: Run, outcomes: list[AppendResult | KafkaError]) -> None:
        """Write what has gathered, and forget it; the outcome of each is its result, or of all the error."""
        if not run.batches:
            return
        log = self._log
        body = log.body
        try:
            self._begin_epoch(run.leader_epoch)
            self._append_run(run.buffers, run.batches, run.numbered)
        except (OSError, StorageError) as error:
            failure = (
                storage_error(body.files, body.directory, error) if isinstance(error, OSError) else error
            )
            outcomes += [failure] * len(run.batches)
        else:
            time_ms, start_offset = run.append_time_ms, log.log_start_offset
            outcomes += [
                _new_tuple(
                    AppendResult,
                    (base_offset, base_offset + header.last_offset_delta, time_ms, start_offset, 1),
                )
                for header, base_offset in run.batches
            ]
        run.clear()

    def _append_first(self, records: memoryview, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append the batch with bytes behind it that are no whole batch: these are passed over, as in Kafka."""
        places = whole_batches(records)
        if len(places) != 1:
            log = self._log
            raise NotOneBatchError(
                f"A produce request holds {len(places)} batches for {log.topic}-{log.partition}: send exactly one."
            )
        return self.append_as_leader(
            records[: places[0].header.size], leader_epoch=leader_epoch, now_ms=now_ms
        )

    def append_as_follower(
        self, records: memoryview, *, now_ms: int, epoch_max: int = INT32_MAX
    ) -> AppendResult:
        """Append batches fetched from the leader, their offsets and epochs kept; a last batch that is cut is left.

        Raises CorruptMessageError, InvalidRecordError (offsets below the log's end, an epoch above `epoch_max`), StorageError.
        """
        log, body = self._log, self._log.body
        placed = placed_batches(records, log.log_end_offset)
        for _, header in placed:
            if header.leader_epoch > epoch_max:
                raise InvalidRecordError(
                    f"A batch at offset {header.base_offset} has leader epoch {header.leader_epoch}, above {epoch_max}."
                )
        with body.storage_errors():
            for run in runs(placed, log.config.segment_bytes):
                self._append_adjacent(records, run, now_ms)
                # Not after the last run: a full disk may let one in and refuse the next.
                for epoch, batches in groupby(run, _epoch_of):
                    body.epochs.assign(epoch, next(batches).header.base_offset)
        return self._result_of(placed)

    def append_mirrored(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append batches of a source's log: offsets kept, gaps are legal, the epoch stamped with the target's own.

        A last batch that is cut is left. Raises as `append_as_follower`.
        """
        log, body = self._log, self._log.body
        placed = placed_batches(records, log.log_end_offset)
        for position, header in placed:
            set_base_offset_and_epoch(records, position, header.base_offset, leader_epoch)
        with body.storage_errors():
            log.restless[log] = None
            body.epochs.assign(leader_epoch, log.log_end_offset)
            for run in runs(placed, log.config.segment_bytes):
                self._append_adjacent(records, run, now_ms)
        return self._result_of(placed)

    def _result_of(self, placed: list[Place]) -> AppendResult:
        """What an append of batches with their own offsets answers, now that they are in the log."""
        log = self._log
        first_offset = placed[0].header.base_offset if placed else log.log_end_offset
        return AppendResult(first_offset, log.log_end_offset - 1, -1, log.log_start_offset, len(placed))

    def _append_adjacent(self, records: memoryview, run: list[Place], now_ms: int) -> None:
        """One write for batches that lie side by side in `records`, carry their offsets and fit one segment."""
        config, body = self._log.config, self._log.body
        (start, first), (position, last) = run[0], run[-1]
        end = position + last.size
        newest_ms = max([header.max_timestamp for _, header in run])
        if body.segments.active.must_roll(
            end - start, last.last_offset, newest_ms, now_ms, body.segments.limits
        ):
            body.roll(first.base_offset, last.last_offset, config, now_ms)
        numbered = [
            Placed(records, position, header, header.base_offset)
            for position, header in run
            if header.producer_id >= 0
        ]
        self._append_run([records[start:end]], [(header, header.base_offset) for _, header in run], numbered)

    def _append_run(
        self,
        buffers: Sequence[memoryview],
        batches: Sequence[tuple[BatchHeader, int]],
        numbered: Sequence[Placed],
    ) -> None:
        """Write the buffers, which hold just these batches, to the active segment, and take in the batches."""
        log = self._log
        body = log.body
        log.restless[log] = None
        if log.awaits_sync:
            body.flusher.check()
        segment = body.segments.active
        position = segment.write(buffers)
        segment.note_run(position, batches)
        for records, at, header, base_offset in numbered:
            segment.note_marker(body.producers.note(records, at, header, base_offset))
        header, base_offset = batches[-1]
        log.log_end_offset = base_offset + header.last_offset_delta + 1
