"""The logs that run in one broker: where each of them is, what is made and deleted, what each needs from time to time.

Invariant: a partition has one log here. A directory whose disk fails goes offline, with its logs, until the next start
(KIP-112); the others go on. What waits for the disk is handed out as jobs for threads, everything else is called on the
event loop. Must not know: how the logs were found (`startup.py`), who leads what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from uuid import UUID

from headrace.broker.config.sections import Transactions
from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import InvalidConfigError, LogDirNotFoundError, StorageError
from headrace.broker.log import names
from headrace.broker.log.data_directory import DataDirectory, remove_log
from headrace.broker.log.deleted import Deleted
from headrace.broker.log.files import PASSING_ERRORS, Files, storage_errors
from headrace.broker.log.maintenance import maintained
from headrace.broker.log.moving import Moves
from headrace.broker.log.opening import Opening, sync_names
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import Job, LogFinding
from headrace.broker.log.truncation import Truncation, lower_on_disk
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import NO_EPOCH

FlushTask = tuple[PartitionLog, Callable[[], int]]
EpochTask = tuple[PartitionLog, Job]
EPOCH_TASKS_MAX = 100
"""At once: half a second on a slow disk."""
_Rename = tuple[PartitionKey, DataDirectory, str, str]
MapLogs = Callable[[Callable[[PartitionLog], None], Iterable[PartitionLog]], Iterable[None]]


class LogStore:
    """See the module's text; made by `startup.open_logs`."""

    def __init__(
        self,
        files: Files,
        directories: list[DataDirectory],
        default_config: LogConfig,
        overrides: Callable[[str], Mapping[str, str]],
    ) -> None:
        self._files = files
        self._directories = directories
        # Directories that failed, and why.
        self.offline: dict[str, str] = {}
        self._default_config = default_config
        self._overrides = overrides
        self.producer_id_expiration_ms = Transactions().producer_id_expiration_ms
        self._homes: dict[PartitionKey, DataDirectory] = {}
        self.moves = Moves(files, self)
        # Existing logs that a thread works on.
        self._busy: set[PartitionKey] = set()
        # Folders of deleted partitions.
        self._deleted = Deleted()
        # When it was looked last which logs are to be flushed.
        self._looked_ms = 0
        # Those that may have something for the disk, of which some are no longer here.
        self._restless: dict[PartitionLog, None] = {}
        # Whether the high watermarks of all that rest are in the directories' files.
        self._are_watermarks_written = False

    def failed(self, path: str, error: OSError) -> list[PartitionKey] | None:
        """The disk failed at `path`, a data directory or a log: the directory goes offline.

        Answers the partitions that went with it; None when it goes on: its disk is only full, the log was deleted
        meanwhile, or the directory is offline already.
        """
        if error.errno in PASSING_ERRORS:
            return None
        for home in self._directories:
            if path == home.path or path in (
                log.directory for log in chain(home.logs.values(), home.futures.values())
            ):
                return self.put_offline(home, error.strerror or str(error))
        return None

    def paths(self) -> list[str]:
        """The data directories that are in use."""
        return [home.path for home in self._directories]

    @property
    def has_failed(self) -> bool:
        """Whether no directory is left."""
        return not self._directories

    def put_offline(self, home: DataDirectory, reason: str) -> list[PartitionKey]:
        """Go on without that directory; answers the partitions that went with it."""
        self.offline[home.path] = reason
        self._directories = [other for other in self._directories if other is not home]
        lost = list(home.logs)
        for key in lost:
            del self._homes[key]
        home.logs = {}
        self.moves.lost(home)
        home.release()
        return lost

    def config_of(self, topic: str) -> LogConfig:
        """A topic's configuration. Raises InvalidConfigError."""
        try:
            return self._default_config.with_overrides(dict(self._overrides(topic)))
        except InvalidConfigError as error:
            raise InvalidConfigError(
                f"The configuration of topic '{topic}' cannot be used: {error}"
            ) from None

    def adopt(self, key: PartitionKey, log: PartitionLog, home: DataDirectory) -> None:
        """From now on this is the log of that partition."""
        self._homes[key] = home
        home.logs[key] = log
        log.restless = self._restless
        self._restless[log] = None

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log of a partition, or None."""
        home = self._homes.get((topic, partition))
        return None if home is None else home.logs[topic, partition]

    def create(self, topic: str, partition: int, topic_id: UUID | None, *, now_ms: int) -> PartitionLog:
        """The log of a partition, made at once in the directory with the fewest logs when it does not exist."""
        existing = self.get(topic, partition)
        if existing is not None:
            return existing
        opening = self.opening(topic, partition, topic_id, now_ms=now_ms)
        opening.run()
        for job in self.name_syncs([opening]):
            job()
        return self.opened(opening)

    def opening(
        self,
        topic: str,
        partition: int,
        topic_id: UUID | None,
        *,
        now_ms: int,
        epoch: int = NO_EPOCH,
        is_new: bool = True,
    ) -> Opening:
        """What a thread has to do so that this broker can take a partition; hand it to `opened` afterwards.

        A new log goes to the directory with the fewest of them. `epoch` is the leader epoch to begin, if any.
        Raises StorageError for a partition that `is_new` does not say to be new and whose log may be out of reach.
        """
        key = (topic, partition)
        log = self.get(topic, partition)
        if log is None and not is_new:
            self._check_none_is_out_of_reach(key)
        homes = [self._homes[key]] if log is not None else self._homes_for(key)
        opening = Opening(
            self._files,
            key,
            homes,
            names.partition_directory(*key),
            self.config_of(topic),
            log=log,
            topic_id=topic_id,
            epoch=epoch,
            now_ms=now_ms,
        )
        if log is None:
            homes[0].expected.add(key)
        else:
            self._busy.add(key)
        return opening

    def _check_none_is_out_of_reach(self, key: PartitionKey) -> None:
        """A partition that had a log must not begin anew, empty, while the log is only out of sight."""
        folder = names.partition_directory(*key)
        if self.offline:
            raise StorageError(f"{folder} may be in a data directory that failed: {', '.join(self.offline)}.")
        for home in self._directories:
            home.check_nothing_hides(folder)

    def opened(self, opening: Opening) -> PartitionLog:
        """Take in what threads made ready. Raises StorageError when they could not."""
        key = opening.key
        self.abandon([opening])
        if opening.error is not None:
            raise opening.error
        if opening.home not in self._directories:
            raise StorageError(f"{opening.home.path} failed: repair its disk, restart the broker.")
        assert opening.log is not None, "it was made, or there is an error"
        if opening.is_new:
            self.adopt(key, opening.log, opening.home)
            self.moves.preferred.pop(key, None)
            # The topic's configuration may have changed meanwhile.
            opening.log.update_config(self.config_of(key[0]))
        return opening.log

    def name_syncs(self, openings: Iterable[Opening]) -> list[Job]:
        """Jobs for a thread, after those of `openings` and before `opened`: the new folders' names go to the disk."""
        made: dict[DataDirectory, list[Opening]] = {}
        for opening in openings:
            if opening.is_new:
                made.setdefault(opening.home, []).append(opening)
        return [partial(sync_names, home, openings) for home, openings in made.items()]

    def epoch_tasks(self) -> list[EpochTask]:
        """Jobs for threads that note leader epochs on the disk; call each log's `epochs_noted` when its job has ended."""
        due = ((log, log.epoch_task()) for log in list(self._restless) if not log.body.epochs.is_written)
        found = ((log, job) for log, job in due if job is not None)
        return [
            (log, partial(_attempt, self._guarded(log.directory, job)))
            for log, job in islice(found, EPOCH_TASKS_MAX)
        ]

    def truncation(self, log: PartitionLog, offset: int, *, empties: bool = False) -> Truncation | None:
        """Begin to cut a log, so that it ends at `offset` or, when that `empties` it, begins there; None: it does already.

        Hand it to `lowering_jobs`, with all others that are cut at the same time; after their jobs a thread has to
        `run` it, and the loop to `end` it.
        """
        if not empties and offset >= log.log_end_offset:
            offset = log.log_end_offset
            if not log.has_epoch_from(offset):
                return None
            truncation = Truncation(log, offset)
        else:
            first = self.moves.before_truncation((log.topic, log.partition))
            truncation = Truncation(log, offset, empties=empties, first=first)
        truncation.begin()
        return truncation

    def lowering_jobs(self, truncations: Iterable[Truncation]) -> list[Job]:
        """Jobs for threads, before those of `truncations`: at most one checkpoint a data directory, however many they are."""
        cut: dict[DataDirectory, list[Truncation]] = {}
        for truncation in truncations:
            home = self._homes.get((truncation.log.topic, truncation.log.partition))
            if home is not None and not truncation.leaves_batches:
                cut.setdefault(home, []).append(truncation)
        jobs: list[Job] = []
        for home, those in cut.items():
            checkpoint = home.lowering_job((one.log.topic, one.log.partition) for one in those)
            if checkpoint is not None:
                jobs.append(partial(lower_on_disk, self._guarded(home.path, checkpoint), those))
        return jobs

    def truncate_at_once(self, log: PartitionLog, offset: int, *, empties: bool = False) -> None:
        """What threads do for `truncation`, without any. Raises StorageError."""
        truncation = self.truncation(log, offset, empties=empties)
        if truncation is not None:
            for job in self.lowering_jobs([truncation]):
                job()
            truncation.run()
            truncation.end()

    def abandon(self, openings: Iterable[Opening]) -> None:
        """These are over, whatever came of them."""
        for opening in openings:
            self._busy.discard(opening.key)
            if opening.log is not None:
                # Only now nobody changes it any more.
                opening.log.restless[opening.log] = None
            if opening.put_away is not None:
                self.doom(opening.put_away, opening.now_ms, self._default_config.file_delete_delay_ms)
            for home in self._directories:
                home.expected.discard(opening.key)

    def _homes_for(self, key: PartitionKey) -> list[DataDirectory]:
        """Where to make a new log: where a try left its folder, where somebody wants it, where there are the fewest."""
        preferred = self.moves.preferred.get(key)
        wanted = [home for home in self._directories if home.path == preferred]
        folder = names.partition_directory(*key)
        return wanted or sorted(self._directories, key=lambda home: (not home.has(folder), home.log_count))

    def live_directory(self, path: str) -> DataDirectory:
        """The data directory of that path. Raises StorageError when it failed, LogDirNotFoundError when there is none."""
        for home in self._directories:
            if home.path == path:
                return home
        if path in self.offline:
            raise StorageError(f"{path} has failed: repair its disk, restart the broker.")
        raise LogDirNotFoundError(f"{path} is none of this broker's log.dirs.")

    def directories(self) -> Sequence[DataDirectory]:
        """Those that have not failed."""
        return self._directories

    def home_of(self, key: PartitionKey) -> DataDirectory:
        """Where a log is."""
        return self._homes[key]

    def rehome(self, key: PartitionKey, home: DataDirectory) -> None:
        """A log has gone to another directory."""
        self.adopt(key, self._homes[key].logs.pop(key), home)

    def doom(self, path: str, now_ms: int, delay_ms: int) -> None:
        """Have `removals` remove a folder after the delay."""
        self._deleted.add(path, now_ms, delay_ms)

    def delete(self, topic: str, partition: int, *, now_ms: int) -> None:
        """Delete one log at once, as `deletion` does. Raises StorageError."""
        failures = self.deletion([(topic, partition)], now_ms=now_ms)()
        for error in failures.values():
            raise error

    def deletion(
        self, keys: Sequence[PartitionKey], *, now_ms: int
    ) -> Callable[[], dict[PartitionKey, StorageError]]:
        """Forget these logs; the job, for a thread, renames their folders and answers what it could not delete.

        A folder `<topic>-<p>.<uuid>-delete` is removed by a job of `removals` after file.delete.delay.ms.
        """
        renames: list[_Rename] = []
        for key in keys:
            self.moves.unwatch(key)
            home = self._homes.pop(key, None)
            if home is not None:
                log = home.logs.pop(key)
                doomed = f"{home.path}/{names.deleted_directory(*key)}"
                renames.append((key, home, log.directory, doomed))
                self.doom(doomed, now_ms, log.config.file_delete_delay_ms)
        copies = [(key, self.moves.cancel(key, now_ms)) for key in keys if self.moves.target(key) is not None]
        # A partition of that name must not begin with the offsets of this one.
        checkpoints = {home: home.checkpoint_job() for _, home, _, _ in renames}

        def delete() -> dict[PartitionKey, StorageError]:
            failures: dict[PartitionKey, StorageError] = {}
            for key, job in chain(map(self._renaming, renames), copies):
                try:
                    job()
                except StorageError as error:
                    failures[key] = error
            for home, checkpoint in checkpoints.items():
                try:
                    home.sync_names()
                    with storage_errors(self._files, home.path):
                        checkpoint()
                except StorageError as error:
                    failures |= {key: error for key, other, _, _ in renames if other is home}
            return failures

        return delete

    def _renaming(self, rename: _Rename) -> tuple[PartitionKey, Job]:
        key, home, directory, doomed = rename
        return key, self._guarded(home.path, partial(self._files.rename, directory, doomed))

    def all(self) -> Iterable[PartitionLog]:
        """Every open log."""
        return chain.from_iterable(home.logs.values() for home in self._directories)

    def copies(self) -> Iterable[PartitionLog]:
        """Every copy of a log that is on its way to another directory."""
        return self.moves.copies()

    def update_defaults(self, config: LogConfig) -> None:
        """Use changed defaults of the broker in all logs, under their topics' own. Raises InvalidConfigError."""
        self._default_config = config
        for log in chain(self.all(), self.copies()):
            log.update_config(self.config_of(log.topic))

    def update_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Use a topic's changed configuration in all its logs. Raises InvalidConfigError."""
        config = self._default_config.with_overrides(dict(overrides))
        for log in chain(self.all(), self.copies()):
            if log.topic == topic:
                log.update_config(config)

    def checkpoint(self) -> None:
        """Write the recovery-point, log-start-offset and replication-offset (high watermark) checkpoints.

        Raises the last StorageError after having written all that can be written.
        """
        failure: StorageError | None = None
        for job in self.checkpoint_jobs():
            try:
                job()
            except StorageError as error:
                failure = error
        if failure is not None:
            raise failure

    def watermark_jobs(self) -> list[Job]:
        """Jobs for a thread that write the high watermarks, for each directory where one has moved."""
        if self._are_watermarks_written and not self._restless:
            return []
        jobs = [(home, home.watermark_job()) for home in self._directories]
        due = [self._guarded(home.path, job) for home, job in jobs if job is not None]
        self._are_watermarks_written = not due
        return due

    def checkpoint_jobs(self) -> list[Job]:
        """What `checkpoint` does, a job for a thread for each directory, of the offsets as they are now."""
        return [self._guarded(home.path, home.checkpoint_job()) for home in self._directories]

    def _guarded(self, path: str, job: Job) -> Job:
        def guarded() -> None:
            with storage_errors(self._files, path):
                job()

        return guarded

    def maintain(self, now_ms: int) -> list[LogFinding]:
        """Retire and expire what is due; call every few seconds. Answers what it did or found.

        A log whose disk fails is a finding and keeps the others from nothing.
        """
        findings: list[LogFinding] = []
        for home in self._directories:
            for key, log in home.logs.items():
                if key not in self._busy and not log.is_truncating:
                    findings += maintained(log, now_ms, self.producer_id_expiration_ms)
        return findings

    def removals(self, now_ms: int) -> list[Job]:
        """Jobs for a thread that remove the folders of partitions deleted file.delete.delay.ms ago."""
        due = list(self._deleted.due(now_ms))
        return [self._guarded(path, partial(remove_log, self._files, path)) for path in due]

    def flush_tasks(self, monotonic_ms: int) -> list[FlushTask]:
        """Flush jobs that are due, for threads; hand each answer to its log's `flushed`, then call `checkpoint`."""
        looked_ms, self._looked_ms = self._looked_ms, monotonic_ms
        self._leave_resting_alone()
        unflushed = [log for log in list(self._restless) if not log.is_flushed]
        due = ((log, log.flush_task()) for log in unflushed if log.flush_due(monotonic_ms, looked_ms))
        return [(log, task) for log, task in due if task is not None]

    def _leave_resting_alone(self) -> None:
        """Until they change; and those that are deleted, or in a directory that failed."""
        for log in list(self._restless):
            if log.is_at_rest or self.get(log.topic, log.partition) is not log:
                del self._restless[log]
                self._are_watermarks_written = False

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
        for _ in map_logs(PartitionLog.close, [*home.logs.values(), *self.moves.open_copies(home)]):
            pass
        with storage_errors(self._files, home.path):
            home.checkpoint()
            self.moves.mark_clean_shutdown(home)
        home.release()


def _attempt(job: Job) -> None:
    with suppress(StorageError):
        job()
