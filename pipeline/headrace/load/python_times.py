"""Which rows have times that a DataFrame could not be collected with.

Owns the range: Spark holds times up to the year 294,247, but `collect()` makes Python's `datetime` of them, which ends at the
years 1 and 9999, and ends in an error. Pure.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.load.answers import milliseconds

DAY_US: Final = 86_400_000_000
FIRST_US: Final = -62_135_596_800_000_000 + DAY_US
LAST_US: Final = 253_402_300_799_999_999 - DAY_US
"""A day less at both ends, since `collect()` shows times in the zone of the session."""

Flags = npt.NDArray[np.bool_]


def odd_rows(rows: pa.Table) -> Flags:
    """Return for each row of a table's columns (their times are microseconds) whether it has one outside, at any depth."""
    found = np.zeros(len(rows), dtype=np.bool_)
    for column in rows.columns:
        found |= _odd(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
    return found


def reason(rows: pa.Table, index: int) -> str:
    """Say which time of an odd row is outside of the range."""
    told = (_told(name, rows.column(name).slice(index, 1).combine_chunks()) for name in rows.column_names)
    return next(part for part in told if part is not None)


def _odd(array: Any) -> Flags:
    kind = array.type
    if pa.types.is_timestamp(kind):
        return _outside(array, pa.int64(), FIRST_US, LAST_US)
    if pa.types.is_date32(kind):
        return _outside(array, pa.int32(), FIRST_US // DAY_US, LAST_US // DAY_US)
    if pa.types.is_struct(kind):
        found = np.zeros(len(array), dtype=np.bool_)
        for child in array.flatten():
            found |= _odd(child)
        return found
    if pa.types.is_map(kind):
        return _any(array, _odd(array.items))
    if pa.types.is_list(kind):
        return _any(array, _odd(array.values))
    return np.zeros(len(array), dtype=np.bool_)


def _outside(times: Any, integers: pa.DataType, first: int, last: int) -> Flags:
    values = times.cast(integers).fill_null(0).to_numpy(zero_copy_only=False)
    outside: Flags = (values < first) | (values > last)
    return outside


def _any(lists: Any, odd: Flags) -> Flags:
    """Return for each list whether any of its items is odd."""
    before = np.concatenate(([0], np.cumsum(odd)))
    offsets = lists.offsets.to_numpy()
    counts = before[offsets[1:]] - before[offsets[:-1]]
    found: Flags = (counts > 0) & lists.is_valid().to_numpy(zero_copy_only=False)
    return found


def _told(path: str, single: Any) -> str | None:
    """Return what is wrong with an array of one value, None where nothing is."""
    if not _odd(single)[0]:
        return None
    kind, outside = single.type, "outside of the years 1 to 9999 that Python has"
    if pa.types.is_struct(kind):
        names = (kind.field(index).name for index in range(kind.num_fields))
        told = (_told(f"{path}.{name}", part) for name, part in zip(names, single.flatten(), strict=True))
        return next(part for part in told if part is not None)
    if pa.types.is_timestamp(kind):
        return f"{path} is {milliseconds(single[0])} milliseconds since 1970, {outside}"
    if pa.types.is_date(kind):
        return f"{path} is {single[0].value} days since 1970, {outside}"
    return f"{path} has a time {outside}"
