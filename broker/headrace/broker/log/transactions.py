"""Which transactions of a segment were aborted: `<base offset>.txnindex`, in Apache Kafka's format, version 0.

An entry is made when an abort marker is appended, in the segment that holds the marker; so last offsets grow from entry to
entry. A segment without such markers has no file. Entries wait in memory until a flush or a roll; recovery makes anew what
a crash took. Must not know: batches, producers.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from headrace.broker.log.files import File, Files

_ENTRY = Struct(">hqqqq")
_VERSION = 0
_UNWRITTEN_ENTRIES_MAX = 64


class AbortedTransaction(NamedTuple):
    """From its first record's offset to its marker's, with the last stable offset once the marker was there."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """See the module's text. `exists` tells whether there is a file.

    Its name may be unsynced while its segment is active, for a crash then has the index made anew.
    """

    __slots__ = ("_file", "_files", "_unwritten", "_written", "exists", "path")

    def __init__(self, files: Files, path: str, *, exists: bool = False) -> None:
        self._files = files
        self._file: File | None = None
        self._unwritten = bytearray()
        self._written = -1
        self.path = path
        self.exists = exists

    @property
    def is_empty(self) -> bool:
        """Whether it has no entry; asked for every fetch of committed records, so it costs no look at the disk."""
        return not self.exists and not self._unwritten

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path, create=True)
            if not self.exists:
                self._file.truncate(0)
                self.exists = True
            self._written = self._file.size() // _ENTRY.size
        return self._file

    def append(self, aborted: AbortedTransaction) -> None:
        """Add one; its marker lies above those of all others."""
        self._unwritten += _ENTRY.pack(_VERSION, *aborted)
        if len(self._unwritten) >= _UNWRITTEN_ENTRIES_MAX * _ENTRY.size:
            # A marker that lies in the log cannot be refused any more: what does not fit now is tried again.
            with suppress(OSError):
                self.write_out()

    def write_out(self) -> None:
        """Hand the waiting entries to the file."""
        if self._unwritten:
            file = self._opened()
            file.write_at(self._unwritten, self._written * _ENTRY.size)
            self._written += len(self._unwritten) // _ENTRY.size
            self._unwritten.clear()

    def files_to_sync(self) -> list[File]:
        """The open file with all entries written out; none where there is no entry."""
        self.write_out()
        return [self._opened()] if self.exists else []

    def all(self) -> list[AbortedTransaction]:
        """Every entry, in the order of the markers."""
        return [AbortedTransaction(*entry[1:]) for entry in _ENTRY.iter_unpack(self._content())]

    def _content(self) -> bytes:
        if not self.exists:
            return bytes(self._unwritten)
        file = self._opened()
        return file.read_at(self._written * _ENTRY.size, 0) + self._unwritten

    def _entry(self, number: int) -> AbortedTransaction:
        if self.exists and number < self._opened_count():
            data: bytes | bytearray = self._opened().read_at(_ENTRY.size, number * _ENTRY.size)
            return AbortedTransaction(*_ENTRY.unpack(data)[1:])
        start = number - (self._written if self.exists else 0)
        return AbortedTransaction(*_ENTRY.unpack_from(self._unwritten, start * _ENTRY.size)[1:])

    def _opened_count(self) -> int:
        self._opened()
        return self._written

    def __len__(self) -> int:
        written = self._opened_count() if self.exists else 0
        return written + len(self._unwritten) // _ENTRY.size

    def overlapping(self, first_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Those with offsets from `first_offset` to `end_offset` (exclusive), and whether later segments have none."""
        found = []
        for number in range(self._first_ending_at(first_offset), len(self)):
            aborted = self._entry(number)
            if aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def _first_ending_at(self, offset: int) -> int:
        """Number of the first entry whose marker lies at or above `offset`."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose markers lie at or above `offset`."""
        if self.is_empty:
            return
        self.write_out()
        self._written = self._first_ending_at(offset)
        self._opened().truncate(self._written * _ENTRY.size)

    def clear(self) -> None:
        """Forget all entries."""
        self._unwritten.clear()
        if self.exists:
            self._opened().truncate(0)
            self._written = 0

    def looks_valid(self, base_offset: int, next_offset: int) -> bool:
        """Whether the file holds whole entries whose markers grow and lie in the segment (Kafka's check, and more)."""
        if not self.exists:
            return True
        if self._files.size(self.path) % _ENTRY.size:
            return False
        last_offset = base_offset - 1
        for version, _, first_offset, marker_offset, _ in _ENTRY.iter_unpack(self._content()):
            if version != _VERSION or not last_offset < marker_offset < next_offset:
                return False
            if not 0 <= first_offset < marker_offset:
                return False
            last_offset = marker_offset
        return True
