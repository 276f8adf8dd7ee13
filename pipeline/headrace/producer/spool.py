"""Spool files: what is left of a producer's life when its process is killed, for whoever publishes its closing account.

Owns the folder: one file a life, made whole and locked before it has its name, locked as long as the life's process lives,
and gone once all of it is in delivered accounts. A file whose lock is free is that of a dead life. It is memory that is
mapped and was set aside beforehand, so that writing to it asks nothing of a disk that may be full. No failure here ends a
producer: it is one sentence in the log, and the life goes on without.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from headrace.producer.spool_layout import (
    FILE_SIZE_MAX,
    HEAD_SIZE_MAX,
    NO_CLUSTER,
    DamagedError,
    Head,
    Rest,
    Ring,
    layout_of,
    read_head,
    rest_of,
)

_log = logging.getLogger("headrace.producer")

VARIABLE: Final = "HEADRACE_SPOOL"
FOLDER_SIZE_MAX: Final = 256 << 20
"""All spools of a folder together; a life that finds more goes without."""
SUFFIX: Final = ".spool"
_UNFINISHED: Final = ".new"
_UNFINISHED_SECONDS_MAX: Final = 60.0
_MEMORY: Final = Path("/dev/shm")
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def folder_of(configured: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder for spools: as configured, or by the environment, or one in memory; None where it is empty."""
    chosen = os.environ.get(VARIABLE) if configured is None else os.fspath(configured)
    if chosen is None:
        return _MEMORY / f"headrace-{os.geteuid()}" if _MEMORY.is_dir() else None
    return Path(chosen) if chosen else None


def boot_id() -> str:
    """Return what tells this start of the host from others; empty where the system does not say."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


class _Locked:
    """A spool file that this process has locked, until it removes or leaves it."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    def forget(self) -> None:
        """Remove the file: all of it is in delivered accounts."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        self.leave()

    def leave(self) -> None:
        """Let go of the file, so that another process publishes it. In a process that was forked off: only here."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class Spool(_Locked):
    """The file of a life in this process."""

    def __init__(self, folder: Path, head: Head) -> None:
        """Make it; raises OSError with a reason."""
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        _check_folder(folder)
        path = folder / f"{head.producer}{SUFFIX}"
        unfinished = path.with_suffix(_UNFINISHED)
        # Two descriptions of the file: the mapping is inherited by a process that is forked off, the lock must not be.
        super().__init__(path, os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640))
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            layout = layout_of(head)
            os.posix_fallocate(self._lock, 0, layout.size)
            os.pwrite(self._lock, head.encode(), 0)
            mapped = os.open(unfinished, os.O_RDWR | os.O_CLOEXEC)
            try:
                memory = mmap.mmap(mapped, layout.size)
            finally:
                os.close(mapped)
            unfinished.rename(path)
        except BaseException:
            os.close(self._lock)
            unfinished.unlink(missing_ok=True)
            raise
        numbers = memoryview(memory).cast("q")
        self._state = numbers[layout.state : layout.state + 2]
        self.rings: Mapping[str, Ring] = {
            topic: Ring(numbers, layout, index) for index, topic in enumerate(head.topics)
        }

    def note_monitoring(self, next_sequence: int) -> None:
        """Note the number of the life's next monitoring event."""
        self._state[0] = next_sequence

    def note_cluster(self, cluster: int) -> None:
        """Note the cluster, before anything is sent to it."""
        self._state[1] = cluster


def new_spool(folder: Path | None, head: Head) -> Spool | None:
    """Return a life's spool; None, with a sentence in the log, where there can be none."""
    if folder is None:
        return None
    try:
        return Spool(folder, head)
    except (OSError, AttributeError) as error:
        _log.warning(
            "no spool file in %s (%s): were this process killed, its last events would stay incomplete for the audit",
            folder,
            error,
        )
        return None


