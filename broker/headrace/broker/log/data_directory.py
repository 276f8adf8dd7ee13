"""One of `log.dirs`: whose it is, the logs in it, and its checkpoint files.

Owns `.lock`, `meta.properties`, the offset checkpoints and `.kafka_cleanshutdown`. Invariants: a recovery point on the
disk is never ahead of what has been synced; an older state of a checkpoint never replaces a newer one, whatever threads
write them; nobody else's process uses the directory meanwhile. Must not know: the other directories.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

from headrace.broker.errors import StorageError
from headrace.broker.log import names
from headrace.broker.log.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    LOCK_FILE,
    LOG_START_OFFSET_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
    REPLICATION_OFFSET_FILE,
    CheckpointError,
    decode_meta_properties,
    decode_offsets,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
)
from headrace.broker.log.files import File, Files, storage_errors
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import LogFinding
from headrace.broker.wire.partitions import PartitionKey

META_PROPERTIES_VERSION = "0"
_VALUES_OF_THIS_BROKER = ("broker.id", "cluster.id", "version")

_ADVICE = {
    "broker.id": "correct broker.id, or give this broker a data directory of its own",
    "cluster.id": (
        "check zookeeper.connect first, since the ZooKeeper that it names is another cluster's or has lost its data, "
        "and the data here belongs to the cluster that the file names; only a broker that is to begin empty in another "
        "cluster takes another data directory"
    ),
    "version": "start it with the release that wrote this file",
}


class DataDirectory:
    """See the module's text. All methods may raise OSError; `lock` is held while checkpoints are written."""

    def __init__(self, files: Files, path: str, lock: AbstractContextManager[object] | None = None) -> None:
        self._files = files
        self._writing = nullcontext() if lock is None else lock
        self._lock: File | None = None
        # What the checkpoint files say since this process read or wrote them.
        self._checkpoints: dict[str, Mapping[PartitionKey, int]] = {}
        # The highest recovery points that may be on the disk while jobs are out, or when one failed.
        self._recovery_points: dict[PartitionKey, int] = {}
        # Numbers of the last state of all checkpoints that was taken, of the last one on the disk, and of the last on the
        # disk of the high watermarks alone.
        self._taken = self._written = self._watermarks_written = 0
        self._number = 0
        self.path = path
        self.logs: dict[PartitionKey, PartitionLog] = {}
        # Copies of logs in other directories that are on their way here, and such as have everything but the name's end.
        self.futures: dict[PartitionKey, PartitionLog] = {}
        self.successors: dict[PartitionKey, PartitionLog] = {}
        # Partitions whose logs are being made here.
        self.expected: set[PartitionKey] = set()
        self.findings: list[LogFinding] = []

    def claim(self, broker_id: int, cluster_id: str) -> None:
        """Make the directory this broker's, or raise StorageError when it is somebody else's."""
        if not self._files.exists(self.path):
            self._files.make_directory(self.path)
            self._files.sync_directory(self.path.rpartition("/")[0] or "/")
        self._check_owner(broker_id, cluster_id)
        self._lock = self._files.lock(f"{self.path}/{LOCK_FILE}")
        if self._lock is None:
            raise StorageError(
                f"Another broker uses {self.path} (it holds a lock on {LOCK_FILE} there): "
                "stop it, or give this one a data directory of its own."
            )
        path = f"{self.path}/{META_PROPERTIES_FILE}"
        if not self._files.exists(path):
            self._files.replace_file(path, encode_meta_properties(broker_id, cluster_id))

    def _check_owner(self, broker_id: int, cluster_id: str) -> None:
        path = f"{self.path}/{META_PROPERTIES_FILE}"
        if not self._files.exists(path):
            return
        try:
            found = decode_meta_properties(self._files.read(path))
        except CheckpointError as error:
            raise StorageError(f"{path} cannot be read: {error}. Restore or remove it.") from None
        expected_values = (str(broker_id), cluster_id, META_PROPERTIES_VERSION)
        for key, expected in zip(_VALUES_OF_THIS_BROKER, expected_values, strict=True):
            if found.get(key, expected) != expected:
                raise StorageError(
                    f"{path} says {key}={found[key]}, but this broker has {key}={expected}: {_ADVICE[key]}."
                )

    def release(self) -> None:
        """Let others use the directory."""
        self._lock = None

    def offsets(self, name: str) -> dict[PartitionKey, int]:
        """The content of an offset checkpoint; an unreadable one is as good as none, and is reported."""
        path = f"{self.path}/{name}"
        if not self._files.exists(path):
            return {}
        data = self._files.read(path)
        try:
            found = self._checkpoints[name] = decode_offsets(data)
            return found
        except CheckpointError as error:
            self.findings.append(LogFinding("discarded", path, 0, len(data), str(error)))
            return {}

    def take_clean_shutdown(self) -> bool:
        """Whether the last stop was a clean one; from now on any stop is unclean until `mark_clean_shutdown`."""
        path = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        was_clean = self._files.exists(path)
        if was_clean:
            self._files.remove(path)
        # Also without one: a start that was killed may have removed it, but not from the disk.
        self._files.sync_directory(self.path)
        return was_clean

    def mark_clean_shutdown(self) -> None:
        """Every log here is closed and synced."""
        self._files.replace_file(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", encode_clean_shutdown())

    def remove_deleted(self) -> None:
        """Remove the folders of deleted partitions that an earlier run left."""
        for name in self._files.list(self.path):
            if name.endswith(names.DELETE_DIRECTORY_SUFFIX):
                remove_log(self._files, f"{self.path}/{name}")

    def folders(self) -> list[str]:
        """The folders that hold logs or copies of logs; whatever else there is belongs to somebody else."""
        found = [name for name in self._files.list(self.path) if names.partition_of(name) is not None]
        return [name for name in found if self._files.is_directory(f"{self.path}/{name}")]

    def log_size(self, folder: str) -> int:
        """Bytes of the folder's `.log` files."""
        directory = f"{self.path}/{folder}"
        found = self._files.list_files(directory)
        return sum(
            self._files.size(f"{directory}/{name}") for name in found if name.endswith(names.LOG_SUFFIX)
        )

    def has(self, folder: str) -> bool:
        """Whether there is a folder of that name."""
        return self._files.is_directory(f"{self.path}/{folder}")

    def check_nothing_hides(self, folder: str) -> None:
        """Raises StorageError where the name of a log's folder is that of a file, or of a link to nowhere."""
        path = f"{self.path}/{folder}"
        if self._files.exists(path) and not self.has(folder):
            raise StorageError(
                f"{path} leads to no folder: mount its disk, restore or remove it, and restart the broker."
            )

    @property
    def log_count(self) -> int:
        """How many logs there are here, or will be."""
        return len(self.logs) + len(self.futures) + len(self.expected)

    def sync_names(self) -> None:
        """The folders' names are on the disk when this returns. Raises StorageError."""
        with storage_errors(self._files, self.path):
            self._files.sync_directory(self.path)

    def checkpoint(self) -> None:
        """Write the offsets that a restart begins with."""
        self.checkpoint_job()()

    def lowering_job(self, keys: Iterable[PartitionKey]) -> Callable[[], None] | None:
        """A checkpoint, after which no recovery point on the disk is above the one that these logs have now.

        None where that is so already, as for a mirror that begins behind its log's end, the only truncation of a log
        that clients are served from.
        """
        is_settled = self._written == self._taken
        known = self._checkpoints.get(RECOVERY_POINT_FILE, {}) if is_settled else self._recovery_points
        is_needed = any(known.get(key, 0) > self.logs[key].recovery_point for key in keys)
        return self.checkpoint_job() if is_needed else None

    def checkpoint_job(self) -> Callable[[], None]:
        """The offsets that a restart begins with, as they are now; the job, for any thread, writes them."""
        logs = self.logs | self.successors
        state = {
            RECOVERY_POINT_FILE: {key: log.recovery_point for key, log in logs.items()},
            LOG_START_OFFSET_FILE: {
                key: log.log_start_offset for key, log in logs.items() if log.has_moved_start
            },
            REPLICATION_OFFSET_FILE: self._watermarks(),
            CLEANER_OFFSET_FILE: {
                key: offset for key, log in logs.items() if (offset := log.cleaner.clean_offset) is not None
            },
        }
        if self._written == self._taken:
            self._recovery_points = dict(self._checkpoints.get(RECOVERY_POINT_FILE, {}))
        for key, point in state[RECOVERY_POINT_FILE].items():
            self._recovery_points[key] = max(point, self._recovery_points.get(key, 0))
        number = self._taken = self._next_number()

        def write() -> None:
            with self._writing:
                if number > self._written:
                    if number < self._watermarks_written:
                        del state[REPLICATION_OFFSET_FILE]
                    self._write(state)
                    self._written = number

        return write

    def watermark_job(self) -> Callable[[], None] | None:
        """The high watermarks alone, which move more often than anything else; None when the file says the same."""
        watermarks = self._watermarks()
        if self._written == self._taken and watermarks == self._checkpoints.get(REPLICATION_OFFSET_FILE):
            return None
        number = self._next_number()

        def write() -> None:
            with self._writing:
                if number > max(self._written, self._watermarks_written):
                    self._write({REPLICATION_OFFSET_FILE: watermarks})
                    self._watermarks_written = number

        return write

    def _watermarks(self) -> dict[PartitionKey, int]:
        """What a log has lost of what was committed stays on the record until it has followed."""
        logs = self.logs | self.successors
        return {key: max(log.high_watermark, log.lost_end or 0) for key, log in logs.items()}

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _write(self, state: Mapping[str, Mapping[PartitionKey, int]]) -> None:
        self._check_presence()
        # Nothing moves in an idle broker, and a replaced file costs two syncs; that the disk is still there is asked anyway.
        changed = [name for name, offsets in state.items() if offsets != self._checkpoints.get(name)]
        for name in changed:
            self._files.replace_file(f"{self.path}/{name}", encode_offsets(state[name]))
            self._checkpoints[name] = state[name]
        if not changed:
            self._files.sync_directory(self.path)

    def _check_presence(self) -> None:
        """Open files outlive a directory that was emptied, or whose disk went: a checkpoint would make it anew."""
        path = f"{self.path}/{META_PROPERTIES_FILE}"
        if not self._files.exists(path):
            raise FileNotFoundError(errno.ENOENT, f"{META_PROPERTIES_FILE} is gone", self.path)


def remove_log(files: Files, directory: str) -> None:
    """Remove a log's folder; its segments go before their indexes. Raises OSError.

    A segment without an index, which a kill would leave, is a damaged one to Apache Kafka.
    """
    if files.is_directory(directory):
        for name in files.list_files(directory):
            if name.endswith(names.LOG_SUFFIX):
                files.remove(f"{directory}/{name}")
    files.remove_directory(directory)
