"""Whether the bytes of a segment's file are sound batches, and where sound ones go on behind bad bytes.

What recovery and a check of logs at rest have in common. Must not know: what becomes of bad bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import Protocol

from crc32c import crc32c

from headrace.broker.log.index import INT32_MAX
from headrace.broker.wire.batches import CRC_START, HEADER_SIZE, MAGIC, MAGIC_AT, BatchHeader, read_header

_CHUNK_SIZE = 1024 * 1024
_BASE_OFFSET = Struct(">q")


class Bytes(Protocol):
    """What is read of a file."""

    def read_at(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only where the file ends."""


class Batches(Protocol):
    """A segment as far as it has been checked: `next_offset` is the offset after the last sound batch."""

    @property
    def base_offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def log(self) -> Bytes: ...


def check_batch(
    segment: Batches, position: int, offset_min: int | None = None
) -> tuple[BatchHeader | None, str | None]:
    """The header of the batch at `position`, when it has a usable one, and what is wrong with the batch, if anything.

    `offset_min` is the smallest base offset it may have, the segment's end so far unless given.
    """
    if offset_min is None:
        offset_min = segment.next_offset
    left = segment.size - position
    if left < HEADER_SIZE:
        return None, f"{left} bytes are too few for a batch"
    header = read_header(segment.log.read_at(HEADER_SIZE, position))
    if header.magic != MAGIC or header.size < HEADER_SIZE:
        return None, "no batch of format 2 begins here"
    if header.size > left:
        return None, f"a batch of {header.size} bytes is cut after {left}"
    if header.base_offset < offset_min or header.last_offset_delta < 0:
        return None, f"the base offset {header.base_offset} does not follow {offset_min - 1}"
    if header.last_offset - segment.base_offset > INT32_MAX:
        return None, f"the offset {header.last_offset} is too far from the segment's base offset"
    if _crc(segment, position, header) != header.crc:
        return header, f"the checksum of the batch at offset {header.base_offset} is wrong"
    return header, None


def after_damage(segment: Batches, position: int, header: BatchHeader | None) -> int | None:
    """Where to go on behind the bad bytes at `position`; None where nothing sound follows.

    `header` is that of a batch that is whole but wrong, if they begin with one.
    """
    if header is None:
        header = _last_batch(segment, position)
    if header is not None:
        end = position + header.size
        if end == segment.size or check_batch(segment, end, header.base_offset)[1] is None:
            return end
    return _next_sound_batch(segment, position + 1)


def _last_batch(segment: Batches, position: int) -> BatchHeader | None:
    """The header at `position`, whatever its offsets and checksum are, when its batch ends with the file."""
    left = segment.size - position
    if left < HEADER_SIZE:
        return None
    header = read_header(segment.log.read_at(HEADER_SIZE, position))
    return header if header.magic == MAGIC and header.size == left else None


def _crc(segment: Batches, position: int, header: BatchHeader) -> int:
    crc = 0
    start, end = position + CRC_START, position + header.size
    while start < end:
        chunk = segment.log.read_at(min(_CHUNK_SIZE, end - start), start)
        crc = crc32c(chunk, crc)
        start += len(chunk)
    return crc


def _next_sound_batch(segment: Batches, position: int) -> int | None:
    """Position of the first batch from `position` on that is sound; found by the upper half of its offset."""
    upper_half = _BASE_OFFSET.pack(segment.next_offset)[:4]
    # One byte a match: what looks like a batch may begin right before one, and must not take its first bytes.
    pattern = re.compile(
        re.escape(upper_half[:1]) + b"(?=" + re.escape(upper_half[1:]) + rb".{12}\x02)", re.DOTALL
    )
    for start, chunk in _overlapping_chunks(segment, position):
        for match in pattern.finditer(chunk):
            if check_batch(segment, start + match.start())[1] is None:
                return start + match.start()
    return None


def _overlapping_chunks(segment: Batches, position: int) -> Iterator[tuple[int, bytes]]:
    while position < segment.size:
        chunk = segment.log.read_at(min(_CHUNK_SIZE, segment.size - position), position)
        yield position, chunk
        position += max(1, len(chunk) - MAGIC_AT)
