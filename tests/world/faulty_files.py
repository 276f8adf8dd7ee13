"""A file system in memory that loses what a real one may lose: unsynced bytes, unsynced names, the rest of a write.

Files are inodes with a content that everybody sees and a content that is on the disk; names likewise, per directory.
`crash` throws away what was not synced, as a seeded generator decides: pages of a file survive or not independently of
each other and of other files, the last write is torn at any byte, names survive in the order of their changes up to
some point. `kill` keeps all, as the page cache does when only the process dies.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from random import Random
from typing import Any

from headrace.broker.log.files import UNCUT, Buffer

PAGE_SIZE = 64


class Died(BaseException):
    """The process was killed between two operations on the disk."""


class Inode:
    """One file's content: as seen, and as synced."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.writes: list[tuple[int, bytes]] = []
        self._copy: _Copy | None = None

    def mapped(self) -> int:
        """A descriptor of a file of the system with the content as seen."""
        if self._copy is None:
            self._copy = _Copy()
        return self._copy.of(self.data)

    def __deepcopy__(self, memo: dict[int, Any]) -> Inode:
        """The content alone: what reads the old one's copy goes on with that."""
        other = Inode()
        other.data, other.durable, other.writes = bytearray(self.data), self.durable, list(self.writes)
        return other

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.writes.clear()

    def survive(self, random: Random) -> None:
        """What a power cut leaves."""
        if bytes(self.data) != self.durable:
            survivor = self._some_pages(random) if random.random() < 0.5 else self._some_writes(random)
            self.data = survivor
        self.sync()

    def _some_pages(self, random: Random) -> bytearray:
        size = random.randint(*sorted((len(self.durable), len(self.data))))
        old = self.durable[:size].ljust(size, b"\0")
        survivor = bytearray(old)
        for start in range(0, size, PAGE_SIZE):
            if random.random() < 0.5:
                page = self.data[start : min(start + PAGE_SIZE, size)]
                survivor[start : start + len(page)] = page
        return survivor

    def _some_writes(self, random: Random) -> bytearray:
        survivor = bytearray(self.durable)
        count = random.randint(0, len(self.writes))
        for number, (position, data) in enumerate(self.writes[:count]):
            if number == count - 1:
                data = data[: random.randint(0, len(data))]
            if position < 0:
                del survivor[-position - 1 :]
            else:
                survivor.extend(b"\0" * (position - len(survivor)))
                survivor[position : position + len(data)] = data
        return survivor


class _Copy:
    """A file of the system without a name, that holds what an inode holds."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("inode")
        self._content = b""

    def of(self, data: bytearray) -> int:
        if data != self._content:
            self._content = bytes(data)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, self._content, 0)
        return self._descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)


class FaultyFile:
    """A File on an inode."""

    def __init__(self, files: FaultyFiles, inode: Inode) -> None:
        self._files = files
        self._inode = inode
        self.cut_at = UNCUT

    def write_at(self, data: Buffer, position: int) -> None:
        self._files.step()
        room = self._files.room
        whole = bytes(data)
        taken = whole if room is None else whole[:room]
        seen = self._inode.data
        seen.extend(b"\0" * (position - len(seen)))
        seen[position : position + len(taken)] = taken
        self._inode.writes.append((position, taken))
        if room is not None:
            self._files.room = room - len(taken)
            if len(taken) < len(whole):
                raise OSError(errno.ENOSPC, "No space left on device")

    def write_all_at(self, buffers: Sequence[Buffer], position: int) -> None:
        self.write_at(b"".join(buffers), position)

    def read_at(self, size: int, position: int) -> bytes:
        return bytes(self._inode.data[position : position + size])

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._files.step()
        seen = self._inode.data
        if size < len(seen):
            del seen[size:]
            self._inode.writes.append((-size - 1, b""))
        elif size > len(seen):
            growth = b"\0" * (size - len(seen))
            self._inode.writes.append((len(seen), growth))
            seen.extend(growth)

    def sync(self) -> None:
        self._files.step()
        self._inode.sync()

    def fileno(self) -> int:
        """Of a copy that the system holds, for sendfile: the inode's, as long as that lives."""
        return self._inode.mapped()


