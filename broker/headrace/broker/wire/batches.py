"""Record batches of message format 2 as they lie in a segment and travel in Produce and Fetch.

Owns the 61-byte header, the checksum over everything behind it, and the records inside. A broker's hot path
reads headers only (`read_header`, `check_crc`, `set_base_offset_and_epoch`); records are decoded for loads,
audits, internal topics and clients. The base offset and the leader epoch lie outside the checksum, so the
leader writes them in place. Layout: https://kafka.apache.org/39/documentation/#recordbatch

Bad bytes raise CorruptMessageError; message formats 0 and 1 raise UnsupportedForMessageFormatError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from headrace.broker.errors import CorruptMessageError, UnsupportedForMessageFormatError
from headrace.broker.wire.compression import compress, decompress
from headrace.broker.wire.varint import Bytes, OverlongError, encode_varint, read_varint, read_varlong

HEADER_SIZE = 61
LENGTH_END = 12  # base offset and length: what `BatchHeader.length` does not count
CRC_START = 21  # the checksum covers everything from the attributes on
MAGIC = 2
# Message formats before this one, which were no batches.
OLD_FORMATS = (0, 1)
# Where fields lie in a header, in bytes.
LENGTH_AT, MAGIC_AT, ATTRIBUTES_AT, MAX_TIMESTAMP_AT = 8, 16, 21, 35
# The parts of a batch's attributes.
CODEC_BITS = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
RECORDS_SIZE_MAX = 128 * 1024 * 1024
# What a published batch may unpack to where the broker must look inside while clients wait: about a second's work.
PUBLISHED_SIZE_MAX = 32 * 1024 * 1024
PUBLISHED_RECORDS_COUNT_MAX = 1_000_000

_HEADER = Struct(">qiibIhiqqqhii")
_UNCOVERED, _COVERED = Struct(">qiibI"), Struct(">hiqqqhii")
"""The header up to its checksum, and what of it that covers."""
_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_LEADER_EPOCH_AT = 12
_LENGTH = Struct(">i")
_CRC = Struct(">I")
_CRC_AT = 17

_DELETE_HORIZON_BIT = 0x40
_new_tuple = tuple.__new__  # a third faster than BatchHeader._make, which counts the fields again
_RECORD_SIZE_MIN = 7  # length, attributes, two deltas, key length, value length, header count


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size(self) -> int:
        """Bytes of the whole batch, the header's first two fields included."""
        return self.length + LENGTH_END

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_BITS

    @property
    def timestamp_type(self) -> int:
        """0 for CreateTime, 1 for LogAppendTime (then every record's time is `max_timestamp`)."""
        return (self.attributes & TIMESTAMP_TYPE_BIT) >> 3

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When its tombstones may go; None before a cleaning has met them (KIP-534)."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON_BIT else None


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def magic_of(buffer: Bytes, position: int = 0) -> int:
    """The message format of the batch or message set at `position`: the byte lies at the same place in
    all.
    """
    try:
        return memoryview(buffer)[position + MAGIC_AT]
    except IndexError:
        raise CorruptMessageError("the record data ends before the magic byte") from None


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """The header as it stands: `magic`, `length` and `crc` are for the caller to check."""
    try:
        return _new_tuple(BatchHeader, _HEADER.unpack_from(buffer, position))
    except StructError:
        raise CorruptMessageError(
            f"{len(buffer) - position} bytes cannot hold the {HEADER_SIZE} bytes of a batch header"
        ) from None


