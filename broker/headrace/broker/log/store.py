"""The logs of one broker: its data directories, their checkpoints, their recovery at start.

Owns the folder names, `meta.properties`, the offset checkpoints and `.kafka_cleanshutdown`. Invariant: a recovery point
on the disk is never ahead of what has been synced. Must not know: who leads what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from uuid import UUID

from headrace.broker.config import LogConfig
from headrace.broker.errors import StorageError
from headrace.broker.log import names
from headrace.broker.log.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    LOG_START_OFFSET_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
    REPLICATION_OFFSET_FILE,
    CheckpointError,
    TopicPartition,
    decode_meta_properties,
    decode_offsets,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
)
from headrace.broker.log.compaction import Dirt
from headrace.broker.log.files import Files, storage_errors
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import Finding, RecoveryReport

FlushTask = tuple[PartitionLog, Callable[[], int]]
Opened = tuple[PartitionLog, RecoveryReport]
MapKeys = Callable[[Callable[[TopicPartition], Opened], Iterable[TopicPartition]], Iterable[Opened]]
MapLogs = Callable[[Callable[[PartitionLog], None], Iterable[PartitionLog]], Iterable[None]]


class DataDirectory:
    """One of `log.dirs`: the logs in it and its checkpoint files. All methods may raise OSError."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.findings: list[Finding] = []
        self._clean_offsets: dict[TopicPartition, int] | None = None

    def claim(self, broker_id: int, cluster_id: str) -> None:
        """Make the directory this broker's, or raise StorageError when it is somebody else's."""
        self._files.make_directory(self.path)
        path = f"{self.path}/{META_PROPERTIES_FILE}"
        if not self._files.exists(path):
            self._files.replace_file(path, encode_meta_properties(broker_id, cluster_id))
            return
        try:
            found = decode_meta_properties(self._files.read(path))
        except CheckpointError as error:
            raise StorageError(f"{path} cannot be read: {error}. Restore or remove it.") from None
        for key, expected in (("broker.id", str(broker_id)), ("cluster.id", cluster_id)):
            if found.get(key, expected) != expected:
                raise StorageError(
                    f"{path} says {key}={found[key]}, but this broker has {key}={expected}: "
                    "give it a data directory of its own."
                )

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        """The content of an offset checkpoint; an unreadable one is as good as none, and is reported."""
        path = f"{self.path}/{name}"
        if not self._files.exists(path):
            return {}
        data = self._files.read(path)
        try:
            return decode_offsets(data)
        except CheckpointError as error:
            self.findings.append(Finding("discarded", path, 0, len(data), str(error)))
            return {}

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace an offset checkpoint."""
        self._files.replace_file(f"{self.path}/{name}", encode_offsets(offsets))

    def take_clean_shutdown(self) -> bool:
        """Whether the last stop was a clean one; from now on any stop is unclean until `mark_clean_shutdown`."""
        path = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        was_clean = self._files.exists(path)
        if was_clean:
            self._files.remove(path)
            self._files.sync_directory(self.path)
        return was_clean

    def mark_clean_shutdown(self) -> None:
        """Every log here is closed and synced."""
        self._files.replace_file(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", encode_clean_shutdown())

    def remove_deleted(self) -> None:
        """Remove the folders of deleted partitions that an earlier run left."""
        for name in self._files.list(self.path):
            if name.endswith(names.DELETE_DIRECTORY_SUFFIX):
                self._files.remove_directory(f"{self.path}/{name}")

    def partitions(self) -> list[TopicPartition]:
        """The partitions that have a folder here."""
        found = (names.parse_partition_directory(name) for name in self._files.list(self.path))
        return [partition for partition in found if partition is not None]

    def checkpoint(self) -> None:
        """Write the offsets that a restart begins with."""
        logs = self.logs
        self.write_offsets(RECOVERY_POINT_FILE, {key: log.recovery_point for key, log in logs.items()})
        self.write_offsets(
            LOG_START_OFFSET_FILE,
            {key: log.log_start_offset for key, log in logs.items() if log.has_moved_start},
        )
        self.write_offsets(REPLICATION_OFFSET_FILE, {key: log.high_watermark for key, log in logs.items()})
        cleaned = {key: log.cleaner.clean_offset for key, log in logs.items()}
        clean_offsets = {key: offset for key, offset in cleaned.items() if offset is not None}
        if clean_offsets != self._clean_offsets:
            self.write_offsets(CLEANER_OFFSET_FILE, clean_offsets)
            self._clean_offsets = clean_offsets


class LogStore:
    """See the module's text; made by `open`."""

    def __init__(
        self,
        files: Files,
        directories: list[DataDirectory],
        default_config: LogConfig,
        overrides: Callable[[str], Mapping[str, str]],
    ) -> None:
        self._files = files
        self._directories = directories
        self._default_config = default_config
        self._overrides = overrides
        self._homes: dict[TopicPartition, DataDirectory] = {}
        # Folders of deleted partitions and when they go; bounded by the partitions deleted in file.delete.delay.ms.
        self._doomed: list[tuple[int, str]] = []

    @classmethod
    def open(
        cls,
        files: Files,
        directories: Sequence[str],
        default_config: LogConfig,
        *,
        broker_id: int,
        cluster_id: str,
        overrides: Callable[[str], Mapping[str, str]],
        now_ms: int,
        map_keys: MapKeys = map,
    ) -> tuple[LogStore, list[RecoveryReport]]:
        """Open every log below `directories`; reports hold what recovery found in each of them.

        `overrides` gives a topic's own configuration. `map_keys` may be that of a thread pool: recovery reads and
        checks whole segments. Raises StorageError: a directory of another broker or cluster
        (meta.properties), a partition in two directories, an unreadable disk.
        """
        homes = [DataDirectory(files, path) for path in directories]
        store = cls(files, homes, default_config, overrides)
        reports: list[RecoveryReport] = []
        for home in homes:
            with storage_errors(home.path):
                home.claim(broker_id, cluster_id)
                reports += store._open_directory(home, now_ms, map_keys)
        return store, reports

    def _open_directory(self, home: DataDirectory, now_ms: int, map_keys: MapKeys) -> list[RecoveryReport]:
        home.remove_deleted()
        recovery_points = home.offsets(RECOVERY_POINT_FILE)
        log_start_offsets = home.offsets(LOG_START_OFFSET_FILE)
        high_watermarks = home.offsets(REPLICATION_OFFSET_FILE)
        clean_offsets = home.offsets(CLEANER_OFFSET_FILE)
        was_clean = home.take_clean_shutdown()
        reports = [RecoveryReport(home.path, findings=home.findings)] if home.findings else []
        keys = home.partitions()
        self._refuse_twins(keys, home)

        def opened(key: TopicPartition) -> Opened:
            return PartitionLog.open(
                self._files,
                f"{home.path}/{names.partition_directory(*key)}",
                self._config_of(key[0]),
                now_ms=now_ms,
                recovery_point=recovery_points.get(key, 0),
                clean_shutdown=was_clean,
                log_start_offset=log_start_offsets.get(key, 0),
            )

        for key, (log, report) in zip(keys, map_keys(opened, keys), strict=True):
            log.advance_high_watermark(high_watermarks.get(key, 0))
            log.cleaner.clean_offset = clean_offsets.get(key)
            self._adopt(key, log, home)
            reports.append(report)
        return reports

    def _refuse_twins(self, keys: list[TopicPartition], home: DataDirectory) -> None:
        for key in keys:
            if key in self._homes:
                raise StorageError(
                    f"{names.partition_directory(*key)} is in {self._homes[key].path} and in {home.path}: "
                    "move one of the two folders away."
                )

    def _config_of(self, topic: str) -> LogConfig:
        return self._default_config.with_overrides(dict(self._overrides(topic)))

    def _adopt(self, key: TopicPartition, log: PartitionLog, home: DataDirectory) -> None:
        self._homes[key] = home
        home.logs[key] = log
        log.on_recovery_point_lowered = home.checkpoint

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log of a partition, or None."""
        home = self._homes.get((topic, partition))
        return None if home is None else home.logs[topic, partition]

    def create(self, topic: str, partition: int, topic_id: UUID | None, *, now_ms: int) -> PartitionLog:
        """The log of a partition, made in the directory with the fewest logs when it does not exist."""
        existing = self.get(topic, partition)
        if existing is not None:
            return existing
        home = min(self._directories, key=lambda directory: len(directory.logs))
        log, _ = PartitionLog.open(
            self._files,
            f"{home.path}/{names.partition_directory(topic, partition)}",
            self._config_of(topic),
            now_ms=now_ms,
            topic_id=topic_id,
        )
        self._adopt((topic, partition), log, home)
        return log

    def delete(self, topic: str, partition: int, *, now_ms: int) -> None:
        """Rename its folder to `<topic>-<p>.<uuid>-delete`; `maintain` removes it after file.delete.delay.ms."""
        home = self._homes.pop((topic, partition), None)
        if home is None:
            return
        log = home.logs.pop((topic, partition))
        doomed = f"{home.path}/{names.deleted_directory(topic, partition, log.topic_id)}"
        with storage_errors(home.path):
            self._files.rename(log.directory, doomed)
            self._files.sync_directory(home.path)
            # A partition of that name must not begin with the offsets of this one.
            home.checkpoint()
        self._doomed.append((now_ms + log.config.file_delete_delay_ms, doomed))

    def all(self) -> Iterable[PartitionLog]:
        """Every open log."""
        return chain.from_iterable(home.logs.values() for home in self._directories)

    def update_defaults(self, config: LogConfig) -> None:
        """Use changed defaults of the broker in all logs, under their topics' own. Raises InvalidConfigError."""
        self._default_config = config
        for log in self.all():
            log.update_config(self._config_of(log.topic))

    def update_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Use a topic's changed configuration in all its logs. Raises InvalidConfigError."""
        config = self._default_config.with_overrides(dict(overrides))
        for log in self.all():
            if log.topic == topic:
                log.update_config(config)

    def checkpoint(self) -> None:
        """Write the recovery-point, log-start-offset and replication-offset (high watermark) checkpoints.

        Raises the last StorageError after having written all that can be written.
        """
        failure: StorageError | None = None
        for home in self._directories:
            try:
                with storage_errors(home.path):
                    home.checkpoint()
            except StorageError as error:
                failure = error
        if failure is not None:
            raise failure

    def maintain(self, now_ms: int) -> list[Finding]:
        """Roll, retire, expire and remove what is due; call every few seconds. Answers what it did or found.

        A log whose disk fails is a finding and keeps the others from nothing.
        """
        findings: list[Finding] = []
        for log in self.all():
            try:
                findings += _maintain(log, now_ms)
            except StorageError as error:
                findings.append(Finding("failed", log.directory, 0, 0, str(error)))
        self._remove_doomed(now_ms)
        return findings

    def _remove_doomed(self, now_ms: int) -> None:
        due = [path for due_ms, path in self._doomed if due_ms <= now_ms]
        self._doomed = [doomed for doomed in self._doomed if doomed[0] > now_ms]
        for path in due:
            with storage_errors(path):
                self._files.remove_directory(path)

    def filthiest(self, now_ms: int) -> tuple[PartitionLog, Dirt] | None:
        """The compacted log with the largest share of dirty bytes, when one is worth a cleaning (see `LogCleaner`)."""
        dirty = [(log, dirt) for log in self.all() if (dirt := log.cleaner.dirt(log, now_ms)) is not None]
        return max(dirty, key=lambda found: found[1].ratio, default=None)

    def flush_tasks(self, now_ms: int) -> list[FlushTask]:
        """Flush jobs that are due, for threads; hand each answer to its log's `flushed`, then call `checkpoint`."""
        due = ((log, log.flush_task()) for log in self.all() if log.flush_due(now_ms))
        return [(log, task) for log, task in due if task is not None]

    def close(self, map_logs: MapLogs = map) -> None:
        """Close every log, write the checkpoints and `.kafka_cleanshutdown`; a log that fails leaves its directory unclean.

        `map_logs` may be that of a thread pool: closing waits for the disk, which takes many syncs at once.
        Raises the last StorageError after having closed all that can be closed.
        """
        failure: StorageError | None = None
        for home in self._directories:
            try:
                self._close_directory(home, map_logs)
            except StorageError as error:
                failure = error
        if failure is not None:
            raise failure

    def _close_directory(self, home: DataDirectory, map_logs: MapLogs) -> None:
        for _ in map_logs(PartitionLog.close, home.logs.values()):
            pass
        with storage_errors(home.path):
            home.checkpoint()
            home.mark_clean_shutdown()


def _maintain(log: PartitionLog, now_ms: int) -> list[Finding]:
    findings: list[Finding] = []
    log.roll_if_due(now_ms)
    log.expire_producers(now_ms)
    for segment in log.delete_retired(now_ms):
        path = f"{log.directory}/{names.segment_file(segment.base_offset, names.LOG_SUFFIX)}"
        findings.append(Finding("retired", path, 0, segment.size, segment.reason))
    return findings + log.take_findings()
