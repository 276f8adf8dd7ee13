"""One segment: a `.log` file of whole batches in offset order, with its two indexes.

Invariants: `size` bytes of the file are whole batches, what lies beyond is not part of the log; a failed write is cut
off again before anything else is written. Must not know: producers, epochs, retention, where other segments are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from headrace.broker.config.keys import LONG_MAX
from headrace.broker.errors import CorruptMessageError
from headrace.broker.log import names
from headrace.broker.log.files import Buffer, File, Files
from headrace.broker.log.index import INT32_MAX, OffsetIndex, TimeIndex
from headrace.broker.log.transactions import AbortedTransaction, TransactionIndex
from headrace.broker.wire.batches import HEADER_SIZE, LENGTH_END, MAGIC, BatchHeader, read_header

_SCAN_SIZE = 8192
_RECENT_MAX = 32


class Place(NamedTuple):
    """Where a batch lies in its segment's file."""

    position: int
    header: BatchHeader


class Room(NamedTuple):
    """How many bytes a segment still takes, and up to which last offset and timestamp (milliseconds)."""

    size: int
    last_offset: int
    max_timestamp: int

    def takes(self, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether so many bytes with that last offset and largest timestamp fit."""
        return size <= self.size and last_offset <= self.last_offset and max_timestamp <= self.max_timestamp


NO_ROOM = Room(0, -1, -1)


class Segment:
    """See the module's text. `next_offset` is the offset after the last batch."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_file",
        "_files",
        "_is_full",
        "_is_torn",
        "_largest_timestamp",
        "_older",
        "_preallocated_size",
        "_recent",
        "base_offset",
        "created_ms",
        "directory",
        "first_timestamp_ms",
        "index",
        "index_interval_bytes",
        "is_active",
        "next_offset",
        "size",
        "suffix",
        "time_index",
        "transactions",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        index_size_max: int,
        index_interval_bytes: int,
        now_ms: int,
        preallocated_size: int = 0,
        suffix: str = "",
    ) -> None:
        self._files = files
        self._preallocated_size = preallocated_size
        self._file: File | None = None
        self._is_torn = False
        self._is_full = False
        self.directory = directory
        # What the names of its files end with while it takes other segments' place.
        self.suffix = suffix
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.is_active = False
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = now_ms
        self.index = OffsetIndex(files, self.path(names.INDEX_SUFFIX), base_offset, index_size_max)
        self.time_index = TimeIndex(files, self.path(names.TIME_INDEX_SUFFIX), base_offset, index_size_max)
        self.transactions = TransactionIndex(files, self.path(names.TRANSACTION_INDEX_SUFFIX))
        # The largest timestamp with its batch's last offset; None until it is needed and read from the time index.
        self._largest_timestamp: tuple[int, int] | None = None
        self.first_timestamp_ms: int | None = None
        self._bytes_since_index_entry = 0
        # Where batches appended lately begin, by the offset that a reader at the tail asks for; two generations.
        self._recent: dict[int, int] = {}
        self._older: dict[int, int] = {}

    def path(self, file_suffix: str) -> str:
        """Path of one of the segment's files."""
        return f"{self.directory}/{names.segment_file(self.base_offset, file_suffix)}{self.suffix}"

    @property
    def log(self) -> File:
        """The open `.log` file."""
        if self._file is None:
            self._file = self._files.open(self.path(names.LOG_SUFFIX), create=True)
        return self._file

    # -- append

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Put whole batches at the end; returns their position. Raises OSError, the segment then being as before.

        The caller notes each batch with `note` afterwards.
        """
        position = self.size
        file = self._file or self.log
        if self._is_torn:
            self._cut_torn_write(file)
        try:
            file.write_all_at(buffers, position)
        except OSError:
            self._is_torn = True
            self._cut_torn_write(file)
            raise
        self.size = position + sum(map(len, buffers))
        return position

    def _cut_torn_write(self, file: File) -> None:
        file.truncate(self.size)
        # Were the cut to be lost with the power, the torn bytes would lie behind data that counts as flushed.
        file.sync()
        self._is_torn = False

    def note(self, position: int, header: BatchHeader) -> None:
        """Account for one batch that `write` put at `position`."""
        self.note_run(position, ((header, header.base_offset),))

    def note_run(self, position: int, batches: Sequence[tuple[BatchHeader, int]]) -> None:
        """Account for batches that `write` put side by side at `position`: the header of each, and its base offset here."""
        recent, next_offset = self._recent, self.next_offset
        largest_ms, _ = self.largest_timestamp
        if position == 0:
            self.first_timestamp_ms = batches[0][0].max_timestamp
        for header, base_offset in batches:
            if len(recent) >= _RECENT_MAX:
                self._older = recent
                recent = self._recent = {}
            recent[next_offset] = position
            size, last_offset = header.length + LENGTH_END, base_offset + header.last_offset_delta
            next_offset = last_offset + 1
            if header.max_timestamp > largest_ms:
                largest_ms = header.max_timestamp
                self._largest_timestamp = (largest_ms, last_offset)
            if self._bytes_since_index_entry > self.index_interval_bytes:
                self._add_index_entries(last_offset, position)
            self._bytes_since_index_entry += size
            position += size
        self.next_offset = next_offset

    def note_marker(self, aborted: AbortedTransaction | None) -> None:
        """Account for a transaction that a batch just noted has aborted, if it has."""
        if aborted is not None:
            self.transactions.append(aborted)

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        self._bytes_since_index_entry = 0
        if self._is_full:
            return
        try:
            self.index.add(last_offset, position)
            self.time_index.add_if_newer(*self.largest_timestamp)
        except OSError:
            # The batch lies in the log already; what an index lacks only makes looking it up longer.
            return
        self._is_full = self.index.is_full or self.time_index.is_full

    # -- find

    def position_of(self, offset: int) -> int | None:
        """Position of the first batch that ends at or above `offset`; None when the segment has none."""
        if offset >= self.next_offset:
            return None
        position = self._recent.get(offset)
        if position is None:
            position = self._older.get(offset)
        if position is not None:
            return position
        place = self.find(offset)
        return None if place is None else place.position

    def find(self, offset: int) -> Place | None:
        """The first batch that ends at or above `offset`, with its header."""
        for place in self.walk(self._walk_start(offset)):
            if place.header.last_offset >= offset:
                return place
        return None

    def _walk_start(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`; an index that leads astray is made anew."""
        position = self._indexed_position(offset)
        if position is None:
            self.rebuild_indexes()
            position = self._indexed_position(offset)
        return position or 0

    def _indexed_position(self, offset: int) -> int | None:
        entry_offset, position = self.index.lookup(offset)
        if position == 0:
            return 0
        if not 0 < position <= self.size - HEADER_SIZE:
            return None
        header = read_header(self.log.read_at(HEADER_SIZE, position))
        is_sound = header.magic == MAGIC and self.base_offset <= header.base_offset <= entry_offset <= offset
        return position if is_sound and header.size <= self.size - position else None

    def walk(self, position: int = 0) -> Iterator[Place]:
        """Every batch from `position` on, reading headers only; one that is cut by the file's end is none.

        Raises CorruptMessageError where a header is none.
        """
        buffer, start = b"", position
        while position <= self.size - HEADER_SIZE:
            if position + HEADER_SIZE > start + len(buffer):
                start = position
                buffer = self.log.read_at(min(_SCAN_SIZE, self.size - start), start)
            header = read_header(buffer, position - start)
            if header.size > self.size - position:
                return
            if header.magic != MAGIC or header.size < HEADER_SIZE:
                raise CorruptMessageError(
                    f"{self.path(names.LOG_SUFFIX)}: no batch of format 2 begins at byte {position}"
                )
            yield Place(position, header)
            position += header.size

    @property
    def largest_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and the last offset of its batch; (-1, base offset) in an empty segment."""
        if self._largest_timestamp is None:
            self._largest_timestamp = self._read_largest_timestamp()
        return self._largest_timestamp

    def _read_largest_timestamp(self) -> tuple[int, int]:
        """From the time index, and from the batches behind its last entry, which it may not tell of yet."""
        largest = self.time_index.last() or (-1, self.base_offset)
        if largest[0] < 0 or not self.base_offset <= largest[1] < self.next_offset:
            # No entry of this segment: the batches alone tell.
            largest = (-1, self.base_offset)
        # Rot keeps nobody from appending: what it hides has no part in the answer.
        with suppress(CorruptMessageError):
            for _, header in self.walk(self._walk_start(largest[1])):
                if header.max_timestamp > largest[0] and header.last_offset < self.next_offset:
                    largest = (header.max_timestamp, header.last_offset)
        return largest

    def retention_timestamp_ms(self) -> int:
        """What retention by time compares: the largest timestamp, or the file's age when its batches have none."""
        timestamp_ms, _ = self.largest_timestamp
        return timestamp_ms if timestamp_ms >= 0 else self.modified_ms()

    def modified_ms(self) -> int:
        """When the file of batches was last written to, says the file system."""
        return self._files.modified_ms(self.path(names.LOG_SUFFIX))

    def from_timestamp(self, timestamp_ms: int, from_offset: int) -> Iterator[Place]:
        """The batches at or above `from_offset` that hold a timestamp of at least `timestamp_ms`, in offset order."""
        if not self.time_index.looks_valid(self.next_offset):
            self.rebuild_indexes()
        _, offset = self.time_index.lookup(timestamp_ms - 1)
        for place in self.walk(self._walk_start(max(offset, from_offset))):
            if place.header.max_timestamp >= timestamp_ms and place.header.last_offset >= from_offset:
                yield place

    # -- change of state

    def must_roll(
        self, size: int, last_offset: int, max_timestamp_ms: int, now_ms: int, limits: tuple[int, int]
    ) -> bool:
        """Whether `size` bytes ending with `last_offset` have to go into a new segment (Kafka's rules)."""
        return not self.room(now_ms, limits).takes(size, last_offset, max_timestamp_ms)

    def room(self, now_ms: int, limits: tuple[int, int]) -> Room:
        """What may come before a new segment has to begin.

        `limits` are bytes and milliseconds, which are counted from the first batch's timestamp to the next one's, or in
        the broker's time where batches have none.
        """
        segment_bytes, segment_ms = limits
        last_offset = self.base_offset + INT32_MAX
        if self.size == 0:
            return Room(LONG_MAX, last_offset, LONG_MAX)
        if self._is_full:
            return NO_ROOM
        first_ms = self.first_timestamp_ms
        if first_ms is None:
            first_ms = self._read_first_timestamp()
        if first_ms >= 0:
            return Room(segment_bytes - self.size, last_offset, first_ms + segment_ms)
        is_due = now_ms - self.created_ms > segment_ms
        return NO_ROOM if is_due else Room(segment_bytes - self.size, last_offset, LONG_MAX)

    def first_batch_timestamp_ms(self) -> int:
        """The timestamp of its first batch; -1 when it has none."""
        return self._read_first_timestamp()

    def _read_first_timestamp(self) -> int:
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = -1
            with suppress(CorruptMessageError):
                for _, header in self.walk():
                    self.first_timestamp_ms = header.max_timestamp
                    break
        return self.first_timestamp_ms

    def batch_size_at(self, position: int) -> int:
        """Size in bytes of the batch at `position`."""
        return read_header(self.log.read_at(HEADER_SIZE, position)).size

    def become_active(self) -> None:
        """Preallocate the indexes, and an empty file where `preallocate` asks for it; the segment takes appends."""
        if self._preallocated_size and not self.size:
            self.log.truncate(self._preallocated_size)
        self.index.preallocate()
        self.time_index.preallocate()
        self._is_full = self.index.is_full or self.time_index.is_full
        self.is_active = True

    def become_inactive(self) -> None:
        """Complete and trim the indexes and a preallocated file; nothing is appended any more."""
        self._finish_indexes()
        self.transactions.write_out()
        if self._preallocated_size:
            self.log.truncate(self.size)
        self.is_active = False
        self._recent, self._older = {}, {}

    def _finish_indexes(self) -> None:
        if self.size:
            self.time_index.add_if_newer(*self.largest_timestamp)
        self.index.trim()
        self.time_index.trim()

    def part_from(self, offset: int) -> None:
        """The batches that end at or above `offset` are about to be dropped: slices that hold some of them are no longer
        good, whatever is written in their place.
        """
        file = self.log
        try:
            position = self.position_of(offset)
            file.cut_at = self.size if position is None else position
        except OSError:
            file.cut_at = 0
        self._file = None

    def truncate_to(self, offset: int) -> int:
        """Drop the batches that end at or above `offset`; returns the bytes dropped."""
        end_offset = self.base_offset
        for position, header in self.walk(self._walk_start(offset - 1)):
            if header.last_offset >= offset:
                dropped = self.cut(position, end_offset)
                self._mend_indexes()
                return dropped
            end_offset = header.next_offset
        return 0

    def _mend_indexes(self) -> None:
        """No clean stop vouches for indexes of older segments, and what is wrong in them would be appended to."""
        if not (self.index.looks_valid(self.size) and self.time_index.looks_valid(self.next_offset)):
            self.rebuild_indexes()

    def cut(self, position: int, next_offset: int) -> int:
        """Make the file end at `position`, where a batch ends with `next_offset` - 1; returns the bytes cut."""
        dropped = self.log.size() - position
        self.log.truncate(position)
        self.size = position
        self.next_offset = next_offset
        self.index.truncate_to(next_offset)
        self.time_index.truncate_to(next_offset)
        self.transactions.truncate_to(next_offset)
        self._largest_timestamp = None
        self._recent, self._older = {}, {}
        if position == 0:
            self.first_timestamp_ms = None
        return dropped

    def begin_rebuild(self) -> None:
        """Forget the indexes and all that is known of the batches, to be told of each with `note` again."""
        self.index.clear()
        self.time_index.clear()
        self._largest_timestamp = (-1, self.base_offset)
        self._bytes_since_index_entry = 0
        self._recent, self._older = {}, {}
        self.first_timestamp_ms = None
        self._is_full = False
        self.next_offset = self.base_offset

    def end_rebuild(self) -> None:
        """Write the indexes out."""
        # What was passed over as rotten has to be found by walking, not the batch behind it in its stead.
        self._recent, self._older = {}, {}
        self._finish_indexes()
        if self.is_active:
            self.become_active()

    def rebuild_indexes(self) -> None:
        """Make both indexes anew from the headers in the file; behind unreadable bytes they have no entries."""
        next_offset = self.next_offset
        end_offset = min(next_offset, self.base_offset + INT32_MAX + 1)
        self.begin_rebuild()
        with suppress(CorruptMessageError):
            for position, header in self.walk():
                # An offset that rotted would not fit the index, and move the segment's end.
                if self.next_offset <= header.base_offset <= header.last_offset < end_offset:
                    self.note(position, header)
        self.next_offset = next_offset
        self.end_rebuild()

    def files_to_sync(self) -> list[File]:
        """Open files whose contents a flush must bring to the disk."""
        indexes = [self.index.file_to_sync(), self.time_index.file_to_sync()]
        return [self.log, *indexes, *self.transactions.files_to_sync()]

    def rename_files(self, suffix: str) -> None:
        """Give the names of its files another end, the `.log` file first."""
        before = self._existing_paths()
        self.suffix = suffix
        for file_suffix, path in before:
            self._files.rename(path, self.path(file_suffix))
        self.index.path = self.path(names.INDEX_SUFFIX)
        self.time_index.path = self.path(names.TIME_INDEX_SUFFIX)
        self.transactions.path = self.path(names.TRANSACTION_INDEX_SUFFIX)

    def remove_files(self) -> None:
        """Remove its files at once."""
        for _, path in self._existing_paths():
            self._files.remove(path)

    def _existing_paths(self) -> list[tuple[str, str]]:
        paths = [(suffix, self.path(suffix)) for suffix in names.SEGMENT_SUFFIXES]
        return [(suffix, path) for suffix, path in paths if self._files.exists(path)]

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted`, which readers of an open slice do not notice; returns the new paths."""
        renamed = []
        for _, path in self._existing_paths():
            self._files.rename(path, path + names.DELETED_SUFFIX)
            renamed.append(path + names.DELETED_SUFFIX)
        return renamed
