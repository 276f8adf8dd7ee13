"""Records of whole batches as numpy columns: where each key and value lies, without an object a record.

Owns the parsing of record batches v2 at load speed: one call of a compiled Avro reader finds the length of every record,
since a batch's records are, byte for byte, an Avro array of strings; all fields are then read for all records at once.
Invariants: positions always lie inside `data`; a batch whose content does not add up
raises `UnreadableBatchError` for itself alone; decompression is bounded. Must not know schemas, tables or sockets.
Format: Kafka's record batch v2 (KIP-98); its varints are Avro's zigzag ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyruhvro

from headrace.broker.errors import KafkaError
from headrace.broker.wire.batches import HEADER_SIZE, RECORDS_SIZE_MAX, BatchHeader
from headrace.broker.wire.compression import decompress
from headrace.broker.wire.varint import encode_varint

VARINT_BYTES_MAX: Final = 10
PADDING: Final = bytes(64)
"""Lets vectorised reads run past the last record's end before its bounds are checked."""
RECORDS_AS_STRINGS: Final = json.dumps(
    {
        "type": "record",
        "name": "Batch",
        "fields": [{"name": "r", "type": {"type": "array", "items": "string"}}],
    }
)
ARRAY_END: Final = b"\0"

Int64s = npt.NDArray[np.int64]


class UnreadableBatchError(Exception):
    """A batch with a good checksum whose content does not parse: not what its header says, or not decompressible."""


class RecordColumns(NamedTuple):
    """Records in offset order; `data[start:start + size]` is a key or value, a size of -1 is null.

    What lies from `headers_start` to `end` are the headers, which are not looked into (see `headers`).
    """

    data: bytes
    offset: Int64s
    timestamp_ms: Int64s
    key_start: Int64s
    key_size: Int64s
    value_start: Int64s
    value_size: Int64s
    headers_start: Int64s
    end: Int64s


def columns(buffer: bytes | memoryview, batches: Sequence[tuple[int, BatchHeader]]) -> RecordColumns:
    """Parse the records of batches that lie at the given positions of `buffer`.

    Raises:
        UnreadableBatchError: any of the batches does not parse, or they are larger together than `RECORDS_SIZE_MAX`
            when decompressed; parse fewer at a time to find which.
    """
    data, spans = _record_bytes(buffer, batches)
    counts = [header.record_count for _, header in batches]
    for count, (start, end) in zip(counts, spans, strict=True):
        if not 0 <= count <= end - start:
            raise UnreadableBatchError(f"the header counts {count} records in {end - start} bytes")
    begins = _find_records(data, spans, counts)
    if begins is None:
        found: list[int] = []
        for count, (start, end) in zip(counts, spans, strict=True):
            _step_through_records(data, start, end, count, found)
        begins = np.array(found, dtype=np.int64)
    return _parse(data, begins, batches)


def _record_bytes(
    buffer: bytes | memoryview, batches: Sequence[tuple[int, BatchHeader]]
) -> tuple[bytes, list[tuple[int, int]]]:
    """Return all record bytes in one object, and where in it each batch's records are."""
    if not any(header.codec for _, header in batches):
        spans = [(position + HEADER_SIZE, position + header.size) for position, header in batches]
        return b"".join((buffer, PADDING)), spans
    parts: list[bytes | memoryview] = []
    spans = []
    end = 0
    for position, header in batches:
        part = _decompressed(memoryview(buffer)[position + HEADER_SIZE : position + header.size], header)
        parts.append(part)
        spans.append((end, end + len(part)))
        end += len(part)
        if end > RECORDS_SIZE_MAX:
            raise UnreadableBatchError(f"the batches have more than {RECORDS_SIZE_MAX} bytes of records")
    parts.append(PADDING)
    return b"".join(parts), spans


def _decompressed(packed: memoryview, header: BatchHeader) -> memoryview:
    if not header.codec:
        return packed
    try:
        return memoryview(decompress(header.codec, packed, RECORDS_SIZE_MAX))
    except (KafkaError, ValueError) as error:
        raise UnreadableBatchError(f"the batch does not decompress: {error}") from error


