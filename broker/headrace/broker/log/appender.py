"""Appending to a log: what clients sent to the leader, what a follower got from its leader, a mirror from its source.

Invariants: offsets never go back and are never used twice; a refused or failed append changes nothing. New pages of a
file are the dearest part of an append, and one write of many batches makes them for less than half: what comes together
is written together. Must not know: who reads, what retention and truncation take away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.broker.errors import InvalidRecordError, KafkaError, NotOneBatchError, StorageError
from headrace.broker.log.files import storage_error
from headrace.broker.log.index import INT32_MAX
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.producers import Marker, encode_marker, is_next
from headrace.broker.log.results import AppendResult
from headrace.broker.log.segment import Place
from headrace.broker.log.validation import (
    check_client_batch,
    check_integrity,
    check_keys,
    check_sizes,
    check_timestamps,
    header_at,
    placed_batches,
    runs,
    stamp_append_time,
    whole_batches,
)
from headrace.broker.wire.batches import LENGTH_END, BatchHeader, read_header, set_base_offset_and_epoch
from headrace.broker.wire.recompression import recompressed

# Half the time of a call of the class.
_new_tuple = tuple.__new__


class Placed(NamedTuple):
    """A batch at `position` of `records`, and its base offset in the log, whatever its header says."""

    records: memoryview
    position: int
    header: BatchHeader
    base_offset: int


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
        run: list[Placed] = []
        run_size = end_offset = 0
        for records in appends:
            try:
                header = header_at(records, 0)
                size = len(records)
                if header.length + LENGTH_END != size:
                    self._write_run(run, outcomes, leader_epoch, append_time_ms)
                    outcomes.append(self._append_first(records, leader_epoch, now_ms))
                    continue
                self._check_one(records, header, now_ms)
                if log.codec is not None and header.codec != log.codec:
                    records = recompressed(records, header, log.codec)
                    header, size = read_header(records), len(records)
                    check_sizes(size, size, config)
                if append_time_ms >= 0:
                    header = stamp_append_time(records, 0, header, now_ms)
                delta, time_ms = header.last_offset_delta, header.max_timestamp
                if run and segments.active.must_roll(
                    run_size + size, end_offset + delta, time_ms, now_ms, segments.limits
                ):
                    self._write_run(run, outcomes, leader_epoch, append_time_ms)
                if header.producer_id >= 0 and not (run and is_next(run[-1].header, header)):
                    self._write_run(run, outcomes, leader_epoch, append_time_ms)
                    repeated = log.body.producers.check(header)
                    if repeated is not None:
                        outcomes.append(AppendResult(*repeated.answer, log.log_start_offset, 0))
                        continue
                if not run:
                    run_size, end_offset = 0, log.log_end_offset
                    if segments.active.must_roll(size, end_offset + delta, time_ms, now_ms, segments.limits):
                        with log.body.storage_errors():
                            log.body.roll(end_offset, end_offset + delta, config, now_ms)
                set_base_offset_and_epoch(records, 0, end_offset, leader_epoch)
                run.append(_new_tuple(Placed, (records, 0, header, end_offset)))
                run_size += size
                end_offset += delta + 1
                if not segments.active.size:
                    # By its first batch a segment tells when the next one is due.
                    self._write_run(run, outcomes, leader_epoch, append_time_ms)
            except KafkaError as error:
                self._write_run(run, outcomes, leader_epoch, append_time_ms)
                outcomes.append(error)
        self._write_run(run, outcomes, leader_epoch, append_time_ms)
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
        check_sizes(header.size, header.size, self._log.config)
        self._log.body.producers.check_marker(header, marker)
        return self._append_own(records, header, leader_epoch, now_ms)

    def append_in_transaction(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append what a coordinator keeps in a producer's transaction: the producer has not numbered it.

        Raises MessageTooLargeError, RecordListTooLargeError, InvalidProducerEpochError, StorageError; the log is then as
        it was.
        """
        header = read_header(records)
        check_sizes(header.size, header.size, self._log.config)
        self._log.body.producers.check_epoch(header)
        return self._append_own(records, header, leader_epoch, now_ms)

    def _append_own(
        self, records: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """One batch of this broker's own making."""
        log, body = self._log, self._log.body
        if log.is_stamping:
            header = stamp_append_time(records, 0, header, now_ms)
        offset = log.log_end_offset
        end_offset = offset + header.last_offset_delta
        limits = body.segments.limits
        if body.segments.active.must_roll(header.size, end_offset, header.max_timestamp, now_ms, limits):
            with body.storage_errors():
                body.roll(offset, end_offset, log.config, now_ms)
        set_base_offset_and_epoch(records, 0, offset, leader_epoch)
        outcomes: list[AppendResult | KafkaError] = []
        run = [Placed(records, 0, header, offset)]
        self._write_run(run, outcomes, leader_epoch, now_ms if log.is_stamping else -1)
        (outcome,) = outcomes
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

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
        log = self._log
        body = log.body
        try:
            if leader_epoch != body.epochs.latest:
                body.epochs.assign(leader_epoch, log.log_end_offset)
            self._append_run([batch[0] for batch in run], run)
        except (OSError, StorageError) as error:
            failure = (
                storage_error(body.files, body.directory, error) if isinstance(error, OSError) else error
            )
            outcomes += [failure] * len(run)
        else:
            start_offset = log.log_start_offset
            for _, _, header, base_offset in run:
                last_offset = base_offset + header.last_offset_delta
                result = (base_offset, last_offset, append_time_ms, start_offset, 1)
                outcomes.append(_new_tuple(AppendResult, result))
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
                for _, header in run:
                    body.epochs.assign(header.leader_epoch, header.base_offset)
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
        newest_ms = max(header.max_timestamp for _, header in run)
        if body.segments.active.must_roll(
            end - start, last.last_offset, newest_ms, now_ms, body.segments.limits
        ):
            body.roll(first.base_offset, last.last_offset, config, now_ms)
        placed = [Placed(records, position, header, header.base_offset) for position, header in run]
        self._append_run([records[start:end]], placed)

    def _append_run(self, buffers: Sequence[memoryview], placed: Sequence[Placed]) -> None:
        """Write the buffers, which hold just these batches, to the active segment, and take in the batches."""
        log = self._log
        body = log.body
        if log.awaits_sync:
            body.flusher.check()
        segment = body.segments.active
        position = segment.write(buffers)
        last_offset = -1
        for records, at, header, base_offset in placed:
            size, last_offset = header.length + LENGTH_END, base_offset + header.last_offset_delta
            segment.note(position, size, last_offset, header.max_timestamp)
            position += size
            if header.producer_id >= 0:
                segment.note_marker(body.producers.note(records, at, header, base_offset))
        log.log_end_offset = last_offset + 1
