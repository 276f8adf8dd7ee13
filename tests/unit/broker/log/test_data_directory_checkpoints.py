"""Checkpoints are written when they say something new, and only then."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from log_kit import NOW_MS, open_store

from headrace.broker.errors import StorageError
from headrace.broker.log.appender import Appender
from headrace.broker.log.checkpoints import RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE, decode_offsets
from headrace.broker.log.files import OsFiles
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.store import LogStore
from headrace.broker.wire.batches import Record, encode_batch


class CountingFiles(OsFiles):
    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[str] = []
        self.is_full = False

    def replace_file(self, path: str, data: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.replaced.append(Path(path).name)
        super().replace_file(path, data)


def opened(files: CountingFiles, directory: Path) -> LogStore:
    return open_store(directory, files=files)[0]


def test_a_checkpoint_that_says_what_the_last_one_said_is_not_written_again(tmp_path: Path) -> None:
    files = CountingFiles()
    store = opened(files, tmp_path / "logs")
    log = store.create("events", 0, None, now_ms=NOW_MS)
    store.checkpoint()
    files.replaced.clear()
    store.checkpoint()
    assert files.replaced == []
    batch = encode_batch([Record(0, NOW_MS, b"k", b"v", [])])
    Appender(log).append_as_leader(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(1)
    files.replaced.clear()
    store.checkpoint()
    assert files.replaced == ["replication-offset-checkpoint"]
    store.close()


def test_a_checkpoint_without_news_still_notices_that_the_disk_is_gone(tmp_path: Path) -> None:
    store = opened(CountingFiles(), tmp_path / "logs")
    store.checkpoint()
    (tmp_path / "logs").rename(tmp_path / "unmounted")
    with pytest.raises(StorageError, match="logs"):
        store.checkpoint()
    (tmp_path / "unmounted").rename(tmp_path / "logs")
    store.close()


def filled(store: LogStore) -> PartitionLog:
    """A log whose five batches are on the disk."""
    log = store.create("events", 0, None, now_ms=NOW_MS)
    for _ in range(5):
        batch = encode_batch([Record(0, NOW_MS, b"k", b"v", [])])
        Appender(log).append_as_leader(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)
    task = log.flush_task()
    assert task is not None
    log.flushed(task())
    return log


def written(directory: Path) -> int | None:
    return decode_offsets((directory / RECOVERY_POINT_FILE).read_bytes()).get(("events", 0))


def test_a_mirror_that_begins_behind_the_end_of_its_log_waits_for_no_checkpoint(tmp_path: Path) -> None:
    files = CountingFiles()
    store = opened(files, tmp_path / "logs")
    log = filled(store)
    store.checkpoint()
    store.close()
    store = opened(files, tmp_path / "logs")
    log = store.create("events", 0, None, now_ms=NOW_MS)
    files.replaced.clear()
    store.truncate_at_once(log, 1000, empties=True)
    assert RECOVERY_POINT_FILE not in files.replaced
    assert written(tmp_path / "logs") == 5
    empty = store.create("events", 1, None, now_ms=NOW_MS)
    files.replaced.clear()
    store.truncate_at_once(empty, 1000, empties=True)
    assert files.replaced == []
    store.close()


def test_a_truncation_is_on_the_disk_before_the_log_is_cut(tmp_path: Path) -> None:
    files = CountingFiles()
    store = opened(files, tmp_path / "logs")
    log = filled(store)
    store.checkpoint()
    store.truncate_at_once(log, 3)
    assert (log.log_end_offset, written(tmp_path / "logs")) == (3, 0)
    store.close()


def test_a_checkpoint_that_is_still_being_written_does_not_outlive_a_truncation(tmp_path: Path) -> None:
    store = opened(CountingFiles(), tmp_path / "logs")
    log = filled(store)
    (job,) = store.checkpoint_jobs()
    store.truncate_at_once(log, 3)
    job()
    assert written(tmp_path / "logs") == 0
    store.close()


def test_a_truncation_that_could_not_be_noted_is_noted_by_the_next(tmp_path: Path) -> None:
    files = CountingFiles()
    store = opened(files, tmp_path / "logs")
    log = filled(store)
    store.checkpoint()
    files.is_full = True
    with pytest.raises(StorageError):
        store.truncate_at_once(log, 3)
    assert (log.log_end_offset, written(tmp_path / "logs")) == (5, 5)
    files.is_full = False
    store.truncate_at_once(log, 3)
    assert (log.log_end_offset, written(tmp_path / "logs")) == (3, 0)
    store.close()


def watermark(directory: Path) -> int | None:
    return decode_offsets((directory / REPLICATION_OFFSET_FILE).read_bytes()).get(("events", 0))


def test_high_watermarks_are_written_alone_and_only_when_they_moved(tmp_path: Path) -> None:
    files = CountingFiles()
    store = opened(files, tmp_path / "logs")
    log = filled(store)
    store.checkpoint()
    files.replaced.clear()
    assert store.watermark_jobs() == []
    log.advance_high_watermark(4)
    (job,) = store.watermark_jobs()
    job()
    assert files.replaced == [REPLICATION_OFFSET_FILE]
    assert watermark(tmp_path / "logs") == 4
    assert store.watermark_jobs() == store.watermark_jobs() == []
    log.lost_end = 9
    (job,) = store.watermark_jobs()
    job()
    assert watermark(tmp_path / "logs") == 9
    assert store.watermark_jobs() == store.watermark_jobs() == []
    store.create("events", 1, None, now_ms=NOW_MS)
    assert store.watermark_jobs() != []
    store.close()


def test_a_log_rests_once_its_high_watermark_is_at_its_end_and_that_is_written_however_long_it_rests(
    tmp_path: Path,
) -> None:
    store = opened(CountingFiles(), tmp_path / "logs")
    log = filled(store)
    store.checkpoint()
    for _, task in store.flush_tasks(NOW_MS):
        log.flushed(task())
    assert store.flush_tasks(NOW_MS) == []
    assert store.watermark_jobs() == []
    log.advance_high_watermark(5)
    assert store.flush_tasks(NOW_MS) == []
    assert log.is_at_rest
    for _ in range(2):
        (job,) = store.watermark_jobs()
    job()
    assert watermark(tmp_path / "logs") == 5
    assert store.watermark_jobs() == store.watermark_jobs() == []
    store.close()


def test_an_older_high_watermark_never_replaces_a_newer_one(tmp_path: Path) -> None:
    store = opened(CountingFiles(), tmp_path / "logs")
    log = filled(store)
    log.advance_high_watermark(2)
    (whole,) = store.checkpoint_jobs()
    (older,) = store.watermark_jobs()
    log.advance_high_watermark(4)
    (newer,) = store.watermark_jobs()
    newer()
    older()
    whole()
    assert (watermark(tmp_path / "logs"), written(tmp_path / "logs")) == (4, 5)
    log.advance_high_watermark(5)
    (newest,) = store.watermark_jobs()
    store.checkpoint()
    newest()
    assert watermark(tmp_path / "logs") == 5
    store.close()
