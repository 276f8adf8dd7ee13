"""What a leader demands of a batch before it is appended, in Apache Kafka's order and with its error codes.

Pure checks on the header and checksum; no record inside is looked at (a batch is opaque), so a single record's wrong
timestamp or offset goes unseen; but in a compacted topic every record needs a key, so there a batch is unpacked, and
a batch that is refused for its timestamps is, to name the records at fault. Must not know: files, the log's state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from struct import Struct

from crc32c import crc32c

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageTooLargeError,
    NotOneBatchError,
    RecordListTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from headrace.broker.log.files import Buffer
from headrace.broker.log.index import INT32_MAX
from headrace.broker.log.segment import Place
from headrace.broker.wire.batches import (
    ATTRIBUTES_AT,
    CODEC_BITS,
    CONTROL_BIT,
    CRC_START,
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    OLD_FORMATS,
    PUBLISHED_RECORDS_COUNT_MAX,
    PUBLISHED_SIZE_MAX,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    magic_of,
    read_header,
    set_crc,
)
from headrace.broker.wire.columns import Columns, read_columns
from headrace.broker.wire.compression import Codec
from headrace.broker.wire.special_values import NO_TIMESTAMP

# What a record has at least: five lengths and deltas of a byte each, its attributes and its count of headers.
RECORD_SIZE_MIN = 7
# How much a byte may unpack to, at the very best of each codec: no batch can state more records than that.
UNPACKING_RATIO_MAX: dict[int, int] = {
    Codec.NONE: 1,
    Codec.GZIP: 1032,
    Codec.SNAPPY: 64,
    Codec.LZ4: 256,
    Codec.ZSTD: 32768,
}

# Half the time of a call of the class.
_new_tuple = tuple.__new__
_CODEC_MAX = int(Codec.ZSTD)
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
KEYLESS = "A compacted topic takes no record without a key: give each record one."
# A message of format 0 with neither key nor value, its offset and size included.
MESSAGE_SIZE_MIN = 26


def header_at(records: Buffer, position: int) -> BatchHeader:
    """The header of the whole batch at `position`; checks format and declared length."""
    whole = _header_of_whole(records, position)
    if whole is not None:
        return whole
    left = len(records) - position
    if left <= MAGIC_AT:
        raise NotOneBatchError(f"{left} bytes at the end of the record data are too few for a batch.")
    magic = magic_of(records, position)
    if magic in OLD_FORMATS and position and _declared_size(records, position) >= MESSAGE_SIZE_MIN:
        raise NotOneBatchError(f"A batch is followed by messages of format {magic}.")
    if magic != MAGIC:
        raise _wrong_magic(magic)
    if left < HEADER_SIZE:
        raise NotOneBatchError(f"{left} bytes cannot hold the {HEADER_SIZE} bytes of a batch's header.")
    header = read_header(records, position)
    if header.size < HEADER_SIZE:
        raise CorruptMessageError(f"A batch declares {header.size} bytes, less than its header has.")
    if header.size > left:
        raise NotOneBatchError(f"A batch declares {header.size} bytes where {left} bytes are left.")
    return header


def _header_of_whole(records: Buffer, position: int) -> BatchHeader | None:
    """What almost every batch passes, before anything is asked twice: the header of one that is all there."""
    left = len(records) - position
    if left < HEADER_SIZE:
        return None
    header = read_header(records, position)
    return header if header.magic == MAGIC and HEADER_SIZE <= header.length + LENGTH_END <= left else None


def _wrong_magic(magic: int) -> Exception:
    if magic in OLD_FORMATS:
        return UnsupportedForMessageFormatError(
            f"Messages of format {magic} are not accepted: publish with a client that writes format 2."
        )
    return CorruptMessageError(f"Magic byte {magic} is no message format of Kafka.")


def is_ordinary(records: memoryview, header: BatchHeader, earliest_ms: int, latest_ms: int) -> bool:
    """Whether nothing is wrong with a published batch, the only one in `records`, as far as one look tells.

    What fails is asked about one thing after the other, by the checks below: they refuse nothing that passes here.
    """
    base_offset, length, _, _, crc, attributes, delta, base_ms, max_ms, producer_id, _, sequence, count = (
        header
    )
    # Of an ordinary batch the attributes are its codec, and perhaps that a producer with an id has a transaction.
    ratio = UNPACKING_RATIO_MAX.get(attributes & ~TRANSACTIONAL_BIT if producer_id >= 0 else attributes, 0)
    return (
        base_offset == 0
        and 0 < count == delta + 1
        and count * RECORD_SIZE_MIN <= (length + LENGTH_END - HEADER_SIZE) * ratio
        and (producer_id < 0 or sequence >= 0)
        and earliest_ms <= base_ms
        and max_ms <= latest_ms
        and crc32c(records[CRC_START:]) == crc
    )


def check_integrity(records: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptMessageError unless the checksum is right."""
    if not check_crc(records, position, header):
        raise CorruptMessageError(f"The checksum of a batch of {header.size} bytes is wrong: send it again.")


