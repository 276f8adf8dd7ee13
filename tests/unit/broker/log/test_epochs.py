"""When the checkpoint of leader epochs is written, and that nothing stale comes back from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_kit import NOW_MS, batch, open_log

from headrace.broker.log.appender import Appender
from headrace.broker.log.files import OsFiles


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


def test_opening_drops_epochs_at_the_logs_end_and_writes_nothing(tmp_path: Path, writes: list[str]) -> None:
    led_and_stopped(tmp_path, 4)
    assert stored(tmp_path) == ["0 0", "4 1"]
    writes.clear()
    log, _ = open_log(tmp_path)
    assert (log.latest_epoch, writes) == (0, [])
    log.assign_epoch(5)
    assert (stored(tmp_path), writes) == (["0 0", "5 1"], ["leader-epoch-checkpoint"])


def test_the_same_epoch_again_is_there_already(tmp_path: Path, writes: list[str]) -> None:
    led_and_stopped(tmp_path, 4)
    writes.clear()
    log, _ = open_log(tmp_path)
    assert log.body.epochs.preparation(4, 1) is None
    log.assign_epoch(4)
    assert (log.latest_epoch, writes) == (4, [])


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


def test_an_empty_log_writes_its_epoch_once_a_start(tmp_path: Path, writes: list[str]) -> None:
    for epoch in (1, 2):
        log, _ = open_log(tmp_path)
        job = log.body.epochs.preparation(epoch, 0)
        assert job is not None
        job()
        writes.clear()
        log.assign_epoch(epoch)
        assert (stored(tmp_path), writes) == ([f"{epoch} 0"], []), "what is prepared is only renamed"
        log.close()
