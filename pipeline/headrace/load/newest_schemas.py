"""Which schemas the newest records of a partition use, found from its end backwards.

A partition may end in what has no schema: a tombstone, a transaction's marker, a value that is no event or names a schema
that nobody knows. So ever longer spans before the end are read until one has a record whose schema is known, within
`LOOK_BACK_SIZE_MAX` and `UNKNOWN_MAX`. Must not know registries: the caller says which ids are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headrace.load.decode import NO_SCHEMA, schema_ids
from headrace.load.ranges import OffsetRange
from headrace.load.source import Fetcher, StandstillError, chunks
from headrace.load.task import distinct

LOOK_BACK_SIZE_MAX: Final = 64 * 1024 * 1024
"""Bytes of batches that are read of one partition."""
UNKNOWN_MAX: Final = 100
"""Unknown ids that are asked for of one partition."""
SPAN_GROWTH: Final = 8


def newest_schema_ids(client: Fetcher, whole: OffsetRange, is_known: Callable[[int], bool]) -> list[int]:
    """Return the known schema ids of the shortest span at the end that has one; none within the bounds gives none."""
    end, span, size, unknown = whole.next_offset, 1, 0, set[int]()
    while end > whole.first_offset and size < LOOK_BACK_SIZE_MAX and len(unknown) < UNKNOWN_MAX:
        first = max(whole.first_offset, end - span)
        ids, read = _ids_of(client, replace(whole, first_offset=first, next_offset=end, fence=None), size)
        known: list[int] = []
        for schema_id in ids:
            if schema_id in unknown or len(unknown) >= UNKNOWN_MAX:
                continue
            if is_known(schema_id):
                known.append(schema_id)
            else:
                unknown.add(schema_id)
        if known:
            return known
        end, span, size = first, span * SPAN_GROWTH, size + read
    return []


def _ids_of(client: Fetcher, span: OffsetRange, size: int) -> tuple[list[int], int]:
    """Return the schema ids in a span, the newest last read first, and how many bytes that took."""
    ids: dict[int, None] = {}
    read = 0
    try:
        for chunk in chunks(client, span):
            for records in chunk.records:
                ids |= dict.fromkeys(distinct(schema_ids(records)))
            read += chunk.size_bytes
            if size + read >= LOOK_BACK_SIZE_MAX:
                break
    except StandstillError:
        pass  # what lies before it is good, and whoever reads the span hears of it
    ids.pop(NO_SCHEMA, None)
    return list(reversed(ids)), read
