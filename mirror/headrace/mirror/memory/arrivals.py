"""When messages arrived: the records of the topic `headrace.arrivals`, and which of them are missing after a crash.

One record an append round of a partition. Key: `<target topic>-<partition>` in UTF-8. Value: 25 bytes, big endian:
int64 first offset, int64 last offset, int64 append time (milliseconds since 1970), int8 flags (bit 0: the time is
estimated). A record whose last offset lies below its first says nothing but "up to here all is recorded": each broker
repeats that for all of its partitions every `SUMMARY_EVERY` records, and every ten minutes, so that who takes a copy over
needs to read only the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

SUMMARY_EVERY = 4096
ESTIMATED = 0x01
_VALUE = Struct(">qqqb")


class Arrival(NamedTuple):
    """Offsets of a partition that were appended at one time."""

    first_offset: int
    last_offset: int
    append_ms: int
    is_estimated: bool = False


def encode(arrival: Arrival) -> bytes:
    first_offset, last_offset, append_ms, is_estimated = arrival
    return _VALUE.pack(first_offset, last_offset, append_ms, ESTIMATED if is_estimated else 0)


def decode(value: bytes) -> Arrival:
    """Raises ValueError for what is no arrival."""
    try:
        first_offset, last_offset, append_ms, flags = _VALUE.unpack(value)
    except StructError:
        raise ValueError(f"no arrival: {value[:64]!r}") from None
    return Arrival(first_offset, last_offset, append_ms, bool(flags & ESTIMATED))


def missing(
    recorded_end: int | None, log_start_offset: int, log_end_offset: int, estimate_ms: int
) -> Arrival | None:
    """What a crash between an append and its record left out: from the recorded end to the log's, as an estimate."""
    first_offset = (
        log_start_offset if recorded_end is None else min(max(recorded_end, log_start_offset), log_end_offset)
    )
    if first_offset >= log_end_offset:
        return None
    return Arrival(first_offset, log_end_offset - 1, estimate_ms, is_estimated=True)


def recorded_ends(found: Iterable[tuple[bytes, bytes]]) -> dict[bytes, int]:
    """Key → the offset up to which arrivals are recorded, from records in their order; broken ones are passed over."""
    ends: dict[bytes, int] = {}
    for key, value in found:
        try:
            ends[key] = decode(value).last_offset + 1
        except ValueError:
            continue
    return ends