def iter_batches(buffer: Bytes) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch; a last batch that is cut off ends the iteration silently."""
    position, end = 0, len(buffer)
    while end - position >= HEADER_SIZE:
        header = _new_tuple(BatchHeader, _HEADER.unpack_from(buffer, position))
        if header.magic != MAGIC:
            raise _wrong_magic(header.magic, position)
        size = header.length + LENGTH_END
        if size < HEADER_SIZE:
            raise CorruptMessageError(
                f"the batch at byte {position} claims {size} bytes, fewer than its header"
            )
        if size > end - position:
            return
        yield position, header
        position += size


def _wrong_magic(magic: int, position: int) -> Exception:
    if magic in (0, 1):
        return UnsupportedForMessageFormatError(
            f"the messages at byte {position} have format {magic}, older than the format 2 that is read here"
        )
    return CorruptMessageError(f"the batch at byte {position} has magic {magic}; Kafka defines 0, 1 and 2")


def check_crc(buffer: Bytes, position: int, header: BatchHeader) -> bool:
    """True when the bytes behind the CRC field have the CRC32C that the header states."""
    covered = memoryview(buffer)[position + CRC_START : position + LENGTH_END + header.length]
    return crc32c(covered) == header.crc


def set_base_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Writes the two fields that only the leader knows, in place; the checksum does not cover them."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    codec: int = 0,
    timestamp_type: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """One batch of at least one record; offsets are counted from `base_offset`, whatever the records say."""
    if not records:
        raise ValueError("a batch needs at least one record")
    base_timestamp, count = records[0].timestamp_ms, len(records)
    body = bytearray()
    for index, record in enumerate(records):
        _append_record(body, index, record, base_timestamp)
    packed = compress(codec, body) if codec else body
    attributes = (
        codec
        | timestamp_type << 3
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )
    covered = _COVERED.pack(
        attributes,
        count - 1,
        base_timestamp,
        base_timestamp if count == 1 else max([record.timestamp_ms for record in records]),
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    length = HEADER_SIZE - LENGTH_END + len(packed)
    crc = crc32c(packed, crc32c(covered))
    batch = bytearray(_UNCOVERED.pack(base_offset, length, leader_epoch, MAGIC, crc))
    batch += covered
    batch += packed
    return batch


def rewrite_batch(
    header: BatchHeader, records: Sequence[Record], *, delete_horizon_ms: int | None = None
) -> bytearray:
    """The batch of `header` with only these of its records, for compaction: all else is kept, above all its offsets
    and sequences. A batch without records has none of its codec and base timestamp either, as in Kafka.
    """
    base_timestamp = records[0].timestamp_ms if records else -1
    attributes = header.attributes & ~_DELETE_HORIZON_BIT
    if not records:
        attributes &= ~0x07
    elif delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
        attributes |= _DELETE_HORIZON_BIT
    body = bytearray()
    for record in records:
        _append_record(body, record.offset - header.base_offset, record, base_timestamp)
    packed = compress(attributes & 0x07, body) if attributes & 0x07 else body
    max_timestamp = header.max_timestamp
    if records and not header.timestamp_type:
        max_timestamp = max(record.timestamp_ms for record in records)
    batch = bytearray(HEADER_SIZE) + packed
    kept = header._replace(
        length=len(batch) - LENGTH_END,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(records),
    )
    _HEADER.pack_into(batch, 0, *kept)
    set_crc(batch, 0)
    return batch


def replace_records(header: BatchHeader, packed: bytes, codec: int) -> memoryview:
    """The batch of `header` with its record section, unchanged but for the codec, given as `packed`."""
    batch = bytearray(HEADER_SIZE) + packed
    attributes = header.attributes & ~0x07 | codec
    _HEADER.pack_into(batch, 0, *header._replace(length=len(batch) - LENGTH_END, attributes=attributes))
    set_crc(batch, 0)
    return memoryview(batch)


def set_crc(buffer: bytearray | memoryview, position: int) -> None:
    """Writes the checksum of the batch at `position`, after its attributes, times or records were changed."""
    (length,) = _LENGTH.unpack_from(buffer, position + LENGTH_AT)
    covered = memoryview(buffer)[position + CRC_START : position + LENGTH_END + length]
    _CRC.pack_into(buffer, position + _CRC_AT, crc32c(covered))


def _append_record(body: bytearray, index: int, record: Record, base_timestamp: int) -> None:
    _, timestamp_ms, key, value, headers = record
    parts = [b"\x00", encode_varint(timestamp_ms - base_timestamp), encode_varint(index)]
    _append_bytes(parts, key)
    _append_bytes(parts, value)
    parts.append(encode_varint(len(headers)))
    for name, header in headers:
        _append_bytes(parts, name.encode())
        _append_bytes(parts, header)
    encoded = b"".join(parts)
    body += encode_varint(len(encoded))
    body += encoded


def _append_bytes(parts: list[bytes], value: bytes | None) -> None:
    if value is None:
        parts.append(b"\x01")
    else:
        parts += (encode_varint(len(value)), value)


def records_of(
    buffer: Bytes, position: int, header: BatchHeader, size_max: int = RECORDS_SIZE_MAX
) -> memoryview:
    """The batch's record section, unpacked; `size_max` bounds what a compressed one may become."""
    if header.magic != MAGIC:
        raise _wrong_magic(header.magic, position)
    end = position + header.size
    if header.size < HEADER_SIZE or end > len(buffer):
        raise CorruptMessageError(
            f"the batch at byte {position} claims {header.size} bytes, which it does not have"
        )
    return decompress(header.codec, memoryview(buffer)[position + HEADER_SIZE : end], size_max)


