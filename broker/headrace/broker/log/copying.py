"""A log and its copy in another directory: what the copy lacks, what it has too much, whether it could be the log.

Decided on the event loop; what waits for the disk is a job for threads, None where there is nothing to do. Must not know:
folders, marks, which copy becomes a log (`moving.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headrace.broker.errors import CorruptMessageError, StorageError
from headrace.broker.log.appender import Appender
from headrace.broker.log.files import Files, storage_errors
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import Job, LogSlice
from headrace.broker.log.truncation import start_at, truncate_to
from headrace.broker.wire.batches import HEADER_SIZE, read_header


def common_end(source: PartitionLog, copy: PartitionLog) -> int:
    """Where `copy` ceases to be what `source` holds, as their leader epochs tell (KIP-101, KIP-279)."""
    epoch = copy.latest_epoch
    while epoch >= 0 and source.latest_epoch >= 0:
        epoch = min(epoch, source.latest_epoch)
        theirs, ours = source.epoch_end_offset(epoch), copy.epoch_end_offset(epoch)
        if theirs.leader_epoch == ours.leader_epoch:
            return min(theirs.end_offset, ours.end_offset)
        epoch = min(theirs.leader_epoch, ours.leader_epoch)
    return min(source.log_end_offset, copy.log_end_offset)


def is_prefix(source: PartitionLog, copy: PartitionLog) -> bool:
    """Whether `copy` holds nothing but what `source` does, and goes on where that is still to be had."""
    is_within = source.log_start_offset <= copy.log_end_offset and copy.latest_epoch <= source.latest_epoch
    return is_within and common_end(source, copy) >= copy.log_end_offset


def align(source: PartitionLog, copy: PartitionLog) -> Job | None:
    """What has to be taken away from the copy because the log lost it."""
    if copy.log_end_offset < source.log_start_offset:
        start_offset = _first_base_offset(source)
        return partial(start_at, copy, start_offset) if copy.log_end_offset < start_offset else None
    end_offset = common_end(source, copy)
    if end_offset < copy.log_end_offset:
        return partial(truncate_to, copy, end_offset)
    return move_start_job(source, copy)


def _first_base_offset(source: PartitionLog) -> int:
    """Where the batch that holds the log start offset begins: DeleteRecords may have put it into the middle of one."""
    start_offset = source.log_start_offset
    found = source.read(start_offset, size_max=1, upper_offset=source.log_end_offset)
    if found.size == 0:
        return start_offset
    assert found.file is not None, "it has a size"
    return min(start_offset, read_header(found.file.read_at(HEADER_SIZE, found.position)).base_offset)


def move_start_job(source: PartitionLog, copy: PartitionLog) -> Job | None:
    """The copy begins where the log does, above where it began."""
    if copy.log_start_offset >= source.log_start_offset:
        return None
    copy.advance_high_watermark(source.log_start_offset)
    return partial(copy.delete_before, source.log_start_offset)


def next_batches(source: PartitionLog, copy: PartitionLog, size_max: int) -> LogSlice:
    """The next slice that the copy lacks. Raises CorruptMessageError, StorageError."""
    offset = max(copy.log_end_offset, source.log_start_offset)
    found = source.read(offset, size_max=size_max, upper_offset=source.log_end_offset)
    if found.size == 0:
        raise CorruptMessageError(f"{source.directory}: no batch can be read at offset {offset}")
    return found


def copy_slice(
    files: Files, source: PartitionLog, copy: PartitionLog, found: LogSlice, now_ms: Callable[[], int]
) -> None:
    """Append a slice of the log to the copy. Raises CorruptMessageError, StorageError."""
    with storage_errors(files, source.directory):
        records = bytearray(found.read())
    Appender(copy).append_as_follower(memoryview(records), now_ms=now_ms())


def epoch_job(source: PartitionLog, copy: PartitionLog) -> Job | None:
    """An epoch that no batch has yet."""
    if copy.latest_epoch == source.latest_epoch:
        return None
    return partial(copy.assign_epoch, source.latest_epoch)


def flush_job(source: PartitionLog, copy: PartitionLog) -> Job | None:
    """The copy is synced as far as the log is."""
    if copy.recovery_point >= source.recovery_point:
        return None
    task = copy.flush_task()
    if task is None:
        raise StorageError(
            f"{copy.directory}: an earlier sync failed. Repair the disk and restart the broker."
        )

    def flush() -> None:
        recovery_point: int | None = None
        try:
            recovery_point = task()
        finally:
            copy.flushed(recovery_point)

    return flush
