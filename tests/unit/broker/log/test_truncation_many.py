"""Many logs are cut at once: one checkpoint a data directory, before the first cut; nobody else works on them meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from log_kit import NOW_MS, append, batch, offsets, open_store

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import StorageError
from headrace.broker.log.checkpoints import RECOVERY_POINT_FILE, decode_offsets
from headrace.broker.log.compaction import CleanerLimits
from headrace.broker.log.files import OsFile, OsFiles
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import NOTHING_YET
from headrace.broker.log.store import LogStore
from headrace.broker.log.truncation import Truncation
from headrace.broker.wire.batches import Record, encode_batch

FOLDERS = ("a", "b")
LOGS = 10
CUT = 3


class WatchedFiles(OsFiles):
    """Files that remember which checkpoints were written, and take no change below `broken`."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []
        self.broken = "nowhere"

    def replace_file(self, path: str, data: bytes) -> None:
        if path.startswith(self.broken):
            raise OSError(errno.ENOSPC, "No space left on device")
        if path.endswith(RECOVERY_POINT_FILE):
            self.events.append(path)
        super().replace_file(path, data)

    def sync_directory(self, path: str) -> None:
        if path.startswith(self.broken):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().sync_directory(path)


def filled(tmp_path: Path, files: OsFiles) -> tuple[LogStore, list[PartitionLog]]:
    """Logs in two directories, five synced batches each, which the checkpoints tell of."""
    config = LogConfig(cleanup_policy=("compact", "delete"))
    store, _ = open_store(*(tmp_path / name for name in FOLDERS), files=files, config=config)
    logs = [store.create("events", partition, None, now_ms=NOW_MS) for partition in range(LOGS)]
    for log in logs:
        append(log, *(keyed() for _ in range(5)))
        flush(log)
    store.checkpoint()
    return store, logs


def keyed() -> memoryview:
    return memoryview(encode_batch([Record(0, NOW_MS, b"k", b"v" * 50, [])]))


def flush(log: PartitionLog) -> None:
    task = log.flush_task()
    assert task is not None
    log.flushed(task())


def begun(store: LogStore, logs: list[PartitionLog], offset: int = CUT) -> list[Truncation]:
    found = [store.truncation(log, offset) for log in logs]
    return [truncation for truncation in found if truncation is not None]


def do(store: LogStore, truncations: list[Truncation]) -> None:
    """What threads do."""
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda job: job(), store.lowering_jobs(truncations)):
            pass
        for _ in pool.map(Truncation.run, truncations):
            pass


def written(folder: Path) -> set[int]:
    return set(decode_offsets((folder / RECOVERY_POINT_FILE).read_bytes()).values())


def test_one_checkpoint_a_directory_is_written_before_any_log_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = WatchedFiles()
    store, logs = filled(tmp_path, files)
    truncate = OsFile.truncate

    def cut(file: OsFile, size: int) -> None:
        files.events.append("cut")
        truncate(file, size)

    files.events.clear()
    monkeypatch.setattr(OsFile, "truncate", cut)
    truncations = begun(store, logs)
    do(store, truncations)
    monkeypatch.undo()
    assert sorted(files.events[:2]) == [f"{tmp_path}/{name}/{RECOVERY_POINT_FILE}" for name in FOLDERS]
    assert set(files.events[2:]) == {"cut"}
    assert [written(tmp_path / name) for name in FOLDERS] == [{0}, {0}]
    for truncation in truncations:
        truncation.end()
    assert {(log.log_end_offset, log.high_watermark) for log in logs} == {(CUT, CUT)}
    append(logs[0], keyed())
    assert offsets(logs[0]) == [0, 1, 2, 3]
    store.close()
    again, _ = open_store(*(tmp_path / name for name in FOLDERS))
    assert {log.partition: log.log_end_offset for log in again.all()} == {
        partition: CUT + (partition == 0) for partition in range(LOGS)
    }


def test_a_log_that_ends_there_already_needs_nothing(tmp_path: Path) -> None:
    store, logs = filled(tmp_path, WatchedFiles())
    assert begun(store, logs, offset=5) == []
    assert not any(log.is_truncating for log in logs)


def test_what_was_never_synced_is_cut_without_a_checkpoint(tmp_path: Path) -> None:
    files = WatchedFiles()
    store, _ = open_store(tmp_path / "a", files=files)
    log = store.create("events", 0, None, now_ms=NOW_MS)
    append(log, *(batch() for _ in range(5)))
    truncations = begun(store, [log])
    assert store.lowering_jobs(truncations) == []


def _is_read(store: LogStore, log: PartitionLog) -> object:
    return log.read(0, size_max=1000, upper_offset=5) is not NOTHING_YET