def check_sizes(size: int, batch_size: int, config: LogConfig) -> None:
    """Raise when a batch exceeds max.message.bytes, or the whole append segment.bytes."""
    if batch_size > config.max_message_bytes:
        raise MessageTooLargeError(
            f"A batch of {batch_size} bytes is larger than max.message.bytes={config.max_message_bytes}."
        )
    if size > config.segment_bytes:
        raise RecordListTooLargeError(
            f"An append of {size} bytes is larger than segment.bytes={config.segment_bytes}."
        )


def check_client_batch(header: BatchHeader) -> None:
    """Raise unless the header is one that a client may send: no control batch, a known codec."""
    base_offset, length, _, _, _, attributes, delta, _, _, producer_id, _, base_sequence, count = header
    if base_offset != 0:
        raise InvalidRecordError(f"The base offset of a published batch is {base_offset} instead of 0.")
    if delta < 0 or count <= 0:
        raise InvalidRecordError(f"A batch states {count} records and a last offset delta of {delta}.")
    if count != delta + 1:
        raise InvalidRecordError(f"A batch states {count} records, but its offsets span {delta + 1}.")
    if attributes & CONTROL_BIT:
        raise InvalidRecordError("Clients are not allowed to write control records.")
    codec, size = attributes & CODEC_BITS, length + LENGTH_END
    if codec > _CODEC_MAX:
        raise UnsupportedCompressionTypeError(
            f"Compression codec {codec} is not known: use 0 to 4 (none, gzip, snappy, lz4, zstd)."
        )
    if count * RECORD_SIZE_MIN > (size - HEADER_SIZE) * UNPACKING_RATIO_MAX[codec]:
        raise InvalidRecordError(f"A batch of {size} bytes states {count} records, more than can be in it.")
    if producer_id >= 0 and base_sequence < 0:
        raise InvalidRecordError(
            f"A batch of producer {producer_id} has the invalid sequence number {base_sequence}."
        )


