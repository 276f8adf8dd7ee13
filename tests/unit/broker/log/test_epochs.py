"""When the checkpoint of leader epochs is written, and that nothing stale comes back from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_kit import NOW_MS, batch, open_log

from headrace.broker.log.appender import Appender
from headrace.broker.log.files import OsFiles
from headrace.broker.log.partition_log import PartitionLog


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were replaced, in order."""
    written: list[str] = []
    real = OsFiles.replace_file

    def replace_file(files: OsFiles, path: str, data: bytes) -> None:
        written.append(Path(path).name)
        real(files, path, data)

    monkeypatch.setattr(OsFiles, "replace_file", replace_file)
    return written


def stored(folder: Path) -> list[str]:
    return (folder / "events-0" / "leader-epoch-checkpoint").read_text().splitlines()[2:]


def led_and_stopped(folder: Path, *epochs: int) -> None:
    """A log with a batch of epoch 0 that was led in `epochs` afterwards, without another batch."""
    log, _ = open_log(folder)
    Appender(log).append_as_leader(batch(), leader_epoch=0, now_ms=NOW_MS)
    for epoch in epochs:
        log.assign_epoch(epoch)
    log.close()


def crashed(folder: Path) -> PartitionLog:
    """The log of a process that was killed, opened by the next one."""
    return open_log(folder, clean_shutdown=False)[0]


def test_a_new_epoch_waits_for_no_disk(tmp_path: Path, writes: list[str]) -> None:
    led_and_stopped(tmp_path, 4)
    assert stored(tmp_path) == ["0 0", "4 1"]
    writes.clear()
    log, _ = open_log(tmp_path)
    assert (log.latest_epoch, writes) == (0, []), "what no batch has is dropped"
    log.assign_epoch(5)
    assert (stored(tmp_path), writes) == (["0 0", "4 1"], [])
    log.close()
    assert (stored(tmp_path), writes) == (["0 0", "5 1"], ["leader-epoch-checkpoint"])


def test_recovery_has_the_epochs_that_no_file_tells_of_from_the_batches(tmp_path: Path) -> None:
    led_and_stopped(tmp_path, 4)
    log, _ = open_log(tmp_path)
    for epoch in (5, 7):
        log.assign_epoch(epoch)
        Appender(log).append_as_leader(batch(), leader_epoch=epoch, now_ms=NOW_MS)
    log.assign_epoch(8)
    assert stored(tmp_path) == ["0 0", "4 1"]
    assert crashed(tmp_path).body.epochs.entries == [(0, 0), (5, 1), (7, 2)]


def test_an_epoch_is_in_the_file_before_the_recovery_point_passes_it(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    Appender(log).append_as_leader(batch(), leader_epoch=3, now_ms=NOW_MS)
    flush = log.flush_task()
    assert flush is not None
    synced = flush()
    assert (stored(tmp_path), log.recovery_point) == (["3 0"], 0)
    log.flushed(synced)
    assert log.recovery_point == 1


def test_what_is_cut_off_is_out_of_the_file_whatever_a_job_was_about_to_write(tmp_path: Path) -> None:
    """A job of before the truncation would bring back epoch 6, above which recovery believes no batch of epoch 3."""
    log, _ = open_log(tmp_path)
    Appender(log).append_as_leader(batch(), leader_epoch=3, now_ms=NOW_MS)
    log.assign_epoch(6)
    job = log.epoch_task()
    assert job is not None
    assert (log.epoch_task(), log.flush_task()) == (None, None), "one job at a time"
    log.body.epochs.truncate_from_end(1)
    job()
    log.epochs_noted()
    records = batch()
    records[:8], records[12:16] = (1).to_bytes(8, "big"), (3).to_bytes(4, "big")
    Appender(log).append_as_follower(records, now_ms=NOW_MS)
    assert stored(tmp_path) == ["3 0"]
    assert crashed(tmp_path).body.epochs.entries == [(3, 0)]


def test_what_a_job_has_written_counts_once_it_is_done(tmp_path: Path, writes: list[str]) -> None:
    log, _ = open_log(tmp_path)
    log.assign_epoch(2)
    job = log.epoch_task()
    assert job is not None
    log.assign_epoch(3)
    job()
    log.epochs_noted()
    assert (stored(tmp_path), log.body.epochs.is_written, writes) == (["2 0"], False, [])
    log.close()
    assert stored(tmp_path) == ["3 0"]


def test_a_job_for_a_log_that_was_deleted_meanwhile_does_nothing(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    log.assign_epoch(2)
    job = log.epoch_task()
    assert job is not None
    (tmp_path / "events-0").rename(tmp_path / "deleted")
    job()
    log.epochs_noted()
    assert not log.body.epochs.is_written


def test_a_dropped_epoch_does_not_come_back_above_later_batches(tmp_path: Path) -> None:
    """Batches of the epoch before it, from a leader that never heard of the dropped one."""
    led_and_stopped(tmp_path, 4)
    log, _ = open_log(tmp_path)
    records = batch()
    records[:8] = (1).to_bytes(8, "big")
    records[12:16] = (0).to_bytes(4, "big")
    Appender(log).append_as_follower(records, now_ms=NOW_MS)
    assert stored(tmp_path) == ["0 0"]
    log.close()
    again, _ = open_log(tmp_path)
    assert (again.latest_epoch, again.log_end_offset) == (0, 2)
