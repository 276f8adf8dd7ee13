"""Keys and headers of records as Arrow columns, for all records at once.

Owns the reading of a record's headers, which `columns` leaves alone: they lie between the value and the record's end.
Invariants: records without headers cost a look at one byte each; a record whose headers do not fill the place for them
exactly is named, alone, and costs no other. Must not know schemas, tables or sockets.
Format: a count, and for each header the sizes and bytes of name and value, all numbers zigzag varints (KIP-82).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.load.columns import Int64s, RecordColumns, UnreadableBatchError, varints

HEADERS_MAX: Final = 10_000
"""Bound of one record's headers: each takes a step of its own."""
HEADERS_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
"""In the record's order; a name may be there several times, and a value may be null."""
BAD_HEADERS: Final = f"the record's headers do not parse, or are more than {HEADERS_MAX}"


@dataclass(slots=True, kw_only=True)
class Headers:
    """The headers of some records: `lists` has one entry a record, null where it has none; None where none has any."""

    count: int
    lists: pa.Array | None = None
    bad: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The records whose headers do not parse; their entry is null."""

    def of(self, chosen: npt.NDArray[np.int64]) -> pa.Array:
        """Return the chosen records' headers."""
        if self.lists is None:
            return pa.nulls(len(chosen), HEADERS_TYPE)
        return self.lists if len(chosen) == self.count else self.lists.take(pa.array(chosen))


def bytes_column(data: bytes, start: Int64s, size: Int64s) -> pa.Array:
    """Return pieces of `data` in ascending places as a column, null where the size is -1."""
    is_null = size < 0
    if is_null.all():
        return pa.nulls(len(size), pa.binary())
    bounds = np.empty(2 * len(size), dtype=np.int64)
    bounds[0::2] = start
    bounds[1::2] = start + np.maximum(size, 0)
    # Each other piece of this is what lies between two wanted ones; taking every second copies the wanted ones alone.
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
    wanted = pa.array(np.arange(0, len(bounds), 2), mask=is_null if is_null.any() else None)
    return pieces.take(wanted).cast(pa.binary())


def headers_of(records: RecordColumns, count: int) -> Headers:
    """Return the headers of the first `count` records."""
    raw = np.frombuffer(records.data, dtype=np.uint8)
    start, end = records.headers_start[:count], records.end[:count]
    some = np.flatnonzero((raw[start] != 0) | (start + 1 != end))
    if not some.size:
        return Headers(count=count)
    walk = _Walk(raw, end)
    walk.read(some, start[some])
    bad = np.array(sorted(walk.bad), dtype=np.int64)
    return Headers(count=count, lists=_lists(records.data, count, walk, bad), bad=bad)


class _Walk:
    """Where the headers of records lie: one array of each field a step, and the record that each belongs to."""

    def __init__(self, raw: npt.NDArray[np.uint8], end: Int64s) -> None:
        self._raw = raw
        self._end = end
        self.bad: set[int] = set()
        self.steps: list[tuple[Int64s, ...]] = []

    def read(self, records: npt.NDArray[np.int64], position: Int64s) -> None:
        """Read the headers of these records; when a number among them is none, of each half by itself."""
        done = len(self.steps)
        try:
            self._read_all(records, position)
        except UnreadableBatchError:
            del self.steps[done:]
            if len(records) == 1:
                self.bad.add(int(records[0]))
                return
            half = len(records) // 2
            self.read(records[:half], position[:half])
            self.read(records[half:], position[half:])

    def _read_all(self, records: npt.NDArray[np.int64], position: Int64s) -> None:
        end = self._end[records]
        left, position = varints(self._raw, position)
        is_good = (left >= 0) & (left <= HEADERS_MAX) & (position <= end)
        while True:
            is_done = is_good & (left == 0)
            self.bad.update(records[~is_good | (is_done & (position != end))].tolist())
            more = np.flatnonzero(is_good & ~is_done)
            if not more.size:
                return
            records, position, end, left = records[more], position[more], end[more], left[more] - 1
            name_size, name = varints(self._raw, position)
            after = name + name_size
            is_good = (name_size >= 0) & (after < end)
            value_size, value = varints(self._raw, np.where(is_good, after, position))
            position = value + np.maximum(value_size, 0)
            is_good &= (value_size >= -1) & (position <= end)
            self.steps.append((records, name, name_size, value, value_size))


def _lists(data: bytes, count: int, walk: _Walk, bad: npt.NDArray[np.int64]) -> pa.Array:
    fields: list[Any] = (
        [np.concatenate(column) for column in zip(*walk.steps, strict=True)]
        if walk.steps
        else [np.empty(0, dtype=np.int64)] * 5
    )
    kept = ~np.isin(fields[0], bad)
    order = np.argsort(fields[0][kept], kind="stable")
    record, name, name_size, value, value_size = (column[kept][order] for column in fields)
    sizes = np.bincount(record, minlength=count)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    names = _text(bytes_column(data, name, name_size))
    items = pa.StructArray.from_arrays(
        [names, bytes_column(data, value, value_size)], fields=list(HEADERS_TYPE.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=HEADERS_TYPE, mask=pa.array(sizes == 0))


def _text(names: pa.Array) -> pa.Array:
    """Return names as text; bytes that are no UTF-8 are replaced, as Kafka's clients do."""
    try:
        text = names.cast(pa.string())
        text.validate(full=True)
        return text
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
