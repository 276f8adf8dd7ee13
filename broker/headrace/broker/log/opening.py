"""Making a partition's log ready in a thread: its folder, its topic id, the epoch of its leader.

The event loop decides where (`LogStore.opening`), a thread does it, the loop takes the outcome in (`LogStore.opened`).
Until then nobody else has the log. The folder's own name is on the disk once its data directory was synced, which is
done once for all the logs of a request.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from contextlib import suppress
from uuid import UUID

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import StorageError
from headrace.broker.log import names
from headrace.broker.log.checkpoints import (
    PARTITION_METADATA_FILE,
    CheckpointError,
    decode_partition_metadata,
    encode_partition_metadata,
)
from headrace.broker.log.data_directory import DataDirectory
from headrace.broker.log.files import PROCESS_ERRORS, Files, storage_errors
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import NO_EPOCH


class Opening:
    """A log to be made, as `folder` in the first of `homes` that takes it, or an existing `log` to be completed.

    `epoch` is the leader epoch that begins at its end, or NO_EPOCH. `error` says why there is no usable log, `put_away`
    where a deleted topic's folder of that name went.
    """

    def __init__(
        self,
        files: Files,
        key: PartitionKey,
        homes: Sequence[DataDirectory],
        folder: str,
        config: LogConfig,
        *,
        log: PartitionLog | None,
        topic_id: UUID | None,
        now_ms: int,
        epoch: int = NO_EPOCH,
    ) -> None:
        self._files = files
        self._homes = homes
        self._folder = folder
        self._config = config
        self._topic_id = topic_id
        self._epoch = epoch
        self.now_ms = now_ms
        self.key = key
        self.home = homes[0]
        self.is_new = log is None
        self.log = log
        self.error: StorageError | None = None
        self.put_away: str | None = None

    def run(self) -> None:
        """Do it, in any one thread."""
        try:
            log = self._make() if self.log is None else self.log
            if log.topic_id is None and self._topic_id is not None:
                self._write_topic_id(log, self._topic_id)
            if self._epoch != NO_EPOCH:
                log.assign_epoch(self._epoch)
            if self.is_new:
                # Kafka makes the file with the log.
                with log.storage_errors():
                    log.body.epochs.write()
            self.log = log
        except StorageError as error:
            self.error = error

    def _make(self) -> PartitionLog:
        for home in self._homes:
            try:
                log = self._make_in(home)
            except StorageError as error:
                self.error = error
                if isinstance(error.__cause__, OSError):
                    self._files.failed(home.path, error.__cause__)
                    if error.__cause__.errno in PROCESS_ERRORS:
                        break
                continue
            self.home, self.error = home, None
            return log
        assert self.error is not None, "there is at least one directory"
        raise self.error

    def _make_in(self, home: DataDirectory) -> PartitionLog:
        self._check(home)
        directory = f"{home.path}/{self._folder}"
        self._put_away_namesake(home, directory)
        is_known = self._files.exists(directory)
        try:
            log, _ = PartitionLog.open(
                self._files, directory, self._config, now_ms=self.now_ms, topic_id=self._topic_id
            )
        except StorageError:
            if not is_known:
                with suppress(OSError):
                    self._files.remove_directory(directory)
            raise
        return log

    def _check(self, home: DataDirectory) -> None:
        """A data directory that is gone, as with an unmounted disk, must not be made anew for one log."""
        with storage_errors(self._files, home.path):
            self._files.check_descriptors()
            if not self._files.exists(home.path):
                raise FileNotFoundError(errno.ENOENT, "the data directory is gone")

    def _put_away_namesake(self, home: DataDirectory, directory: str) -> None:
        """A try that nobody went on with left its folder, and its topic was deleted since: it is not this topic's log.

        With the old id in it, the next start would take it for the log of a deleted topic, and what clients wrote with it.
        """
        with storage_errors(self._files, home.path):
            found = _topic_id_in(self._files, directory)
            if found is not None and self._topic_id not in (None, found):
                self.put_away = f"{home.path}/{names.deleted_directory(*self.key)}"
                self._files.rename(directory, self.put_away)

    def _write_topic_id(self, log: PartitionLog, topic_id: UUID) -> None:
        with storage_errors(self._files, log.directory):
            self._files.replace_file(
                f"{log.directory}/{PARTITION_METADATA_FILE}", encode_partition_metadata(topic_id)
            )
        log.topic_id = topic_id


def _topic_id_in(files: Files, directory: str) -> UUID | None:
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    if not files.exists(path):
        return None
    try:
        return decode_partition_metadata(files.read(path))
    except CheckpointError:
        return None


def sync_names(home: DataDirectory, openings: Iterable[Opening]) -> None:
    """Bring the names of the folders made in `home` to the disk; where that fails they are no use."""
    try:
        home.sync_names()
    except StorageError as error:
        for opening in openings:
            opening.error = opening.error or error