def decode_records(
    buffer: Bytes, position: int, header: BatchHeader, size_max: int = RECORDS_SIZE_MAX
) -> list[Record]:
    """Every record of the batch, control records included; the checksum is for the caller to check.

    Raises CorruptMessageError unless exactly `record_count` records fill the batch, MessageTooLargeError
    when a compressed batch unpacks to more than `size_max` bytes.
    """
    return decode_record_section(bytes(records_of(buffer, position, header, size_max)), header)


def decode_record_section(data: bytes, header: BatchHeader) -> list[Record]:
    """The records of a section that `records_of` has unpacked; raises CorruptMessageError."""
    check_record_count(header, len(data))
    records: list[Record] = []
    offset = 0
    try:
        for _ in range(header.record_count):
            record, offset = _read_record(data, offset, header)
            records.append(record)
    except (IndexError, OverlongError) as error:
        raise CorruptMessageError(f"record {len(records)} of the batch cannot be read: {error}") from None
    if offset != len(data):
        raise CorruptMessageError(f"{len(data) - offset} bytes are left after the last record of the batch")
    return records


def times_of(data: bytes, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Offset and time of each record of an unpacked section, in order; keys, values and headers are passed over.

    Raises CorruptMessageError at the first record whose place is not in the section, and at the end for bytes left over.
    """
    check_record_count(header, len(data))
    end = 0
    try:
        for _ in range(header.record_count):
            length, at = read_varint(data, end)
            end = at + length
            delta_ms, at = read_varlong(data, at + 1)
            offset_delta, at = read_varint(data, at)
            if not at <= end <= len(data):
                raise CorruptMessageError(f"a record of {length} bytes does not fit its batch")
            time_ms = header.max_timestamp if header.timestamp_type else header.base_timestamp + delta_ms
            yield header.base_offset + offset_delta, time_ms
    except (IndexError, OverlongError) as error:
        raise CorruptMessageError(f"a record of the batch cannot be read: {error}") from None
    if end != len(data):
        raise CorruptMessageError(f"{len(data) - end} bytes are left after the last record of the batch")


def check_record_count(header: BatchHeader, size: int) -> None:
    """Raises CorruptMessageError for a count that `size` bytes of records cannot hold."""
    if not 0 <= header.record_count * _RECORD_SIZE_MIN <= size:
        raise CorruptMessageError(f"{header.record_count} records do not fit the {size} bytes of the batch")


def _read_record(data: bytes, offset: int, header: BatchHeader) -> tuple[Record, int]:
    length, offset = read_varint(data, offset)
    end = offset + length
    if length < 0 or end > len(data):
        raise CorruptMessageError(f"a record of {length} bytes does not fit its batch")
    timestamp_delta, offset = read_varlong(data, offset + 1)
    offset_delta, offset = read_varint(data, offset)
    key, offset = _read_bytes(data, offset, end)
    value, offset = _read_bytes(data, offset, end)
    headers, offset = _read_headers(data, offset, end)
    if offset != end:
        raise CorruptMessageError(f"a record of {length} bytes was read to {offset - end} bytes from its end")
    timestamp = header.max_timestamp if header.timestamp_type else header.base_timestamp + timestamp_delta
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def _read_bytes(data: bytes, offset: int, end: int) -> tuple[bytes | None, int]:
    size, offset = read_varint(data, offset)
    if size < 0:
        return None, offset
    stop = offset + size
    if stop > end:
        raise CorruptMessageError(f"a key or value of {size} bytes does not fit its record")
    return data[offset:stop], stop


def _read_headers(data: bytes, offset: int, end: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, offset = read_varint(data, offset)
    if not 0 <= count <= end - offset:
        raise CorruptMessageError(f"{count} record headers do not fit their record")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, offset = _read_bytes(data, offset, end)
        if name is None:
            raise CorruptMessageError("a record header has no name")
        value, offset = _read_bytes(data, offset, end)
        headers.append((name.decode("utf-8", "replace"), value))
    return headers, offset