def _find_records(data: bytes, spans: Sequence[tuple[int, int]], counts: Sequence[int]) -> Int64s | None:
    """Return where each record begins (at its length); None unless all lengths, in their shortest form, add up."""
    if not sum(counts):
        return None
    arrays = [
        b"".join((encode_varint(count), data[start:end], ARRAY_END))
        for count, (start, end) in zip(counts, spans, strict=True)
    ]
    try:
        found = pyruhvro.deserialize_array(arrays, RECORDS_AS_STRINGS).column(0)
    except ValueError:
        return None
    ends = np.frombuffer(found.values.buffers()[1], dtype=np.int32)[: len(found.values) + 1]
    size = np.diff(ends).astype(np.int64)
    if not np.array_equal(np.diff(np.asarray(found.offsets)), counts):
        return None
    # Lengths are zigzag varints, so each of their bytes holds seven bits of twice the length.
    length = size + 1 + sum((size >= 1 << bits).astype(np.int64) for bits in (6, 13, 20, 27))
    after = np.concatenate(([0], np.cumsum(length)))
    first = np.concatenate(([0], np.cumsum(counts)))
    start, end = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    if not np.array_equal(np.diff(after[first]), end - start):
        return None
    begins: Int64s = after[:-1] + np.repeat(start - after[first[:-1]], counts)
    return begins


def _step_through_records(data: bytes, position: int, end: int, count: int, begins: list[int]) -> None:
    """Append where each record begins, one by one; together they must fill the span exactly."""
    append = begins.append
    found = len(begins)
    while position < end:
        append(position)
        size = data[position]
        if size < 0x80:
            position += 1 + (size >> 1)
        elif (high := data[position + 1]) < 0x80:
            position += 2 + (high << 6 | (size & 0x7F) >> 1)
        else:
            size, body = _long_varint(data, position)
            position = body + (size >> 1)
    if position != end or len(begins) - found != count:
        raise UnreadableBatchError(
            f"the batch holds {len(begins) - found} records, its header counts {count}"
        )


def _long_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[position : position + VARINT_BYTES_MAX]:
        value |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if byte < 0x80:
            return value, position
    raise UnreadableBatchError("a record's length is not a number")


def _parse(data: bytes, begins: Int64s, batches: Sequence[tuple[int, BatchHeader]]) -> RecordColumns:
    raw = np.frombuffer(data, dtype=np.uint8)
    counts = np.array([header.record_count for _, header in batches], dtype=np.int64)
    size, body = varints(raw, begins)
    end = body + size
    timestamp_delta, position = varints(raw, body + 1)
    offset_delta, position = varints(raw, position)
    key_size, key_start = varints(raw, position)
    value_size, value_start = varints(raw, key_start + np.maximum(key_size, 0))
    value_end = value_start + np.maximum(value_size, 0)
    if np.any(size < 0) or np.any(key_size < -1) or np.any(value_size < -1) or np.any(value_end >= end):
        raise UnreadableBatchError("a record's fields do not fit in its length")
    base = np.repeat(np.array([header.base_offset for _, header in batches], dtype=np.int64), counts)
    last = np.repeat(np.array([header.last_offset for _, header in batches], dtype=np.int64), counts)
    offset = base + offset_delta
    if np.any(offset_delta < 0) or np.any(offset > last) or np.any(offset[1:] <= offset[:-1]):
        raise UnreadableBatchError("the records' offsets do not ascend within their batch")
    return RecordColumns(
        data,
        offset,
        _timestamps(batches, counts, timestamp_delta),
        key_start,
        key_size,
        value_start,
        value_size,
        value_end,
        end,
    )


def _timestamps(batches: Sequence[tuple[int, BatchHeader]], counts: Int64s, delta: Int64s) -> Int64s:
    """Return each record's own time, or the batch's append time for `message.timestamp.type=LogAppendTime`."""
    appended = np.array([bool(header.attributes & 8) for _, header in batches])
    base = np.array([header.base_timestamp for _, header in batches], dtype=np.int64)
    if not appended.any():
        return np.repeat(base, counts) + delta
    latest = np.array([header.max_timestamp for _, header in batches], dtype=np.int64)
    return np.where(np.repeat(appended, counts), np.repeat(latest, counts), np.repeat(base, counts) + delta)


def varints(raw: npt.NDArray[np.uint8], position: Int64s) -> tuple[Int64s, Int64s]:
    """Read one zigzag varint at each position; return the values and the positions behind them."""
    if position.size and (position.min() < 0 or position.max() > len(raw) - VARINT_BYTES_MAX):
        raise UnreadableBatchError("a record's fields run past its batch")
    byte = raw[position]
    value: Int64s = (byte & 0x7F).astype(np.int64)
    after = position + 1
    more: Any = np.flatnonzero(byte >= 0x80)
    shift = 7
    while more.size:
        if shift >= 7 * VARINT_BYTES_MAX:
            raise UnreadableBatchError("a varint has more than 10 bytes")
        byte = raw[after[more]]
        value[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    unsigned = value.view(np.uint64)
    decoded: Int64s = (unsigned >> np.uint64(1)).view(np.int64) ^ -(value & 1)
    return decoded, after
