"""Checkpoints are written when they say something new, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.broker.config import LogConfig
from headrace.broker.errors import StorageError
from headrace.broker.log.files import Buffer, OsFiles
from headrace.broker.log.store import LogStore
from headrace.broker.wire.batches import Record, encode_batch

NOW_MS = 1_700_000_000_000


class CountingFiles(OsFiles):
    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[str] = []

    def replace_file(self, path: str, data: Buffer) -> None:
        self.replaced.append(Path(path).name)
        super().replace_file(path, data)


def opened(files: CountingFiles, directory: Path) -> LogStore:
    store, _ = LogStore.open(
        files,
        [str(directory)],
        LogConfig(),
        broker_id=1,
        cluster_id="c",
        overrides=lambda _: {},
        now_ms=NOW_MS,
    )
    return store


def test_a_checkpoint_that_says_what_the_last_one_said_is_not_written_again(tmp_path: Path) -> None:
    files = CountingFiles()
    store = opened(files, tmp_path / "logs")
    log = store.create("events", 0, None, now_ms=NOW_MS)
    store.checkpoint()
    files.replaced.clear()
    store.checkpoint()
    assert files.replaced == []
    batch = encode_batch([Record(0, NOW_MS, b"k", b"v", [])])
    log.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)
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
