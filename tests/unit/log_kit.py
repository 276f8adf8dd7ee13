"""Small helpers for the log's unit tests: batches, a log in a temporary folder, what a consumer reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.broker.config.topics import LogConfig
from headrace.broker.log.appender import Appender
from headrace.broker.log.files import Files, OsFiles
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.progress import OpeningProgress
from headrace.broker.log.results import RecoveryReport
from headrace.broker.log.startup import MapFolders, open_logs
from headrace.broker.log.store import LogStore
from headrace.broker.wire.batches import Record, encode_batch, iter_batches, set_base_offset_and_epoch

NOW_MS = 1_700_000_000_000


def batch(
    count: int = 1,
    *,
    size: int = 50,
    timestamp_ms: int = NOW_MS,
    producer: tuple[int, int, int] | None = None,
    at: int | None = None,
    control: bool = False,
) -> memoryview:
    """A writable batch of `count` records; `producer` is (id, epoch, first sequence), `at` its base offset."""
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    records = [Record(0, timestamp_ms + index, None, b"x" * size, []) for index in range(count)]
    encoded = encode_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, control=control
    )
    if at is not None:
        set_base_offset_and_epoch(encoded, 0, at, 7)
    return memoryview(encoded)


def open_log(
    folder: Path,
    config: LogConfig | None = None,
    *,
    files: Files | None = None,
    recovery_point: int = 0,
    clean_shutdown: bool = False,
) -> tuple[PartitionLog, RecoveryReport]:
    """The log `events-0` in `folder`."""
    return PartitionLog.open(
        files or OsFiles(),
        f"{folder}/events-0",
        config or LogConfig(),
        now_ms=NOW_MS,
        recovery_point=recovery_point,
        clean_shutdown=clean_shutdown,
    )


def open_store(
    *folders: Path,
    config: LogConfig | None = None,
    broker_id: int = 1,
    cluster_id: str = "c",
    files: Files | None = None,
    overrides: Callable[[str], Mapping[str, str]] = lambda _: {},
    map_folders: MapFolders = map,
    progress: OpeningProgress | None = None,
) -> tuple[LogStore, list[RecoveryReport]]:
    """A store with these data directories, and what their recovery found."""
    return open_logs(
        files or OsFiles(),
        [str(folder) for folder in folders],
        config or LogConfig(),
        broker_id=broker_id,
        cluster_id=cluster_id,
        overrides=overrides,
        now_ms=NOW_MS,
        map_folders=map_folders,
        progress=progress,
    )


def append(log: PartitionLog, *batches: memoryview, now_ms: int = NOW_MS) -> None:
    """Append as a leader of epoch 0, visible to readers at once."""
    for one in batches:
        Appender(log).append_as_leader(one, leader_epoch=0, now_ms=now_ms)
    log.advance_high_watermark(log.log_end_offset)


def roll(log: PartitionLog, now_ms: int = NOW_MS) -> None:
    """Begin a new segment, as an append does when it is due, unless the active one is empty."""
    if log.body.segments.active.size:
        log.restless[log] = None
        with log.body.storage_errors():
            log.body.roll(log.log_end_offset, log.log_end_offset, log.config, now_ms)


def fill(log: PartitionLog, count: int, *, size: int = 50) -> None:
    """Append `count` batches of one record, a second apart."""
    for number in range(count):
        append(log, batch(size=size, timestamp_ms=NOW_MS + number * 1000))


def offsets(log: PartitionLog) -> list[int]:
    """Base offsets of all batches that a consumer gets, fetch by fetch."""
    found: list[int] = []
    offset = log.log_start_offset
    while True:
        data = log.read(offset, size_max=500, upper_offset=log.log_end_offset).read()
        headers = [header for _, header in iter_batches(data)]
        if not headers:
            return found
        found += [header.base_offset for header in headers]
        offset = headers[-1].next_offset