def _check_folder(folder: Path) -> None:
    if folder.parent == _MEMORY and folder.stat().st_uid != os.geteuid():
        raise PermissionError("the folder belongs to another user")
    size = sum(each.stat().st_size for each in _files(folder, SUFFIX))
    if size > FOLDER_SIZE_MAX:
        raise OSError(f"its files have {size} bytes already: see `headrace publish-accounts`")


def _files(folder: Path, suffix: str) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == suffix)
    except FileNotFoundError:
        return []


class LeftBehind(_Locked):
    """The file of a life whose process is gone, locked by this one, and the accounts that end it."""

    def __init__(self, path: Path, lock: int, head: Head, rest: Rest) -> None:
        super().__init__(path, lock)
        self.head = head
        self.sequence, self.cluster, self.accounts = rest

    @property
    def acknowledged(self) -> int:
        """Events that no delivered account told of."""
        return sum(account.count for _, account in self.accounts)

    @property
    def unknown(self) -> int:
        """Events of which nobody knows whether they arrived; some of them may be in delivered accounts."""
        ranges = (entry for _, account in self.accounts for entry in account.undelivered)
        return sum(
            entry.last_sequence - entry.first_sequence + 1 for entry in ranges if entry.outcome == "unknown"
        )


def left_behind(
    folder: Path | None, is_wanted: Callable[[Head], bool], now_ms: Callable[[], int]
) -> Iterator[LeftBehind]:
    """Yield the lives in a folder whose processes are gone; what cannot be read is named in the log, and left alone."""
    if folder is None:
        return
    try:
        paths = _files(folder, SUFFIX)
        _remove_unfinished(folder)
    except OSError as error:
        _log.warning("spool files in %s cannot be read: %s", folder, error)
        return
    for path in paths:
        try:
            found = _opened(path, is_wanted, now_ms)
        except (OSError, DamagedError) as error:
            _log.warning("spool file %s cannot be read and is left alone: %s", path, error)
            continue
        if found is not None:
            yield found


def _opened(path: Path, is_wanted: Callable[[Head], bool], now_ms: Callable[[], int]) -> LeftBehind | None:
    """Return a dead life that is wanted; None for others, and for one of which nothing can be told any more."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    is_kept = False
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        status = os.fstat(lock)
        if not status.st_nlink:
            return None
        if status.st_size > FILE_SIZE_MAX:
            raise DamagedError(f"it has {status.st_size} bytes")
        head = read_head(os.pread(lock, HEAD_SIZE_MAX, 0))
        if not is_wanted(head):
            return None
        if head.boot != boot_id():
            _log.warning(
                "spool file %s is removed: it was written before this host started, so it need not be all; the audit names "
                "server %s, service %s (producer %s)",
                path,
                head.server,
                head.service,
                head.producer,
            )
            path.unlink(missing_ok=True)
            return None
        with os.fdopen(os.dup(lock), "rb") as file:
            rest = rest_of(head, file.read(FILE_SIZE_MAX), now_ms())
        if rest.cluster == NO_CLUSTER:
            path.unlink(missing_ok=True)
            return None
        is_kept = True
        return LeftBehind(path, lock, head, rest)
    finally:
        if not is_kept:
            os.close(lock)


def of_cluster(found: Iterable[LeftBehind], cluster: int, bootstrap: str) -> Iterator[LeftBehind]:
    """Yield the lives whose cluster it is; the log names the others, whose sequences would be lost ones for the audit there."""
    for left in found:
        if left.cluster == cluster:
            yield left
        else:
            _log.warning(
                "spool file %s is left alone: it is about another cluster than the one that is at %s now; publish it by "
                "`headrace publish-accounts` with the brokers of that one, or delete it where that is gone",
                left.path,
                bootstrap,
            )
            left.leave()


def _remove_unfinished(folder: Path) -> None:
    """Remove files whose life was killed before it began."""
    for path in _files(folder, _UNFINISHED):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _UNFINISHED_SECONDS_MAX:
                path.unlink()
