"""A log that moves while it is cut: the copy waits, or, when it was about to be the log, begins again."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_kit import NOW_MS, append, batch, offsets, open_store

from headrace.broker.errors import StorageError
from headrace.broker.log.moving import KEPT_MARK, Steps
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.store import LogStore
from headrace.broker.log.truncation import Truncation

KEY = ("events", 0)


def moving(tmp_path: Path) -> tuple[LogStore, PartitionLog]:
    """A log of five batches in directory `a`, on its way to `b`."""
    store, _ = open_store(tmp_path / "a", tmp_path / "b")
    log = store.create(*KEY, None, now_ms=NOW_MS)
    append(log, *(batch() for _ in range(5)))
    begin(store, str(tmp_path / "b"))
    return store, log


def begin(store: LogStore, path: str) -> None:
    opening = store.moves.begin(KEY, path, NOW_MS)
    opening.run()
    store.moves.begun(opening)


def steps_of(store: LogStore) -> Steps:
    return store.moves.steps(KEY, lambda: NOW_MS)


def finish(steps: Steps) -> bool:
    while True:
        try:
            next(steps)()
        except StopIteration as end:
            return bool(end.value)


def begun(store: LogStore, log: PartitionLog) -> Truncation:
    truncation = store.truncation(log, 3)
    assert truncation is not None
    for job in store.lowering_jobs([truncation]):
        job()
    return truncation


def end(truncation: Truncation) -> None:
    truncation.run()
    truncation.end()


def test_a_copy_waits_while_its_log_is_cut_and_is_cut_as_well(tmp_path: Path) -> None:
    store, log = moving(tmp_path)
    steps = steps_of(store)
    next(steps)()
    truncation = begun(store, log)
    with pytest.raises(StorageError, match="is being truncated"):
        next(steps)
    end(truncation)
    assert finish(steps_of(store))
    assert log.directory == f"{tmp_path}/b/events-0"
    append(log, batch())
    assert offsets(log) == [0, 1, 2, 3]


def test_a_log_that_is_cut_when_its_successor_has_its_name_does_not_become_it(tmp_path: Path) -> None:
    store, log = moving(tmp_path)
    steps = steps_of(store)
    while not Path(tmp_path, "b", "events-0").exists():
        next(steps)()
    steps.close()
    truncation = begun(store, log)
    assert not finish(steps_of(store))
    end(truncation)
    assert Path(tmp_path, "a", "events-0", KEPT_MARK).exists()
    assert not finish(steps_of(store))
    store.moves.cancel(KEY, NOW_MS)()
    assert not Path(tmp_path, "a", "events-0", KEPT_MARK).exists()
    begin(store, str(tmp_path / "b"))
    assert finish(steps_of(store))
    assert (log.directory, offsets(log)) == (f"{tmp_path}/b/events-0", [0, 1, 2])


def test_whoever_holds_a_log_and_appends_goes_on_in_the_other_directory(tmp_path: Path) -> None:
    store, log = moving(tmp_path)
    body, cleaner = log.body, log.cleaner
    cleaner.clean_offset = 2
    assert finish(steps_of(store))
    assert store.get(*KEY) is log
    assert log.body is not body
    assert (log.body.directory, log.cleaner.clean_offset, log.high_watermark) == (
        f"{tmp_path}/b/events-0",
        2,
        5,
    )
    assert log.cleaner is not cleaner
    assert cleaner.is_paused
    assert not log.cleaner.is_paused
