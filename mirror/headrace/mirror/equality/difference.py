"""Where two batches that should be one begin to differ, and what either side has there, in words. Pure.

Says nothing of batches whose bytes are the same. A batch is unpacked up to `PUBLISHED_SIZE_MAX` here, only to name the
message; what cannot be unpacked differs at its first offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import NamedTuple

from crc32c import crc32c

from headrace.broker.errors import KafkaError
from headrace.broker.wire.batches import (
    PUBLISHED_SIZE_MAX,
    BatchHeader,
    Record,
    check_crc,
    decode_records,
)

EXEMPT = "leader_epoch"
"""Of a header: it belongs to whoever leads the partition."""


class Batch(NamedTuple):
    """A whole batch as a side served it."""

    header: BatchHeader
    data: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """What a side served at an offset is no batch."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """A side has no batch before `next_offset`."""

    next_offset: int


Served = Batch | Unreadable | Nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first offset at which the sides differ, and what lies there at the source and in the copy."""

    offset: int
    source: str
    copy: str


def difference(source: Served, copy: Served) -> Difference:
    """Of what the sides serve at one place, which is not the same."""
    offset = min(_begin(source), _begin(copy))
    if not (isinstance(source, Batch) and isinstance(copy, Batch)) or _begin(source) != _begin(copy):
        return Difference(offset=offset, source=_words(source, offset), copy=_words(copy, offset))
    found = _differing_records(source, copy)
    if found is not None:
        return found
    fields = [
        name
        for name in BatchHeader._fields
        if name != EXEMPT and getattr(source.header, name) != getattr(copy.header, name)
    ]
    texts = (
        f"{_words(one, offset)} with {', '.join(f'{name} {getattr(one.header, name)}' for name in fields)}"
        if fields
        else _words(one, offset)
        for one in (source, copy)
    )
    return Difference(offset=offset, source=next(texts), copy=next(texts))


def record_difference(ours: Record | None, theirs: Record | None, note: tuple[str, str]) -> Difference:
    """Of two records, one of which may be missing; `note` says more of the source's and the copy's batch."""
    there = ours or theirs
    assert there is not None, "one of them is there"
    return Difference(
        offset=min(record.offset for record in (ours, theirs) if record is not None),
        source=_record_words(ours) + note[0],
        copy=_record_words(theirs) + note[1],
    )


def records_of_both(source: Batch, copy: Batch) -> tuple[list[Record], list[Record]]:
    """Raises KafkaErrors."""
    return _records(source), _records(copy)


def _records(batch: Batch) -> list[Record]:
    return decode_records(batch.data, 0, batch.header, PUBLISHED_SIZE_MAX)


def _differing_records(source: Batch, copy: Batch) -> Difference | None:
    try:
        both = records_of_both(source, copy)
    except KafkaError:
        return None
    for ours, theirs in zip_longest(*both):
        if ours != theirs:
            if ours is not None and theirs is not None and ours.offset != theirs.offset:
                ours, theirs = (ours, None) if ours.offset < theirs.offset else (None, theirs)
            return record_difference(ours, theirs, (checksum_note(source), checksum_note(copy)))
    return None


def checksum_note(batch: Batch) -> str:
    """What to say of a batch with a wrong checksum."""
    return "" if check_crc(batch.data, 0, batch.header) else " in a batch whose checksum is wrong"


def _begin(served: Served) -> int:
    if isinstance(served, Batch):
        return served.header.base_offset
    return served.offset if isinstance(served, Unreadable) else served.next_offset


def _words(served: Served, offset: int) -> str:
    if isinstance(served, Unreadable):
        return f"no batch ({served.reason})"
    if _begin(served) > offset:
        return f"nothing before offset {_begin(served)}"
    assert isinstance(served, Batch), "what has nothing begins behind the offset"
    header = served.header
    text = f"a batch of offsets {header.base_offset} to {header.last_offset}"
    return text if check_crc(served.data, 0, header) else f"{text} whose checksum is wrong"


def _record_words(record: Record | None) -> str:
    if record is None:
        return "no message"
    parts = [f"a message of {_time(record.timestamp_ms)}"]
    for name, value in (("key", record.key), ("value", record.value)):
        if value is not None:
            parts.append(f"{name} of {len(value)} bytes (crc32c {crc32c(value):08x})")
    if record.headers:
        parts.append(f"{len(record.headers)} headers")
    return ", ".join(parts)


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
