"""Records of a fetch for clients that know only message formats 0 and 1: converted, in pieces that memory can hold."""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.legacy.conversion import to_old_format
from headrace.broker.log.results import LogSlice
from headrace.broker.wire.batches import HEADER_SIZE, iter_batches, read_header

_READ_SIZE_MAX = 1024 * 1024


class ConvertedRecords(NamedTuple):
    """Messages in memory, in the place of a slice of a log."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)


def down_converted(found: LogSlice, magic: int, offset: int) -> ConvertedRecords:
    """The records from `offset` on as messages of format `magic`.

    At most a megabyte of the log is read, or its first batch where that is larger. Control records alone are passed
    over, or the client would ask for them for ever. Raises UnsupportedCompressionTypeError for zstd.
    """
    position, end = found.position, found.position + found.size
    while found.file is not None and position < end:
        size = read_header(found.file.read_at(HEADER_SIZE, position)).size
        batches = found.file.read_at(min(end - position, max(size, _READ_SIZE_MAX)), position)
        converted = to_old_format(batches, magic, offset)
        whole = sum(header.size for _, header in iter_batches(batches))
        if converted or not whole:
            return ConvertedRecords(converted)
        position += whole
    return ConvertedRecords(b"")
