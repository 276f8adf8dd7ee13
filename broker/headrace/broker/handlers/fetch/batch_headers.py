"""The headers of batches in the place of the batches: 61 bytes each, for who counts what a log has and unpacks none of it.

Owns the walk from one header to the next, which leaves alone what lies between. Apache Kafka has nothing like it; see
`wire.api.k01_fetch` for how it is asked for and told.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from headrace.broker.log.results import LogSlice
from headrace.broker.wire.batches import HEADER_SIZE, LENGTH_END, MAGIC

HEADERS_COUNT_MAX = 1000
"""Headers in an answer, whatever the client's limits are: the walk takes some microseconds each, in which others wait."""
HEADERS_SIZE_MAX = HEADERS_COUNT_MAX * HEADER_SIZE
WALKED_SIZE_MAX = 8 * 1024 * 1024
"""Bytes of the log that one walk goes through, or one batch: they may lie on the disk."""
_READ_SIZE = 1024
"""Read at once: the headers of small batches lie beside each other."""
_LENGTH = Struct(">i")
_LENGTH_AT, _MAGIC_AT = 8, 16


class BatchHeaders(NamedTuple):
    """Headers in memory, in the place of a slice of a log."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)


def batch_headers(found: LogSlice, size_max: int) -> tuple[BatchHeaders, LogSlice]:
    """The headers of the first whole batches in a slice, in `size_max` bytes or one header, and the slice of these batches.

    None, and an empty slice, where what comes first is no batch of format 2. Raises OSError.
    """
    file, place, end = found.file, found.position, found.position + found.size
    assert file is not None, "something was found"
    count = max(1, size_max // HEADER_SIZE)
    headers: list[bytes] = []
    content, begin = b"", place
    while len(headers) < count and end - place >= HEADER_SIZE:
        at = place - begin
        if at + HEADER_SIZE > len(content):
            content, begin, at = file.read_at(min(_READ_SIZE, end - place), place), place, 0
            if len(content) < HEADER_SIZE:
                break
        size = _LENGTH.unpack_from(content, at + _LENGTH_AT)[0] + LENGTH_END
        if size < HEADER_SIZE or size > end - place or content[at + _MAGIC_AT] != MAGIC:
            break
        headers.append(content[at : at + HEADER_SIZE])
        place += size
    return BatchHeaders(b"".join(headers)), found._replace(size=place - found.position)
