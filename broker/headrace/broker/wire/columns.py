"""A batch's records as columns: the loop of loads and audits, with no object per record but its value.

Owns nothing but speed: what it returns, and what it refuses, is what `batches.decode_records` returns and
refuses. The batch that this pipeline's producers write (offsets without gaps, no keys, no headers) is read in
one pass that compares each record's offset delta and null key with bytes known beforehand; any other batch,
and any damaged one, is left to `decode_records`.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.wire.batches import (
    RECORDS_SIZE_MAX,
    BatchHeader,
    check_record_count,
    decode_record_section,
    records_of,
)
from headrace.broker.wire.varint import Bytes, OverlongError, encode_varint, read_varint, read_varlong

_MARKS_MAX = 32 * 1024
_marks: list[bytes] = []


class Columns(NamedTuple):
    """One entry a record in each list. Control batches are not left out: ask the header's `is_control`."""

    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]


def read_columns(
    buffer: Bytes, position: int, header: BatchHeader, size_max: int = RECORDS_SIZE_MAX
) -> Columns:
    """Raises what `decode_records` raises: CorruptMessageError, MessageTooLargeError for a bomb."""
    data = bytes(records_of(buffer, position, header, size_max))
    check_record_count(header, len(data))
    timestamps: list[int] = []
    values: list[bytes | None] = []
    try:
        dense = _read_dense(data, _marks_for(header.record_count), header.base_timestamp, timestamps, values)
    except (IndexError, OverlongError):
        dense = False
    if not dense or len(values) != header.record_count:
        return _read_any(data, header)
    if header.timestamp_type:
        timestamps = [header.max_timestamp] * len(values)
    first = header.base_offset
    return Columns(list(range(first, first + len(values))), timestamps, [None] * len(values), values)


def _read_any(data: bytes, header: BatchHeader) -> Columns:
    records = decode_record_section(data, header)
    return Columns(
        [record.offset for record in records],
        [record.timestamp_ms for record in records],
        [record.key for record in records],
        [record.value for record in records],
    )


def _marks_for(count: int) -> list[bytes]:
    """For each record of a dense batch without keys: its offset delta and the null key's length."""
    for delta in range(len(_marks), min(count, _MARKS_MAX)):
        _marks.append(encode_varint(delta) + encode_varint(-1))
    return _marks if count == len(_marks) else _marks[:count]


def _read_dense(
    data: bytes, marks: list[bytes], base_timestamp: int, timestamps: list[int], values: list[bytes | None]
) -> bool:
    """Appends every record's time and value; False at the first record that is not of the dense kind.

    Lengths and times of one and two bytes are unfolded in place, since a call costs as much as the rest.
    """
    add_timestamp, add_value, starts_with = timestamps.append, values.append, data.startswith
    at = 0
    for mark in marks:
        length = data[at]
        if length < 0x80:
            at += 1
        elif (second := data[at + 1]) < 0x80:
            at += 2
            length = length & 0x7F | second << 7
        else:
            length, at = read_varint(data, at)
            length <<= 1
        end = at + (length >> 1)
        at += 1  # the attributes, which Kafka does not use
        delta = data[at]
        if delta < 0x80:
            at += 1
        elif (second := data[at + 1]) < 0x80:
            at += 2
            delta = delta & 0x7F | second << 7
        else:
            long_delta, at = read_varlong(data, at)
            delta = (long_delta << 1) ^ (long_delta >> 63)
        if not starts_with(mark, at):
            return False
        at += len(mark)
        first = data[at]
        if first < 0x80:
            at += 1
            size = first
        elif (second := data[at + 1]) < 0x80:
            at += 2
            size = first & 0x7F | second << 7
        else:
            size, at = read_varint(data, at)
            size <<= 1
        stop = at + (size >> 1)
        if (size | length) & 1 or size < 0 or data[stop] or stop + 1 != end:
            return False
        add_timestamp(base_timestamp + ((delta >> 1) ^ -(delta & 1)))
        add_value(data[at:stop])
        at = end
    return at == len(data)
