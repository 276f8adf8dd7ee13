"""The start of a broker's logs: its data directories are claimed, and every log in them is opened and recovered.

A directory whose disk fails is offline from the start, the others go on. Of a partition's two folders one is chosen, and
what a move left half done goes on (`moving.py`). Must not know: what becomes of the logs afterwards (`store.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import NamedTuple

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import StorageError
from headrace.broker.log import names
from headrace.broker.log.checkpoints import (
    CLEANER_OFFSET_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    REPLICATION_OFFSET_FILE,
)
from headrace.broker.log.data_directory import DataDirectory
from headrace.broker.log.files import Files, storage_errors
from headrace.broker.log.moving import SUCCESSOR_MARK
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.progress import OpeningProgress
from headrace.broker.log.results import LogFinding, RecoveryReport
from headrace.broker.log.store import LogStore
from headrace.broker.wire.partitions import PartitionKey

Opened = tuple[PartitionLog, RecoveryReport]
MapFolders = Callable[[Callable[[str], Opened], Iterable[str]], Iterable[Opened]]


def open_logs(
    files: Files,
    directories: Sequence[str],
    default_config: LogConfig,
    *,
    broker_id: int,
    cluster_id: str,
    overrides: Callable[[str], Mapping[str, str]],
    now_ms: int,
    map_folders: MapFolders = map,
    make_lock: Callable[[], AbstractContextManager[object] | None] = lambda: None,
    progress: OpeningProgress | None = None,
) -> tuple[LogStore, list[RecoveryReport]]:
    """Open every log below `directories`; reports hold what recovery found in each of them.

    `overrides` gives a topic's own configuration. `map_folders` may be that of a thread pool: recovery reads and
    checks whole segments; `make_lock` makes locks of threads. A directory whose disk fails is `offline`.
    Raises StorageError: a directory of another broker or cluster (meta.properties) or one that another
    process uses, a partition in two directories, no directory that can be used.
    """
    homes = [DataDirectory(files, path, make_lock()) for path in directories]
    store = LogStore(files, homes, default_config, overrides)
    start = _Start(files, store, now_ms, map_folders, progress or OpeningProgress())
    reports: list[RecoveryReport] = []
    for home in homes:
        try:
            with storage_errors(files, home.path):
                home.claim(broker_id, cluster_id)
                reports += start.open_directory(home)
        except StorageError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            store.put_offline(home, str(error))
    if store.has_failed:
        raise StorageError(f"No data directory can be used: {' '.join(store.offline.values())}")
    store.moves.settle_interrupted(now_ms)
    return store, reports


class _Known(NamedTuple):
    """What the files of a data directory say of the logs in it."""

    recovery_points: Mapping[PartitionKey, int]
    log_start_offsets: Mapping[PartitionKey, int]
    high_watermarks: Mapping[PartitionKey, int]
    clean_offsets: Mapping[PartitionKey, int]
    was_clean: bool

    @classmethod
    def take(cls, home: DataDirectory) -> _Known:
        """Read them; the clean stop that they tell of counts once."""
        return cls(
            home.offsets(RECOVERY_POINT_FILE),
            home.offsets(LOG_START_OFFSET_FILE),
            home.offsets(REPLICATION_OFFSET_FILE),
            home.offsets(CLEANER_OFFSET_FILE),
            home.take_clean_shutdown(),
        )


class _Start:
    """Opens one directory after the other and hands the logs to the store."""

    def __init__(
        self, files: Files, store: LogStore, now_ms: int, map_folders: MapFolders, progress: OpeningProgress
    ) -> None:
        self._files = files
        self._store = store
        self._now_ms = now_ms
        self._map_folders = map_folders
        self._progress = progress

    def open_directory(self, home: DataDirectory) -> list[RecoveryReport]:
        """Open all the logs in it, side by side. Raises OSError, StorageError."""
        home.remove_deleted()
        known = _Known.take(home)
        folders = home.folders()
        self._progress.logs_total += len(folders)
        if not known.was_clean:
            self._progress.bytes_total += sum(home.log_size(folder) for folder in folders)
        reports: list[RecoveryReport] = []
        opened = partial(self._opened, home, known, cache(self._store.config_of))
        for folder, (log, report) in zip(folders, self._map_folders(opened, folders), strict=True):
            self._progress.logs_opened += 1
            self._take_in(folder, log, home)
            reports.append(report)
        if home.findings:
            reports.insert(0, RecoveryReport(home.path, findings=home.findings))
        named = known.recovery_points.keys() | known.log_start_offsets.keys()
        if named - home.logs.keys() - home.successors.keys():
            # A crash kept the end of a log out of the checkpoints: a new one of that name must not begin with them.
            home.checkpoint()
        return reports

    def _opened(
        self, home: DataDirectory, known: _Known, config_of: Callable[[str], LogConfig], folder: str
    ) -> Opened:
        key = names.partition_of(folder)
        assert key is not None, "it was chosen for its name"
        # What a checkpoint says is said of the log, not of a copy.
        is_copy = names.parse_partition_directory(folder) is None
        log, report = PartitionLog.open(
            self._files,
            f"{home.path}/{folder}",
            config_of(key[0]),
            now_ms=self._now_ms,
            recovery_point=0 if is_copy else known.recovery_points.get(key, 0),
            clean_shutdown=known.was_clean,
            log_start_offset=0 if is_copy else known.log_start_offsets.get(key, 0),
            progress=self._progress,
        )
        high_watermark = known.high_watermarks.get(key, 0)
        if not is_copy and high_watermark > log.log_end_offset:
            log.lost_end = high_watermark
        log.advance_high_watermark(high_watermark)
        log.cleaner.clean_offset = known.clean_offsets.get(key)
        return log, report

    def _take_in(self, folder: str, log: PartitionLog, home: DataDirectory) -> None:
        key = (log.topic, log.partition)
        store, moves = self._store, self._store.moves
        is_copy = names.parse_partition_directory(folder) is None
        # A log's own folder comes before its copies: one in the same directory leads nowhere.
        if is_copy and moves.target(key) is None and key not in home.logs:
            moves.add(key, home, log)
        elif is_copy:
            self._files.remove_directory(log.directory)
        elif self._files.exists(f"{log.directory}/{SUCCESSOR_MARK}"):
            home.successors[key] = log
        elif store.get(*key) is not None:
            self._choose(folder, log, home)
        else:
            store.adopt(key, log, home)

    def _choose(self, folder: str, log: PartitionLog, home: DataDirectory) -> None:
        """Of two folders of a partition, the one stays that ever held a record.

        The other was left where a log could not be made, before it was made in the next directory.
        """
        key = (log.topic, log.partition)
        found_home = self._store.home_of(key)
        found = found_home.logs[key]
        if log.log_end_offset and found.log_end_offset:
            raise StorageError(
                f"{folder} is in {found_home.path} and in {home.path}: move one of the two folders away."
            )
        empty = found if log.log_end_offset else log
        if empty is found:
            del found_home.logs[key]
            self._store.adopt(key, log, home)
        self._files.remove_directory(empty.directory)
        reason = f"it is empty, and there is {self._store.home_of(key).path}/{folder}"
        home.findings.append(LogFinding("discarded", empty.directory, 0, 0, reason))
