"""The only door of the log to the disk: what a log needs of a file system, and the real one.

Owns: open files and their names. Writes are positional, so a write that failed half way leaves the file as it was up to
the position it began at; the caller decides what to cut. Everything that is not synced may be gone after a power cut.
Must not know: batches, offsets, segments. `tests/world/faulty_files.py` is the same door to a disk that tears and forgets.
"""

import errno
import fcntl
import os
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from headrace.broker.errors import StorageError

Buffer = bytes | bytearray | memoryview
SMALL_FILE_SIZE_MAX = 64 * 1024 * 1024
_READ_SIZE = 64 * 1024
"""A snapshot of a million producers, a checkpoint of a million partitions."""
DESCRIPTORS_KEPT_MIN = 50
"""New logs leave that many descriptors, or a tenth of all, to connections, ZooKeeper, checkpoints and new segments."""
PROCESS_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""The broker or its host is at a limit; it would be the same on any disk."""
PASSING_ERRORS = PROCESS_ERRORS | {errno.ENOSPC, errno.EDQUOT, errno.EEXIST, errno.ENAMETOOLONG}
"""Those, a full disk, a name that is taken or too long: the disk is as good as before."""
_ADVICE = {
    errno.ENOSPC: "Make room on its disk, in bytes or inodes (df -h, df -i).",
    errno.EDQUOT: "Make room, or raise the quota of the broker's user.",
    errno.EROFS: "Mount its disk for writing.",
    errno.EACCES: "Let the broker's user read and write it.",
    errno.EPERM: "Let the broker's user read and write it.",
    errno.EEXIST: "Move away what has its name.",
    errno.EISDIR: "Move away the directory that has its name.",
    errno.ENOTDIR: "Move away what has the name of a directory there.",
    errno.ENAMETOOLONG: "Use a data directory with a shorter path, or a shorter topic name.",
    errno.EMFILE: "Let the broker open more files (ulimit -n, LimitNOFILE).",
    errno.ENFILE: "Let the host open more files (fs.file-max).",
    errno.ENOENT: "Mount its disk, or restore it.",
}


@contextmanager
def storage_errors(files: "Files", path: str) -> Iterator[None]:
    """Turn the file system's errors into StorageError, naming `path`; `files` hears of them."""
    try:
        yield
    except OSError as error:
        raise storage_error(files, path, error) from error


def storage_error(files: "Files", path: str, error: OSError) -> StorageError:
    """The StorageError for an error of the file system at `path`; `files` hears of it."""
    files.failed(path, error)
    place = error.filename if isinstance(error.filename, str) else path
    return StorageError(f"{place}: {error.strerror or error}. {advice(error) or 'Repair the disk.'}")


def advice(error: OSError) -> str:
    """What whoever runs the broker can do about it; empty where nothing is known."""
    return _ADVICE.get(error.errno or 0, "")


UNCUT = 2**63 - 1
_TRIAL = ".room-trial"