def check_timestamps(records: Buffer, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Raise InvalidTimestampError outside message.timestamp.before.max.ms and .after.max.ms (KIP-937).

    With message.timestamp.type=LogAppendTime it does not matter what the producer's clock said.
    """
    if header.attributes & TIMESTAMP_TYPE_BIT:
        reason = "A producer must not set the timestamp type LogAppendTime."
    elif config.message_timestamp_type == "LogAppendTime":
        return
    elif header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        reason = (
            f"Timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms="
            f"{config.message_timestamp_after_max_ms} ahead of the broker's time {now_ms}."
        )
    elif 0 <= header.base_timestamp < now_ms - config.message_timestamp_before_max_ms:
        reason = (
            f"Timestamp {header.base_timestamp} is more than message.timestamp.before.max.ms="
            f"{config.message_timestamp_before_max_ms} behind the broker's time {now_ms}."
        )
    else:
        return
    error: KafkaError = InvalidTimestampError(reason)
    # A batch that does not unpack is refused for its header alone.
    with suppress(KafkaError):
        columns = _columns(records, header)
        if "compact" in config.cleanup_policy and not any(key is not None for key in columns.keys):
            error = InvalidRecordError(KEYLESS)
        error.records_at_fault = _records_at_fault(columns, header, config, now_ms)
    raise error


def check_keys(records: Buffer, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Raise InvalidRecordError for a record without a key, which compaction could not keep. Unpacks the batch."""
    columns = _columns(records, header)
    if None in columns.keys:
        error = InvalidRecordError(KEYLESS)
        error.records_at_fault = _records_at_fault(columns, header, config, now_ms)
        raise error


def _columns(records: Buffer, header: BatchHeader) -> Columns:
    """The records of a published batch. Raises MessageTooLargeError for more than clients can be kept waiting for."""
    if header.record_count > PUBLISHED_RECORDS_COUNT_MAX:
        raise MessageTooLargeError(
            f"A batch of {header.record_count} records, which the broker must read one by one, is too large: "
            f"send at most {PUBLISHED_RECORDS_COUNT_MAX} at once."
        )
    return read_columns(records, 0, header, PUBLISHED_SIZE_MAX)


def _records_at_fault(
    columns: Columns, header: BatchHeader, config: LogConfig, now_ms: int
) -> tuple[int, ...]:
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    may_be_late = config.message_timestamp_type == "CreateTime"
    is_stamped = header.attributes & TIMESTAMP_TYPE_BIT != 0
    needs_key = "compact" in config.cleanup_policy
    return tuple(
        index
        for index, (key, time_ms) in enumerate(zip(columns.keys, columns.timestamps_ms, strict=True))
        if is_stamped
        or (needs_key and key is None)
        or (may_be_late and time_ms != NO_TIMESTAMP and not earliest_ms <= time_ms <= latest_ms)
    )


def whole_batches(records: Buffer) -> list[Place]:
    """Every batch with its position; a last one that is cut is left out."""
    placed: list[Place] = []
    position = 0
    while position < len(records):
        header = _header_of_whole(records, position) or _header_unless_cut(records, position)
        if header is None:
            break
        placed.append(_new_tuple(Place, (position, header)))
        position += header.length + LENGTH_END
    return placed


def _header_unless_cut(records: Buffer, position: int) -> BatchHeader | None:
    left = len(records) - position
    if left <= MAGIC_AT:
        return None
    size = _declared_size(records, position)
    if size < MESSAGE_SIZE_MIN:
        raise CorruptMessageError(f"A batch declares {size} bytes, fewer than the smallest message has.")
    if size > left and magic_of(records, position) in (*OLD_FORMATS, MAGIC):
        return None
    return header_at(records, position)


def _declared_size(records: Buffer, position: int) -> int:
    size: int = _LENGTH.unpack_from(records, position + LENGTH_AT)[0] + LENGTH_END
    return size


def placed_batches(records: Buffer, next_offset: int) -> list[Place]:
    """Whole batches that carry their offsets already, checked for integrity and for going on from `next_offset`."""
    placed = whole_batches(records)
    for position, header in placed:
        check_integrity(records, position, header)
        base_offset, delta = header.base_offset, header.last_offset_delta
        if base_offset < next_offset or delta < 0:
            raise InvalidRecordError(
                f"A batch has the offsets {base_offset} to {header.last_offset}, "
                f"but the log goes on at {next_offset}."
            )
        next_offset = base_offset + delta + 1
    return placed


def runs(placed: list[Place], segment_bytes: int) -> Iterator[list[Place]]:
    """Batches in as few groups as segment.bytes and 32-bit relative offsets allow, at least one a group."""
    if placed and _fit_together(placed[0], placed[-1], segment_bytes):
        yield placed
        return
    run: list[Place] = []
    for place in placed:
        if run and not _fit_together(run[0], place, segment_bytes):
            yield run
            run = []
        run.append(place)
    if run:
        yield run


def _fit_together(first: Place, last: Place, segment_bytes: int) -> bool:
    return (
        last.position + last.header.size - first.position <= segment_bytes
        and last.header.last_offset - first.header.base_offset <= INT32_MAX
    )


def stamp_append_time(records: memoryview, position: int, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Make `now_ms` the time of all records (LogAppendTime), checksum included; returns the changed header."""
    attributes = header.attributes | TIMESTAMP_TYPE_BIT
    _ATTRIBUTES.pack_into(records, position + ATTRIBUTES_AT, attributes)
    _TIMESTAMP.pack_into(records, position + MAX_TIMESTAMP_AT, now_ms)
    set_crc(records, position)
    return header._replace(attributes=attributes, max_timestamp=now_ms)
