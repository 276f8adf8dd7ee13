"""The headers of many batches at once, as columns: what costs a batch some tenths of a microsecond, where a tuple each costs two.

Pure. Whoever wants one header gets a tuple; whoever wants to know why bytes are no batches asks `wire.batches`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from headrace.broker.wire.batches import CRC_START, HEADER_SIZE, LENGTH_END, MAGIC, BatchHeader

_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_FORMATS: Final = (">i8", ">i4", ">i4", "i1", ">u4", ">i2", ">i4", ">i8", ">i8", ">i8", ">i2", ">i4", ">i4")
_LAYOUT: Final = np.dtype(list(zip(BatchHeader._fields, _FORMATS, strict=True)))
assert _LAYOUT.itemsize == HEADER_SIZE
_BYTES: Final = np.arange(HEADER_SIZE)


class HeaderTable(Sequence[BatchHeader]):
    """Headers in the order of offsets; `columns` has an array of each field."""

    def __init__(self, columns: Any) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns.base_offset)

    @overload
    def __getitem__(self, index: int) -> BatchHeader: ...

    @overload
    def __getitem__(self, index: slice) -> HeaderTable: ...

    def __getitem__(self, index: int | slice) -> BatchHeader | HeaderTable:
        if isinstance(index, slice):
            return HeaderTable(BatchHeader(*(column[index] for column in self.columns)))
        return BatchHeader(*(int(column[index]) for column in self.columns))


def table_of(headers: Sequence[BatchHeader]) -> HeaderTable:
    """The same headers as columns."""
    if isinstance(headers, HeaderTable):
        return headers
    rows = np.array(headers, dtype=np.int64).reshape(-1, len(BatchHeader._fields))
    return HeaderTable(BatchHeader(*rows.T))


def believed(records: memoryview, first: int, end: int, limit: int) -> HeaderTable | None:
    """The headers of whole batches from the one with the offset `first` on, of which each follows the one before, is what its
    checksum says, and lies below `end`; those that begin at `limit` or behind it are left out, but for the very first.

    None where there is none, or one is not so: another look has to say which, and why.
    """
    places = _places(records)
    if not places:
        return None
    rows = np.frombuffer(records, dtype=np.uint8)[np.array(places)[:, None] + _BYTES].view(_LAYOUT).ravel()
    columns = _before(limit, rows)
    is_sound = _is_in_order(columns, first, end) and _is_what_it_says(records, places, columns)
    return HeaderTable(columns) if is_sound else None


def told(headers: memoryview, first: int, end: int, limit: int) -> HeaderTable | None:
    """As `believed`, of headers that a broker gave without their records: nothing tells whether these are what they were."""
    if not len(headers) or len(headers) % HEADER_SIZE:
        return None
    columns = _before(limit, np.frombuffer(headers, dtype=_LAYOUT))
    return HeaderTable(columns) if _is_in_order(columns, first, end) else None


def _before(limit: int, rows: npt.NDArray[np.void]) -> Any:
    """The columns of the headers up to the first that begins at the limit or behind it, but of one at least."""
    beyond = np.flatnonzero(rows["base_offset"][1:] >= limit)
    count = int(beyond[0]) + 1 if len(beyond) else len(rows)
    fields: Any = (rows[name][:count].astype(np.int64) for name in BatchHeader._fields)
    return BatchHeader(*fields)


def _places(records: memoryview) -> list[int]:
    """Where whole batches begin, as their lengths say; empty where a length says nothing."""
    length_of, place, end = _LENGTH.unpack_from, 0, len(records)
    found = []
    while end - place >= HEADER_SIZE:
        size = length_of(records, place + _LENGTH_AT)[0] + LENGTH_END
        if size < HEADER_SIZE:
            return []
        if size > end - place:
            break
        found.append(place)
        place += size
    return found


def _is_in_order(columns: Any, first: int, end: int) -> bool:
    last: npt.NDArray[np.int64] = columns.base_offset + columns.last_offset_delta
    before = np.concatenate(([first - 1], last[:-1]))
    return bool(
        (columns.magic == MAGIC).all()
        and (columns.length >= HEADER_SIZE - LENGTH_END).all()
        and (columns.last_offset_delta >= 0).all()
        and (last > before).all()
        and last[-1] < end
    )


def _is_what_it_says(records: memoryview, places: list[int], columns: Any) -> bool:
    ends = (columns.length + LENGTH_END).tolist()
    return all(
        crc32c(records[place + CRC_START : place + size]) == crc
        for place, size, crc in zip(places[: len(ends)], ends, columns.crc.tolist(), strict=True)
    )