class File(Protocol):
    """One open file. It stays open, deleted or renamed or not, while somebody refers to it.

    `cut_at`: what was read before from there on is gone, and other bytes may come in its place; UNCUT of a whole file. Who
    cuts a file that others hold slices of says so, and goes on with another object of it.
    """

    cut_at: int

    def write_at(self, data: Buffer, position: int) -> None:
        """Write all of `data` (bytes) at `position`; raises OSError, after which any part of it may have been written."""

    def write_all_at(self, buffers: Sequence[Buffer], position: int) -> None:
        """`write_at` for what the buffers hold, one behind the other; at most 1,024 of them (IOV_MAX of Linux)."""

    def read_at(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only where the file ends."""

    def size(self) -> int:
        """Length of the file in bytes."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, or grow it with zeros (sparse)."""

    def sync(self) -> None:
        """Return once contents and length are on the disk (fsync)."""

    def fileno(self) -> int:
        """The descriptor for os.sendfile, valid while this object is referenced."""


class Files(Protocol):
    """A file system. Paths are absolute strings; errors are OSError."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError when it is missing and `create` is false."""

    def read(self, path: str) -> bytes:
        """The content, cut after SMALL_FILE_SIZE_MAX, which no good one has; FileNotFoundError when it is missing."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name exists, or a link, wherever it leads."""

    def is_directory(self, path: str) -> bool:
        """Whether it is a directory, or leads to one."""

    def size(self, path: str) -> int:
        """Length in bytes; FileNotFoundError when it is missing."""

    def modified_ms(self, path: str) -> int:
        """Time of the last change of the content, milliseconds since the epoch."""

    def list(self, directory: str) -> list[str]:
        """Names (without the directory) of its files and directories, sorted."""

    def list_files(self, directory: str) -> Sequence[str]:
        """Those names that are files', or links to files."""

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing a file named `target`; lasting once the directory is synced."""

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is no error."""

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents; an existing one is no error."""

    def remove_directory(self, path: str) -> None:
        """Remove a directory with everything in it; a missing one is no error.

        Of a link to a directory, the link goes, and what is in the directory.
        """

    def replace_file(self, path: str, data: bytes) -> None:
        """Make `path` hold exactly `data`, lasting on return: the old or the new content is there after any crash."""

    def sync_directory(self, path: str) -> None:
        """Return once the names in the directory are on the disk."""

    def lock(self, path: str) -> File | None:
        """Lock the file `path`, made when missing, until the answer is forgotten; None: another process has it.

        It is the kind of lock that Java takes (fcntl), so that Apache Kafka and this broker keep each other out.
        """

    def check_descriptors(self) -> None:
        """Raises OSError (EMFILE) when so few descriptors are left that a new log must not take them."""

    def has_room(self, directory: str, size: int) -> bool:
        """Whether a new file of `size` bytes fits there now; may be called in any thread."""

    def failed(self, path: str, error: OSError) -> None:
        """Hear of an error at `path` that somebody now gets a StorageError for; may be called in any thread."""


def _nobody_listens(path: str, error: OSError) -> None:
    del path, error


class OsFile:
    """A File on a descriptor of the operating system."""

    __slots__ = ("_descriptor", "cut_at")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.cut_at = UNCUT

    def write_at(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self._descriptor, data, position)
        while written < len(data):
            # A short write is followed by one that fails, which tells why (a full disk, a quota).
            written += os.pwrite(self._descriptor, memoryview(data)[written:], position + written)

    def write_all_at(self, buffers: Sequence[Buffer], position: int) -> None:
        if len(buffers) == 1:
            self.write_at(buffers[0], position)
            return
        written = os.pwritev(self._descriptor, buffers, position)
        if written < sum(map(len, buffers)):
            self.write_at(memoryview(b"".join(buffers))[written:], position + written)

    def read_at(self, size: int, position: int) -> bytes:
        return os.pread(self._descriptor, size, position)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def __del__(self) -> None:
        # Closed with its last reference: a slice still being sent may hold a segment deleted long ago.
        os.close(self._descriptor)


class OsFiles:
    """The operating system's files; `on_failure(path, error)` hears of what became a StorageError, in any thread."""

    def __init__(self, on_failure: Callable[[str, OSError], None] = _nobody_listens) -> None:
        self._on_failure = on_failure

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(path, flags, 0o644))

    def read(self, path: str) -> bytes:
        # Without a buffered file around it: a start reads three a log, of some ten bytes each.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            chunks, left = [], SMALL_FILE_SIZE_MAX
            while left and (chunk := os.read(descriptor, min(_READ_SIZE, left))):
                chunks.append(chunk)
                left -= len(chunk)
            return b"".join(chunks)
        finally:
            os.close(descriptor)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def list_files(self, directory: str) -> Sequence[str]:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        with suppress(FileNotFoundError):
            if os.path.islink(path):
                _empty(path)
                os.unlink(path)
            else:
                shutil.rmtree(path)

    def replace_file(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> OsFile | None:
        file = self.open(path, create=True)
        try:
            fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return None
        return file

    def check_descriptors(self) -> None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The lowest free number: all below it are taken.
        lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.close(lowest)
        if lowest >= limit - max(limit // 10, DESCRIPTORS_KEPT_MIN):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def has_room(self, directory: str, size: int) -> bool:
        path = os.path.join(directory, _TRIAL)
        try:
            file = self.open(path, create=True)
            # Without a name it ends with the process.
            os.unlink(path)
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError:
            return False
        return True

    def failed(self, path: str, error: OSError) -> None:
        self._on_failure(path, error)


def _empty(directory: str) -> None:
    """Remove what is in a directory, if there is one."""
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
