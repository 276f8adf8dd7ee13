"""Moving a log to another data directory of the same broker while it is in use (KIP-113).

A copy grows in `<topic>-<p>.<uuid>-future` of the target directory until it has everything. Then it is synced, marked as
the log's successor and given the log's own name; what was appended meanwhile follows, and on the event loop, between two
appends, the log goes on as its successor and the old folder is renamed to be deleted.
Invariants: at each moment one of the two folders has every synced batch. After a crash the marked folder counts if it
holds all that the other does, else it is a copy again, and the move goes on; a clean stop leaves no marked folder with
the log's name. What waits for the disk is a job for threads; a copy is touched by nothing else while its job runs.
Must not know: who wants the move and how one waits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Protocol

from headrace.broker.errors import StorageError
from headrace.broker.log import names
from headrace.broker.log.copying import (
    align,
    common_end,
    copy_slice,
    epoch_job,
    flush_job,
    is_prefix,
    move_start_job,
    next_batches,
)
from headrace.broker.log.data_directory import DataDirectory
from headrace.broker.log.files import Files, storage_errors
from headrace.broker.log.opening import Opening
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import Job
from headrace.broker.log.throttle import Throttle
from headrace.broker.wire.partitions import PartitionKey

Steps = Generator[Job, None, bool]
SUCCESSOR_MARK = ".successor"
# In the folder of a log that was truncated after its successor had its name: that one is only a copy again.
KEPT_MARK = ".kept"
COPIED_AT_ONCE_MAX = 1024 * 1024
# What may be copied on the event loop while the log changes over: about a millisecond's work.
COPIED_LAST_MAX = 256 * 1024
_LAST_SLICES_MAX = 4
_PREFERRED_MAX = 10_000


class Homes(Protocol):
    """What a move knows of the logs that run and of the directories that they lie in, and has them do."""

    offline: dict[str, str]

    def get(self, topic: str, partition: int) -> PartitionLog | None: ...
    def home_of(self, key: PartitionKey) -> DataDirectory: ...
    def live_directory(self, path: str) -> DataDirectory: ...
    def directories(self) -> Sequence[DataDirectory]: ...
    def adopt(self, key: PartitionKey, log: PartitionLog, home: DataDirectory) -> None: ...
    def rehome(self, key: PartitionKey, home: DataDirectory) -> None: ...
    def abandon(self, openings: Iterable[Opening]) -> None: ...
    def doom(self, path: str, now_ms: int, delay_ms: int) -> None: ...


class Moves:
    """The copies of a store's logs; `preferred` says where a partition that is not here yet is to be made."""

    def __init__(self, files: Files, store: Homes) -> None:
        self._files = files
        self._store = store
        self.throttle = Throttle()
        self._targets: dict[PartitionKey, DataDirectory] = {}
        # Copies that were closed to get their final name.
        self._closed: set[PartitionKey] = set()
        # Logs whose successors are about to be named, or are, and those of them that were truncated since.
        self._watched: set[PartitionKey] = set()
        self._kept: set[PartitionKey] = set()
        self.preferred: dict[PartitionKey, str] = {}

    def copies(self) -> Iterable[PartitionLog]:
        """All copies, finished or not."""
        return [home.futures[key] for key, home in self._targets.items()]

    def target(self, key: PartitionKey) -> str | None:
        """The data directory that a log moves to, or None."""
        home = self._targets.get(key)
        return None if home is None else home.path

    def prefer(self, key: PartitionKey, path: str) -> None:
        """Make this partition in that directory when it comes; the oldest of too many wishes is forgotten."""
        self.preferred.pop(key, None)
        self.preferred[key] = path
        if len(self.preferred) > _PREFERRED_MAX:
            del self.preferred[next(iter(self.preferred))]

    def add(self, key: PartitionKey, home: DataDirectory, copy: PartitionLog) -> None:
        """A copy that is there already."""
        self._targets[key] = home
        home.futures[key] = copy

    def begin(self, key: PartitionKey, path: str, now_ms: int) -> Opening:
        """Begin a copy of an existing log: what a thread has to do; hand it to `begun` afterwards."""
        source = self._store.get(*key)
        assert source is not None, "only what is here moves"
        home = self._store.live_directory(path)
        home.expected.add(key)
        return Opening(
            self._files,
            key,
            [home],
            names.future_directory(*key),
            source.config,
            log=None,
            topic_id=source.topic_id,
            now_ms=now_ms,
        )

    def begun(self, opening: Opening) -> None:
        """Take in the copy that a thread made. Raises StorageError when it could not."""
        self._store.abandon([opening])
        if opening.error is not None:
            raise opening.error
        assert opening.log is not None, "it was made, or there is an error"
        self.add(opening.key, opening.home, opening.log)
        self.preferred.pop(opening.key, None)

    def cancel(self, key: PartitionKey, now_ms: int) -> Job:
        """Forget a copy; the job renames its folder to be deleted."""
        home = self._targets.pop(key, None)
        self._closed.discard(key)
        self._kept.discard(key)
        self.unwatch(key)
        source = self._store.get(*key)
        if source is not None:
            source.cleaner.is_paused = False
        if home is None:
            return lambda: None
        copy = home.futures.pop(key)
        home.successors.pop(key, None)
        doomed = f"{home.path}/{names.deleted_directory(*key)}"
        self._store.doom(doomed, now_ms, copy.config.file_delete_delay_ms)
        folders = (copy.directory, f"{home.path}/{names.partition_directory(*key)}")

        def rename() -> None:
            for folder in folders:
                if self._files.exists(folder):
                    self._files.rename(folder, doomed)
            self._files.sync_directory(home.path)
            if source is not None:
                self._files.remove(f"{source.directory}/{KEPT_MARK}")

        return self._guarded(home, rename)

    def lost(self, home: DataDirectory) -> None:
        """The directory failed: forget its copies; what is on the disk goes on at the next start."""
        for key in [key for key, target in self._targets.items() if target is home]:
            del self._targets[key]
            self._closed.discard(key)
            self._kept.discard(key)

    def settle_interrupted(self, now_ms: int) -> None:
        """At the start: decide for each successor whether it is the log, or still a copy. Raises StorageError.

        While a directory is missing nobody can know that the log in it has no more than its successor.
        """
        for home in self._store.directories():
            successors, home.successors = home.successors, {}
            for key, successor in successors.items():
                with storage_errors(self._files, home.path):
                    self._settle(key, successor, home, now_ms)

    def _settle(self, key: PartitionKey, successor: PartitionLog, home: DataDirectory, now_ms: int) -> None:
        source = self._store.get(*key)
        if source is None:
            if not self._store.offline:
                self._store.adopt(key, successor, home)
                remove_mark(self._files, successor.directory, SUCCESSOR_MARK)
        elif self._holds_all_of(source, successor):
            # A kill left the end of the successor in the page cache alone; what the source holds may be on the disk.
            sync = flush_job(source, successor)
            if sync is not None:
                sync()
            if source.log_start_offset > successor.log_start_offset:
                successor.advance_high_watermark(source.log_start_offset)
                successor.delete_before(source.log_start_offset)
            old_home = self._store.home_of(key)
            doomed = f"{old_home.path}/{names.deleted_directory(*key)}"
            self._files.rename(source.directory, doomed)
            self._files.sync_directory(old_home.path)
            self._store.doom(doomed, now_ms, source.config.file_delete_delay_ms)
            del old_home.logs[key]
            self._store.adopt(key, successor, home)
            old_home.checkpoint()
            remove_mark(self._files, successor.directory, SUCCESSOR_MARK)
        else:
            directory = f"{home.path}/{names.future_directory(*key)}"
            successor.close()
            self._files.rename(successor.directory, directory)
            self._files.sync_directory(home.path)
            self.add(key, home, self._reopened(directory, successor, now_ms))

    def _holds_all_of(self, source: PartitionLog, successor: PartitionLog) -> bool:
        is_kept = self._files.exists(f"{source.directory}/{KEPT_MARK}")
        return not is_kept and common_end(source, successor) >= source.log_end_offset

    def open_copies(self, home: DataDirectory) -> list[PartitionLog]:
        """Copies that a clean stop has to close."""
        return [copy for key, copy in home.futures.items() if key not in self._closed]

    def mark_clean_shutdown(self, home: DataDirectory) -> None:
        """Every log in the directory is closed: copies that have their logs' names already are only copies again.

        Apache Kafka starts on no two folders of a name. Raises OSError.
        """
        copies = []
        for key in home.successors:
            directory = f"{home.path}/{names.partition_directory(*key)}"
            if self._files.exists(directory):
                copies.append(f"{home.path}/{names.future_directory(*key)}")
                self._files.rename(directory, copies[-1])
        if copies:
            self._files.sync_directory(home.path)
        for copy in copies:
            self._files.remove(f"{copy}/{SUCCESSOR_MARK}")
        home.mark_clean_shutdown()

    # -- the steps of one move

    def steps(self, key: PartitionKey, now_ms: Callable[[], int]) -> Steps:
        """Jobs for a thread, one after the other; the next one is decided when it is asked for.

        Wait for `throttle` before each is asked for. The value at the end tells whether the move is over; otherwise the
        log was truncated at a bad moment: the copy has to be cancelled and begun again. A job raises StorageError or
        CorruptMessageError: call `steps` again later.
        """
        if key in self._kept:
            return False
        if key in self._closed:
            yield self._reopen_job(key, now_ms)
        while (pair := self._pair(key)) is not None:
            source, copy = pair
            source.cleaner.is_paused = True
            job = align(source, copy) or self._copy_job(source, copy, now_ms)
            if job is None:
                break
            yield job
            copy.advance_high_watermark(source.high_watermark)
        yield from self._finish_copy(key, now_ms)
        return (yield from self._change_over(key, now_ms))

    def _pair(self, key: PartitionKey) -> tuple[PartitionLog, PartitionLog] | None:
        """A log and its copy; None when one of them is gone. Raises StorageError while the log is being cut."""
        source, home = self._store.get(*key), self._targets.get(key)
        if source is None or home is None:
            return None
        if source.is_truncating:
            raise StorageError(f"{source.directory} is being truncated: its copy goes on afterwards.")
        return source, home.futures[key]

    def _finish_copy(self, key: PartitionKey, now_ms: Callable[[], int]) -> Generator[Job]:
        """Sync the copy, mark it and give it the log's own name; it then goes on being filled."""
        pair = self._pair(key)
        if pair is None:
            return
        (source, copy), home = pair, self._targets[key]
        self._watched.add(key)
        self._kept.discard(key)
        yield self._guarded(
            self._store.home_of(key), partial(remove_mark, self._files, source.directory, KEPT_MARK)
        )
        if key in self._kept or self._pair(key) is None:
            return
        self._closed.add(key)
        yield copy.close
        mark = f"{copy.directory}/{SUCCESSOR_MARK}"
        yield self._guarded(home, partial(self._files.replace_file, mark, b""))
        home.successors[key] = copy
        yield self._guarded(home, home.checkpoint_job())

        def rename() -> None:
            directory = f"{home.path}/{names.partition_directory(*key)}"
            self._files.rename(copy.directory, directory)
            self._files.sync_directory(home.path)
            renamed = self._reopened(directory, copy, now_ms())
            # Here, for a stop while the job runs asks for no other, and has to close this one.
            if self._targets.get(key) is home:
                home.futures[key] = home.successors[key] = renamed
                self._closed.discard(key)

        yield self._guarded(home, rename)

    def before_truncation(self, key: PartitionKey) -> Job | None:
        """Before anything of the log is taken away, it is on the disk that a successor does not count any more."""
        if key not in self._watched:
            return None
        self._kept.add(key)
        directory = f"{self._store.home_of(key).path}/{names.partition_directory(*key)}"
        return partial(self._files.replace_file, f"{directory}/{KEPT_MARK}", b"")

    def unwatch(self, key: PartitionKey) -> None:
        """The log has no successor, or is gone."""
        self._watched.discard(key)

    def _reopened(self, directory: str, closed: PartitionLog, now_ms: int) -> PartitionLog:
        log, _ = PartitionLog.open(
            self._files,
            directory,
            closed.config,
            now_ms=now_ms,
            recovery_point=closed.recovery_point,
            clean_shutdown=True,
            log_start_offset=closed.log_start_offset,
        )
        log.advance_high_watermark(closed.high_watermark)
        return log

    def _reopen_job(self, key: PartitionKey, now_ms: Callable[[], int]) -> Job:
        """Go back behind a finishing that failed half way: the copy has the name of one, and is open."""
        home = self._targets[key]
        closed = home.futures[key]
        home.successors.pop(key, None)

        def reopen() -> None:
            renamed = f"{home.path}/{names.partition_directory(*key)}"
            if self._files.exists(renamed):
                self._files.rename(renamed, closed.directory)
                self._files.sync_directory(home.path)
            home.futures[key] = self._reopened(closed.directory, closed, now_ms())
            self._closed.discard(key)

        return self._guarded(home, reopen)

    def _change_over(self, key: PartitionKey, now_ms: Callable[[], int]) -> Steps:
        while key not in self._kept:
            pair = self._pair(key)
            if pair is None:
                return True
            source, successor = pair
            if not is_prefix(source, successor):
                return False
            job = (
                move_start_job(source, successor)
                or self._copy_rest(source, successor, now_ms)
                or epoch_job(source, successor)
                or flush_job(source, successor)
            )
            if job is None:
                yield self._promote(key, source, successor, now_ms())
                return True
            yield job
        return False

    def _copy_job(self, source: PartitionLog, copy: PartitionLog, now_ms: Callable[[], int]) -> Job | None:
        """Copy the next batches; None when there are none."""
        if copy.log_end_offset >= source.log_end_offset:
            return None
        found = next_batches(source, copy, min(COPIED_AT_ONCE_MAX, self.throttle.piece_size_max))
        self.throttle.spend(found.size, now_ms())
        return partial(copy_slice, self._files, source, copy, found, now_ms)

    def _copy_rest(self, source: PartitionLog, copy: PartitionLog, now_ms: Callable[[], int]) -> Job | None:
        """Copy at once what little is left; a job when it is more than that."""
        for _ in range(_LAST_SLICES_MAX):
            if copy.log_end_offset >= source.log_end_offset:
                return None
            found = next_batches(source, copy, COPIED_AT_ONCE_MAX)
            if found.size > COPIED_LAST_MAX:
                break
            self.throttle.spend(found.size, now_ms())
            copy_slice(self._files, source, copy, found, now_ms)
        return self._copy_job(source, copy, now_ms)

    def _promote(self, key: PartitionKey, source: PartitionLog, successor: PartitionLog, now_ms: int) -> Job:
        """The log goes on as its successor from now on; the job makes that last."""
        home, old_home = self._targets[key], self._store.home_of(key)
        doomed = f"{old_home.path}/{names.deleted_directory(*key)}"
        with storage_errors(self._files, old_home.path):
            self._files.rename(source.directory, doomed)
        self._store.doom(doomed, now_ms, source.config.file_delete_delay_ms)
        del self._targets[key], home.futures[key], home.successors[key]
        self.unwatch(key)
        _become(source, successor)
        self._store.rehome(key, home)
        checkpoints = [
            self._guarded(old_home, old_home.checkpoint_job()),
            self._guarded(home, home.checkpoint_job()),
        ]
        directory = source.directory

        def settle() -> None:
            old_home.sync_names()
            for checkpoint in checkpoints:
                checkpoint()
            self._guarded(home, partial(remove_mark, self._files, directory, SUCCESSOR_MARK))()

        return settle

    def _guarded(self, home: DataDirectory, job: Job) -> Job:
        def guarded() -> None:
            with storage_errors(self._files, home.path):
                job()

        return guarded


def remove_mark(files: Files, directory: str, mark: str) -> None:
    """Have it on the disk that `mark` no longer holds for the log in `directory`. Raises OSError."""
    files.remove(f"{directory}/{mark}")
    files.sync_directory(directory)


def _become(log: PartitionLog, successor: PartitionLog) -> None:
    """`log`, which others hold, goes on in the body of `successor`, which holds the same.

    Or less: a crash may have brought back what was deleted from the log's begin, and is not in the copy.
    """
    clean_offset = log.cleaner.clean_offset
    log.go_on_in(successor.body)
    log.log_start_offset = successor.log_start_offset
    log.advance_high_watermark(successor.high_watermark)
    log.cleaner.clean_offset = clean_offset
    log.findings += successor.findings
