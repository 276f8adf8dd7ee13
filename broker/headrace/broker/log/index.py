"""The sparse indexes of a segment: offset to file position, and timestamp to offset.

Owns the `.index` and `.timeindex` formats of Apache Kafka: big-endian entries (relative offset i32, position i32) and
(timestamp i64, relative offset i32), in files that are preallocated with zeros while their segment is active and cut to
their entries when it is not. Invariant: both keys and values of the entries grow strictly. An index is a hint: it is
never synced before its segment is, recovery makes it anew, and whoever follows an entry checks where it leads.
"""

import struct
from collections.abc import Callable

from headrace.broker.log.files import File, Files

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_UNWRITTEN_ENTRIES_MAX = 64
INT32_MAX = 2**31 - 1


class IndexFile:
    """Fixed-size entries in one file; the newest few wait in memory, to be written together."""

    __slots__ = ("_count", "_entry_size", "_file", "_files", "_unwritten", "_written", "entries_max", "path")

    def __init__(self, files: Files, path: str, entry_size: int, size_max: int) -> None:
        self._files = files
        self._entry_size = entry_size
        self._file: File | None = None
        # Entries in the file, and with those waiting in memory; -1 until the file is opened.
        self._written = self._count = -1
        self._unwritten = bytearray()
        self.path = path
        self.entries_max = size_max // entry_size

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path, create=True)
            self._written = self._count = self._file.size() // self._entry_size
        return self._file

    @property
    def entry_count(self) -> int:
        """Entries in the file and those still waiting in memory."""
        if self._count < 0:
            self._opened()
        return self._count

    def entry(self, number: int) -> bytes:
        """The bytes of entry `number`."""
        start = number * self._entry_size
        if number >= self._written:
            start -= self._written * self._entry_size
            return bytes(self._unwritten[start : start + self._entry_size])
        return self._opened().read_at(self._entry_size, start)

    def entries_from(self, number: int) -> bytes:
        """The bytes of entry `number` and all that follow."""
        count = self.entry_count
        if number >= self._written:
            return bytes(self._unwritten[(number - self._written) * self._entry_size :])
        start = number * self._entry_size
        written = self._opened().read_at(self._written * self._entry_size - start, start)
        return written + self._unwritten if count > self._written else written

    def is_trimmed(self) -> bool:
        """Whether the file ends with an entry, not with preallocated zeros, which a crash may have left."""
        count = self.entry_count
        return count == 0 or any(self.entry(count - 1))

    def append(self, entry: bytes) -> None:
        """Add one entry; the caller has checked `is_full`."""
        if self._count < 0:
            self._opened()
        self._count += 1
        self._unwritten += entry
        if self._count - self._written >= _UNWRITTEN_ENTRIES_MAX:
            self.write_out()

    @property
    def is_full(self) -> bool:
        """Whether no further entry fits the size that segment.index.bytes allows."""
        if self._count < 0:
            self._opened()
        return self._count >= self.entries_max

    def write_out(self) -> None:
        """Hand the waiting entries to the file."""
        if self._unwritten:
            self._opened().write_at(self._unwritten, self._written * self._entry_size)
            self._unwritten.clear()
            self._written = self._count

    def keep(self, count: int) -> None:
        """Drop every entry after the first `count`."""
        if count < self.entry_count:
            self.write_out()
            self._written = self._count = count
            file = self._opened()
            size = file.size()
            file.truncate(count * self._entry_size)
            file.truncate(size)

    def preallocate(self) -> None:
        """Grow the file to its full size, zeros after the last entry: its segment is the active one."""
        file = self._opened()
        # There may be more entries than are allowed since segment.index.bytes was lowered.
        file.truncate(max(self.entries_max, self._written) * self._entry_size)

    def trim(self) -> None:
        """Cut the file to its entries: its segment is no longer active."""
        self.write_out()
        if self._written >= 0:
            self._opened().truncate(self._written * self._entry_size)

    def clear(self) -> None:
        """Forget all entries, in memory and in the file."""
        self._opened().truncate(0)
        self._unwritten.clear()
        self._written = self._count = 0

    def file_to_sync(self) -> File:
        """The open file, all entries written out."""
        file = self._opened()
        self.write_out()
        return file