class FaultyFiles:
    """Files in memory.

    `room` is how many bytes fit the disk yet, `operations_left` how many operations that change something the process
    lives to do; None for any number.
    """

    def __init__(self) -> None:
        self.room: int | None = None
        self.operations_left: int | None = None
        # What was reported as a failure of the disk, oldest first.
        self.failures: list[tuple[str, OSError]] = []
        self._seen: dict[str, Inode] = {}
        self._durable: dict[str, Inode] = {}
        # Changes of names since their directory was synced, in order; each sets or removes (None) some names at once.
        self._changes: dict[str, list[dict[str, Inode | None]]] = {}
        self._directories: set[str] = {"/"}
        # Renames of directories since the directory that holds them was synced, in order.
        self._moved: dict[str, list[tuple[str, str]]] = {}

    def _change(self, directory: str, change: dict[str, Inode | None]) -> None:
        _apply(change, self._seen)
        self._changes.setdefault(directory, []).append(change)

    def step(self) -> None:
        """Before every operation that changes something."""
        if self.operations_left is not None:
            if self.operations_left == 0:
                raise Died
            self.operations_left -= 1

    def _inode(self, path: str) -> Inode:
        if path not in self._seen:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self._seen[path]

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        if create and path not in self._seen:
            if _parent(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            self._change(_parent(path), {path: Inode()})
        return FaultyFile(self, self._inode(path))

    def read(self, path: str) -> bytes:
        return bytes(self._inode(path).data)

    def exists(self, path: str) -> bool:
        return path in self._seen or path in self._directories

    def is_directory(self, path: str) -> bool:
        return path in self._directories

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def modified_ms(self, path: str) -> int:
        self._inode(path)
        return 0

    def list(self, directory: str) -> list[str]:
        everything = [*self._seen, *self._directories]
        return sorted(
            path.rpartition("/")[2] for path in everything if path != "/" and _parent(path) == directory
        )

    def list_files(self, directory: str) -> Sequence[str]:
        return sorted(path.rpartition("/")[2] for path in self._seen if _parent(path) == directory)

    def rename(self, source: str, target: str) -> None:
        self.step()
        if source in self._directories:
            self._rename_directory(source, target)
            self._moved.setdefault(_parent(target), []).append((source, target))
            return
        self._change(_parent(target), {source: None, target: self._inode(source)})

    def _rename_directory(self, source: str, target: str) -> None:
        self._directories = {target if path == source else path for path in self._directories}
        for names in (self._seen, self._durable):
            for path in [path for path in names if _parent(path) == source]:
                names[target + path[len(source) :]] = names.pop(path)
        if source in self._changes:
            self._changes[target] = [
                {target + path[len(source) :]: inode for path, inode in change.items()}
                for change in self._changes.pop(source)
            ]

    def remove(self, path: str) -> None:
        self.step()
        if path in self._seen:
            self._change(_parent(path), {path: None})

    def make_directory(self, path: str) -> None:
        while path not in self._directories:
            self._directories.add(path)
            path = _parent(path)

    def has_room(self, directory: str, size: int) -> bool:
        return self.room is None or size <= self.room

    def remove_directory(self, path: str) -> None:
        self._directories = {found for found in self._directories if not f"{found}/".startswith(f"{path}/")}
        for names in (self._seen, self._durable):
            for name in [name for name in names if name.startswith(f"{path}/")]:
                del names[name]

    def replace_file(self, path: str, data: bytes) -> None:
        file = self.open(path + ".tmp", create=True)
        file.truncate(0)
        file.write_at(data, 0)
        file.sync()
        self.rename(path + ".tmp", path)
        self.sync_directory(_parent(path))

    def sync_directory(self, path: str) -> None:
        self.step()
        self._moved.pop(path, None)
        for change in self._changes.pop(path, []):
            _apply(change, self._durable)

    def lock(self, path: str) -> FaultyFile:
        return self.open(path, create=True)

    def check_descriptors(self) -> None:
        """There are always enough."""

    def failed(self, path: str, error: OSError) -> None:
        self.failures.append((path, error))

    # -- faults

    def crash(self, random: Random) -> None:
        """A power cut: what was not synced survives in part."""
        for directory in sorted(self._moved):
            moved = self._moved[directory]
            for source, target in reversed(moved[random.randint(0, len(moved)) :]):
                if target in self._directories:
                    self._rename_directory(target, source)
        self._moved.clear()
        for directory in sorted(self._changes):
            changes = self._changes[directory]
            for change in changes[: random.randint(0, len(changes))]:
                _apply(change, self._durable)
        self._changes.clear()
        self._seen = dict(self._durable)
        for path in sorted(self._seen):
            self._seen[path].survive(random)
        self.room = self.operations_left = None

    def kill(self) -> None:
        """The process dies, the page cache lives."""
        self.room = self.operations_left = None

    def paths(self, suffix: str) -> Sequence[str]:
        """Files whose names end with `suffix`."""
        return sorted(path for path in self._seen if path.endswith(suffix))

    def overwrite(self, path: str, data: bytes) -> None:
        """Make `path` hold `data`, on the disk as well: rot, or a person with an editor."""
        inode = self._inode(path)
        inode.data = bytearray(data)
        inode.sync()

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """One bit rots, on the disk."""
        data = bytearray(self._inode(path).data)
        data[position] ^= 1 << bit
        self.overwrite(path, bytes(data))


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _apply(change: dict[str, Inode | None], names: dict[str, Inode]) -> None:
    for path, inode in change.items():
        if inode is None:
            names.pop(path, None)
        else:
            names[path] = inode
