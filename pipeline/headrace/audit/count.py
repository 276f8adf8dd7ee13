"""A partition's new records become tallies: only the five fields of the envelope are read, vectorised.

Owns where these fields lie: behind the registry's frame of five bytes, at the beginning of the Avro binary, as `time`
(varint), `server`, `service`, `producer` (strings) and `sequence` (varint); the schema is not needed for that. A value
that has no such beginning is counted as foreign. Pure: no sockets, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.audit.windows import Int64s, Tally, tally
from headrace.load.columns import RecordColumns

FRAME_SIZE: Final = 5
NAME_SIZE_MAX: Final = 1024
VARINT_BYTES_MAX: Final = 10


class Envelopes(NamedTuple):
    """The events among some records: `names[producer[i]]` is the producer of the i-th; `record` is its record's index."""

    record: npt.NDArray[np.intp]
    time_ms: Int64s
    names: list[str]
    producer: npt.NDArray[np.intp]
    sequence: Int64s


def count(records: Sequence[RecordColumns], window_size_ms: int) -> tuple[list[Tally], int]:
    """Return the tallies of records and how many of them are no events."""
    tallies: list[Tally] = []
    foreign = 0
    for part in records:
        found = envelopes(part)
        foreign += len(part.offset) - len(found.record)
        tallies += tally(found.names, found.producer, found.time_ms, found.sequence, window_size_ms)
    return tallies, foreign


def envelopes(records: RecordColumns) -> Envelopes:
    """Read the envelopes of all records that have one."""
    # A value's fields are read past its end before they are checked, so the data is followed by zeros.
    raw = np.frombuffer(records.data + bytes(VARINT_BYTES_MAX), dtype=np.uint8)
    index = np.flatnonzero(records.value_size > FRAME_SIZE)
    start, end = records.value_start[index], (records.value_start + records.value_size)[index]
    is_good = raw[start] == 0
    time_ms, position = _varint(raw, start + FRAME_SIZE)
    for _ in ("server", "service"):
        _, position, fits = _string(raw, position, end)
        is_good &= fits
    producer_start, position, fits = _string(raw, position, end)
    producer_size = position - producer_start
    sequence, position = _varint(raw, position)
    is_good &= fits & (producer_size > 0) & (position <= end) & (sequence >= 0)
    names, producer = _names(raw, producer_start, producer_size, is_good)
    is_good &= producer >= 0
    kept = np.flatnonzero(is_good)
    return Envelopes(index[kept], time_ms[kept], names, producer[kept], sequence[kept])


def _varint(raw: npt.NDArray[np.uint8], position: Int64s) -> tuple[Int64s, Int64s]:
    """Read a zigzag varint at each position; return the values and the positions behind; a too long one is -1."""
    position = np.minimum(position, len(raw) - VARINT_BYTES_MAX)
    byte = raw[position]
    value = (byte & 0x7F).astype(np.uint64)
    after = position + 1
    more = np.flatnonzero(byte >= 0x80)
    for number in range(1, VARINT_BYTES_MAX):
        if not len(more):
            break
        byte = raw[position[more] + number]
        value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * number)
        after[more] += 1
        more = more[byte >= 0x80]
    decoded: Int64s = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
    decoded[more] = -1
    return decoded, after


def _string(
    raw: npt.NDArray[np.uint8], position: Int64s, end: Int64s
) -> tuple[Int64s, Int64s, npt.NDArray[np.bool_]]:
    """Return where each string begins and ends, and whether it lies within its value."""
    size, start = _varint(raw, position)
    after = start + size
    fits = (size >= 0) & (size <= NAME_SIZE_MAX) & (after <= end)
    return start, np.where(fits, after, start), fits


def _names(
    raw: npt.NDArray[np.uint8], start: Int64s, size: Int64s, is_good: npt.NDArray[np.bool_]
) -> tuple[list[str], npt.NDArray[np.intp]]:
    """Return the distinct producers and each record's index among them, -1 where it is no text.

    A batch is one producer's, so neighbours are almost always equal, and Python looks at the borders only.
    """
    names: dict[bytes, int] = {}
    producer = np.full(len(start), -1, dtype=np.intp)
    kept = np.flatnonzero(is_good)
    for length in np.unique(size[kept]).tolist():
        members = kept[size[kept] == length]
        text = raw[start[members][:, None] + np.arange(length)]
        borders = np.flatnonzero((text[1:] != text[:-1]).any(axis=1)) + 1
        for begin, end in zip([0, *borders.tolist()], [*borders.tolist(), len(members)], strict=True):
            name = text[begin].tobytes()
            if _is_text(name):
                producer[members[begin:end]] = names.setdefault(name, len(names))
    return [name.decode() for name in names], producer


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