def _is_flushed(store: LogStore, log: PartitionLog) -> object:
    return log.flush_due(NOW_MS * 2, NOW_MS) or log.flush_task()


def _is_cleaned(store: LogStore, log: PartitionLog) -> object:
    return log.cleaner.find(log, NOW_MS)


def _is_maintained(store: LogStore, log: PartitionLog) -> object:
    return store.maintain(NOW_MS + 10 * log.config.retention_ms)


@pytest.mark.parametrize("works_on", [_is_read, _is_flushed, _is_cleaned, _is_maintained])
def test_nobody_works_on_a_log_while_it_is_cut(
    tmp_path: Path, works_on: Callable[[LogStore, PartitionLog], object]
) -> None:
    store, _ = open_store(
        tmp_path,
        config=LogConfig(
            cleanup_policy=("compact", "delete"), segment_bytes=200, min_cleanable_dirty_ratio=0.0
        ),
    )
    log = store.create("events", 0, None, now_ms=NOW_MS)
    append(log, *(keyed() for _ in range(5)))
    flush(log)
    append(log, keyed())
    (truncation,) = begun(store, [log])
    assert not works_on(store, log)
    do(store, [truncation])
    assert not works_on(store, log)
    truncation.end()
    append(log, *(keyed() for _ in range(3)))
    assert works_on(store, log)


def test_a_cleaning_under_way_swaps_nothing_into_a_log_that_is_cut(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, config=LogConfig(cleanup_policy=("compact",), segment_bytes=200))
    log = store.create("events", 0, None, now_ms=NOW_MS)
    append(log, *(keyed() for _ in range(8)))
    flush(log)
    dirt = log.cleaner.find(log, NOW_MS)
    assert dirt is not None
    cleaning = log.cleaner.clean(log, dirt, CleanerLimits(), NOW_MS)
    next(cleaning)()
    before = [segment.base_offset for segment in log.body.segments]
    (truncation,) = begun(store, [log], offset=7)
    assert list(cleaning) == []
    assert [segment.base_offset for segment in log.body.segments] == before
    do(store, [truncation])
    truncation.end()
    assert offsets(log) == list(range(7))


def test_a_flush_that_began_before_vouches_for_nothing_above_the_cut(tmp_path: Path) -> None:
    store, logs = filled(tmp_path, WatchedFiles())
    append(logs[0], keyed())
    task = logs[0].flush_task()
    assert task is not None
    (truncation,) = begun(store, logs[:1])
    do(store, [truncation])
    truncation.end()
    logs[0].flushed(task())
    assert logs[0].recovery_point <= CUT


def test_where_the_checkpoint_cannot_be_written_nothing_is_cut_and_the_other_directory_is(
    tmp_path: Path,
) -> None:
    files = WatchedFiles()
    store, logs = filled(tmp_path, files)
    files.broken = f"{tmp_path}/a"
    truncations = begun(store, logs)
    do(store, truncations)
    files.broken = "nowhere"
    for truncation in truncations:
        if truncation.log.directory.startswith(f"{tmp_path}/a"):
            with pytest.raises(StorageError, match="No space left"):
                truncation.end()
        else:
            truncation.end()
    ends = {log.directory[len(str(tmp_path)) + 1]: log.log_end_offset for log in logs}
    assert ends == {"a": 5, "b": CUT}
    assert all(offsets(log) == list(range(log.log_end_offset)) for log in logs)
    again = begun(store, logs)
    do(store, again)
    for truncation in again:
        truncation.end()
    assert {log.log_end_offset for log in logs} == {CUT}


def test_an_epoch_without_batches_goes_with_neither_batches_nor_a_checkpoint(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    log = store.create("events", 0, None, now_ms=NOW_MS)
    append(log, *(batch() for _ in range(5)))
    assert store.truncation(log, 5) is None, "it ends there, and its epoch has batches"
    log.assign_epoch(9)
    assert log.latest_epoch == 9
    truncation = store.truncation(log, 7)
    assert truncation is not None
    assert store.lowering_jobs([truncation]) == []
    truncation.run()
    truncation.end()
    assert (log.latest_epoch, offsets(log), log.is_truncating) == (0, [0, 1, 2, 3, 4], False)
    assert store.truncation(log, 7) is None
    append(log, batch())
    assert offsets(log) == [0, 1, 2, 3, 4, 5]


def test_a_truncation_that_nobody_ran_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    log = store.create("events", 0, None, now_ms=NOW_MS)
    append(log, *(batch() for _ in range(5)))
    truncation = store.truncation(log, 2)
    assert truncation is not None
    with pytest.raises(StorageError, match="was not cut to 2"):
        truncation.end()
    assert (offsets(log), log.is_truncating) == ([0, 1, 2, 3, 4], False)
    store.truncate_at_once(log, 2)
    assert offsets(log) == [0, 1]