def _last_at_or_below(count: int, key_of: Callable[[int], int], target: int) -> int:
    """Number of the last of `count` sorted entries whose key is at most `target`, or -1."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if key_of(middle) <= target:
            low = middle + 1
        else:
            high = middle
    return low - 1


class OffsetIndex(IndexFile):
    """`<base offset>.index`: the last offset of some batches, and where in the file a walk to it may begin."""

    __slots__ = ("_base_offset",)

    def __init__(self, files: Files, path: str, base_offset: int, size_max: int) -> None:
        super().__init__(files, path, _OFFSET_ENTRY.size, size_max)
        self._base_offset = base_offset

    def add(self, offset: int, position: int) -> None:
        """Note that the batch ending with `offset` is found by walking from `position`."""
        self.append(_OFFSET_ENTRY.pack(offset - self._base_offset, position))

    def lookup(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the last entry at or below `offset`; (base offset, 0) without one."""
        found = _last_at_or_below(self.entry_count, self._relative_offset, offset - self._base_offset)
        return (self._base_offset, 0) if found < 0 else self._parse(found)

    def last(self) -> tuple[int, int] | None:
        """(offset, position) of the last entry."""
        count = self.entry_count
        return self._parse(count - 1) if count else None

    def offset_behind(self, position: int) -> int | None:
        """An offset above all that lie before `position`: that of the first entry at or behind it, if there is one."""
        number = _last_at_or_below(self.entry_count, self._position, position - 1) + 1
        return self._parse(number)[0] if number < self.entry_count else None

    def looks_valid(self, log_size: int) -> bool:
        """Whether the last entry can belong to a log file of `log_size` bytes (Kafka's sanity check, a little more)."""
        last = self.last()
        if last is None:
            return True
        offset, position = last
        return offset - self._base_offset >= self.entry_count - 1 and 0 <= position < log_size

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above `offset`."""
        self.keep(
            _last_at_or_below(self.entry_count, self._relative_offset, offset - self._base_offset - 1) + 1
        )

    def _relative_offset(self, number: int) -> int:
        return int.from_bytes(self.entry(number)[:4], "big", signed=True)

    def _position(self, number: int) -> int:
        return int.from_bytes(self.entry(number)[4:], "big", signed=True)

    def _parse(self, number: int) -> tuple[int, int]:
        relative, position = _OFFSET_ENTRY.unpack(self.entry(number))
        return self._base_offset + relative, position


class TimeIndex(IndexFile):
    """`<base offset>.timeindex`: every batch after `offset` that is older than `timestamp` is out of time order."""

    __slots__ = ("_base_offset", "_checked", "_last")

    def __init__(self, files: Files, path: str, base_offset: int, size_max: int) -> None:
        super().__init__(files, path, _TIME_ENTRY.size, size_max)
        self._base_offset = base_offset
        # How many entries were found to grow, and the last of them.
        self._checked = (0, (-1, -1))
        # The last entry, once it was asked for: each append asks.
        self._last: tuple[int, int] | None = None

    @property
    def is_full(self) -> bool:
        """One entry is kept free for the one that rolling adds."""
        if self._count < 0:
            self._opened()
        return self._count >= self.entries_max - 1

    def add_if_newer(self, timestamp_ms: int, offset: int) -> None:
        """Note the largest timestamp so far and its batch's last offset, unless the last entry says as much.

        Nothing is noted of batches without a timestamp (-1), which message format 0 makes.
        """
        last = self._last or self.last() or (-1, -1)
        if timestamp_ms > last[0] and offset > last[1]:
            self.append(_TIME_ENTRY.pack(timestamp_ms, offset - self._base_offset))
            self._last = (timestamp_ms, offset)

    def lookup(self, timestamp_ms: int) -> tuple[int, int]:
        """(timestamp, offset) of the last entry at or below `timestamp_ms`; (-1, base offset) without one."""
        found = _last_at_or_below(self.entry_count, self._timestamp, timestamp_ms)
        return (-1, self._base_offset) if found < 0 else self._parse(found)

    def last(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the last entry: the segment's largest timestamp once it is rolled."""
        count = self.entry_count
        if self._last is None and count:
            self._last = self._parse(count - 1)
        return self._last

    def looks_valid(self, next_offset: int) -> bool:
        """Whether the entries grow and end below `next_offset`; reads those that were not looked at before."""
        checked, previous = self._checked
        if checked > self.entry_count:
            checked, previous = 0, (-1, -1)
        for entry in _TIME_ENTRY.iter_unpack(self.entries_from(checked)):
            if entry[0] <= previous[0] or entry[1] <= previous[1]:
                return False
            previous = entry
        self._checked = (self.entry_count, previous)
        return self._base_offset + previous[1] < next_offset

    def clear(self) -> None:
        super().clear()
        self._checked, self._last = (0, (-1, -1)), None

    def keep(self, count: int) -> None:
        super().keep(count)
        self._checked, self._last = (0, (-1, -1)), None

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above `offset`."""
        relative = offset - self._base_offset - 1
        self.keep(_last_at_or_below(self.entry_count, self._relative_offset, relative) + 1)

    def _timestamp(self, number: int) -> int:
        return int.from_bytes(self.entry(number)[:8], "big", signed=True)

    def _relative_offset(self, number: int) -> int:
        return int.from_bytes(self.entry(number)[8:12], "big", signed=True)

    def _parse(self, number: int) -> tuple[int, int]:
        timestamp_ms, relative = _TIME_ENTRY.unpack(self.entry(number))
        return timestamp_ms, self._base_offset + relative
