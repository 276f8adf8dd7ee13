"""Whether a copy and its source hold the same batches between two offsets, fed with what either side serves. Pure.

    while wanted := comparison.wants():                  side → the offset to read on from
        comparison.served(side, records)                 what it answered
    comparison.difference                                the first, or None: all is the same up to `position`

What is compared is every byte of every batch but the partition leader epoch, so equality hangs on no checksum. Invariants:
nothing is compared that begins at `end` or later; at most one answer of each side is held. `passed` are ranges of offsets
that findings say the copy passed over: batches there that are not the same are no difference. Where `is_compacted`, either
side may have removed messages: those that both have must be the same. Must not know: how a side is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from struct import Struct

from headrace.broker.errors import CorruptMessageError, KafkaError
from headrace.broker.wire.batches import HEADER_SIZE, LENGTH_END, MAGIC, MAGIC_AT, BatchHeader, iter_batches
from headrace.mirror.equality.difference import (
    Batch,
    Difference,
    Nothing,
    Served,
    Unreadable,
    checksum_note,
    difference,
    record_difference,
    records_of_both,
)

_EXTENT = Struct(">qi4s7xi")
"""Base offset, length, leader epoch and last offset delta of a batch."""
Offsets = tuple[int, int]
"""First and last, both included."""
_NO_BATCH = CorruptMessageError(
    "a batch that claims to be longer than what is served of it, or to lie elsewhere"
)


class Side(StrEnum):
    """Whose log it is."""

    SOURCE = "source"
    COPY = "copy"


class Comparison:
    """See the module's text."""

    def __init__(
        self, first: int, end: int, *, passed: Sequence[Offsets] = (), is_compacted: bool = False
    ) -> None:
        self.difference: Difference | None = None
        self.bytes_compared = 0
        self.deleted_count = 0
        """Offsets that retention took from either side before they were compared."""
        self.only_at = dict.fromkeys(Side, 0)
        """Messages that only this side of a compacted topic has."""
        self._cursors = {side: _Cursor(first, end) for side in Side}
        self._end = end
        self._passed = passed
        self._used: set[Offsets] = set()
        self._is_compacted = is_compacted
        self._first = first

    @property
    def position(self) -> int:
        """All below it is compared."""
        return min(cursor.offset for cursor in self._cursors.values())

    @property
    def passed_count(self) -> int:
        """Offsets at which the sides are not the same, as findings say."""
        clipped = ((max(first, self._first), min(last, self._end - 1)) for first, last in self._used)
        return sum(max(0, last - first + 1) for first, last in clipped)

    def wants(self) -> dict[Side, int]:
        """Where to read which side on; empty once all is compared or a difference is found."""
        if self.difference is not None:
            return {}
        return {side: cursor.offset for side, cursor in self._cursors.items() if cursor.head is None}

    def served(self, side: Side, records: memoryview) -> None:
        """What a side has from the offset on that was wanted; the last batch may be cut. Raises MessageTooLargeError."""
        self._cursors[side].take(records)
        self._go_on()

    def deleted_below(self, offset: int) -> None:
        """A side begins only there by now."""
        target = min(self._end, max(offset, *(cursor.offset for cursor in self._cursors.values())))
        self.deleted_count += target - self.position
        for cursor in self._cursors.values():
            cursor.jump(target)
        self._go_on()

    def _go_on(self) -> None:
        """Compare for as long as both sides are known."""
        source, copy = self._cursors[Side.SOURCE], self._cursors[Side.COPY]
        self.bytes_compared += _go_past_same(source, copy)
        while self.difference is None:
            ours, theirs = source.head, copy.head
            if ours is None or theirs is None or (isinstance(ours, Nothing) and isinstance(theirs, Nothing)):
                return
            if isinstance(ours, Batch) and isinstance(theirs, Batch) and is_same(ours, theirs):
                self.bytes_compared += ours.header.size
                source.advance()
                copy.advance()
            elif not self._pass_over() and not (self._is_compacted and self._merge(ours, theirs)):
                self.difference = difference(ours, theirs)

    def _pass_over(self) -> bool:
        """Leave out what lies where the copy passed over its source; whether anything did."""
        is_any = False
        for cursor in self._cursors.values():
            span = _span(cursor.head)
            for first, last in self._passed if span is not None else ():
                if span is not None and span[0] <= last and span[1] >= first:
                    self._used.add((first, last))
                    cursor.jump(last + 1) if isinstance(cursor.head, Unreadable) else cursor.advance()
                    is_any = True
                    break
        return is_any

    def _merge(self, ours: Served, theirs: Served) -> bool:
        """Go past batches of a compacted topic that are not the same; False where no cleaner explains it."""
        spans = _span(ours) or (self._end, self._end), _span(theirs) or (self._end, self._end)
        if isinstance(ours, Unreadable) or isinstance(theirs, Unreadable):
            return False
        if isinstance(ours, Batch) and isinstance(theirs, Batch) and spans[0][0] == spans[1][0]:
            return self._merge_records(ours, theirs)
        side, lower = (Side.SOURCE, ours) if spans[0] < spans[1] else (Side.COPY, theirs)
        if not isinstance(lower, Batch) or min(spans)[1] >= max(spans)[0]:
            return False
        self.only_at[side] += lower.header.record_count
        self._cursors[side].advance()
        return True

    def _merge_records(self, ours: Batch, theirs: Batch) -> bool:
        try:
            found = [{record.offset: record for record in one} for one in records_of_both(ours, theirs)]
        except CorruptMessageError:
            return False
        there, here = found
        for offset in sorted(there.keys() & here.keys()):
            if there[offset] != here[offset]:
                notes = checksum_note(ours), checksum_note(theirs)
                self.difference = record_difference(there[offset], here[offset], notes)
                return True
        self.only_at[Side.SOURCE] += len(there.keys() - here.keys())
        self.only_at[Side.COPY] += len(here.keys() - there.keys())
        self.bytes_compared += theirs.header.size
        for cursor in self._cursors.values():
            cursor.advance()
        return True


class _Cursor:
    """One side: `head` is what lies at `offset` or next behind it, None while that has to be read."""

    def __init__(self, offset: int, end: int) -> None:
        self.offset = offset
        self.head: Served | None = None
        self.end = end
        self._records = memoryview(b"")
        self._position = 0
        self._batches: Iterator[tuple[int, BatchHeader]] = iter(())
        self._look()

    def take(self, records: memoryview) -> None:
        """Go on with these; where they hold no whole batch of use, that is what lies here."""
        self._records, self._batches = records, iter_batches(records)
        self._look()
        if self.head is None and len(records):
            self.head = Unreadable(offset=self.offset, reason=str(_NO_BATCH))

    def advance(self) -> None:
        """The head is done with."""
        assert isinstance(self.head, Batch), "only a batch is gone past"
        self.offset = self.head.header.next_offset
        self._look()

    @property
    def rest(self) -> memoryview:
        """What was served from the head on."""
        return self._records[self._position :]

    def go_past(self, size: int, next_offset: int) -> None:
        """So many bytes from the head on are done with, which end where a batch does."""
        self._records = self.rest[size:]
        self._batches = iter_batches(self._records)
        self.offset = next_offset
        self._look()

    def jump(self, offset: int) -> None:
        """Nothing below that offset is looked at any more."""
        if offset > self.offset:
            self.offset, self._batches = offset, iter(())
            self._look()

    def _look(self) -> None:
        self.head = None
        if self.offset >= self.end:
            self.head = Nothing(next_offset=self.end)
            return
        try:
            for position, header in self._batches:
                if header.next_offset > self.offset:  # a broker may begin earlier
                    self.head = self._at(position, header)
                    return
        except KafkaError as error:
            self.head = Unreadable(offset=self.offset, reason=str(error))

    def _at(self, position: int, header: BatchHeader) -> Served:
        if header.base_offset >= self.end:
            self.offset = self.end
            return Nothing(next_offset=self.end)
        self._position = position
        return Batch(header, self._records[position : position + header.size])


def _go_past_same(source: _Cursor, copy: _Cursor) -> int:
    """Go past all batches that both sides have served where those are the same, which costs little a batch; how many bytes.

    Where anything but leader epochs differs nothing is gone past: that is for the one by one.
    """
    if not (isinstance(source.head, Batch) and isinstance(copy.head, Batch)):
        return 0
    ours, theirs = source.rest, bytearray(copy.rest)
    size, next_offset, limit = 0, source.offset, min(len(ours), len(theirs))
    while limit - size >= HEADER_SIZE and ours[size + MAGIC_AT] == MAGIC:
        base_offset, length, epoch, last_offset_delta = _EXTENT.unpack_from(ours, size)
        if base_offset >= source.end or not HEADER_SIZE <= length + LENGTH_END <= limit - size:
            break
        theirs[size + LENGTH_END : size + MAGIC_AT] = epoch
        size += length + LENGTH_END
        next_offset = max(next_offset, base_offset + last_offset_delta + 1)
    del theirs[size:]
    if not size or theirs != ours[:size]:
        return 0
    for cursor in (source, copy):
        cursor.go_past(size, next_offset)
    return size


def is_same(ours: Batch, theirs: Batch) -> bool:
    """Whether all is but the leader epoch; a copy of the bytes is compared ten times as fast as views are."""
    a, b = ours.data, theirs.data
    return (
        ours.header.crc == theirs.header.crc
        and a[:LENGTH_END] == b[:LENGTH_END]
        and bytes(a[MAGIC_AT:]) == bytes(b[MAGIC_AT:])
    )


def _span(served: Served | None) -> Offsets | None:
    """First and last offset of a batch; of what is none the place where it lies."""
    if isinstance(served, Batch):
        return served.header.base_offset, served.header.last_offset
    return (served.offset, served.offset) if isinstance(served, Unreadable) else None
