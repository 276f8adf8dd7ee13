"""Old message formats to format 2 and back, as Apache Kafka 3.9 does for clients older than 0.11.

It unpacks records, so each way has a bound on what they may become.
"""

from __future__ import annotations

from headrace.broker.errors import InvalidRecordError, MessageTooLargeError
from headrace.broker.legacy.message_sets import encode_messages, read_messages
from headrace.broker.wire.batches import (
    PUBLISHED_RECORDS_COUNT_MAX,
    PUBLISHED_SIZE_MAX,
    BatchHeader,
    Record,
    decode_records,
    encode_batch,
    iter_batches,
)
from headrace.broker.wire.varint import Bytes

DOWN_CONVERTED_SIZE_MAX = 4 * 1024 * 1024
# A message of an old format takes longer to read than a record does.
UP_CONVERTED_SIZE_MAX = 16 * 1024 * 1024


def from_old_format(messages: Bytes) -> memoryview:
    """One batch of format 2 with the messages of a set of format 0 or 1 and their codec; see `read_messages`."""
    if len(messages) > UP_CONVERTED_SIZE_MAX:
        raise MessageTooLargeError(
            f"a message set of {len(messages)} bytes is larger than the {UP_CONVERTED_SIZE_MAX} that are converted"
        )
    records, codec = read_messages(messages, size_max=UP_CONVERTED_SIZE_MAX)
    if not records:
        raise InvalidRecordError("the message set holds no whole message")
    return memoryview(encode_batch(records, codec=codec))


def to_old_format(batches: Bytes, magic: int, from_offset: int) -> bytes:
    """The records from `from_offset` on as messages of format `magic` (0 or 1), without headers and control records.

    As many bytes as came, or as the first batch needs, whose last message may be cut, as in Kafka, and at most
    DOWN_CONVERTED_SIZE_MAX unpacked. Of a compressed batch all records come. Raises UnsupportedCompressionTypeError when
    the first batch has a codec (zstd) that the old formats do not know, CorruptMessageError and MessageTooLargeError.
    """
    converted: list[bytes] = []
    left, size, size_max = DOWN_CONVERTED_SIZE_MAX, 0, len(batches)
    for position, header in iter_batches(batches):
        if left <= 0 or size > size_max or (converted and header.codec == 4):
            break
        if header.is_control:
            continue
        records = _records(batches, position, header)
        left -= sum(len(record.key or b"") + len(record.value or b"") for record in records)
        if not header.codec:
            records = [record for record in records if record.offset >= from_offset]
        if records:
            messages = encode_messages(
                records, magic=magic, codec=header.codec, timestamp_type=header.timestamp_type
            )
            converted.append(messages)
            size += len(messages)
            if len(converted) == 1:
                size_max = max(size_max, size)
    return b"".join(converted)[:size_max]


def _records(batches: Bytes, position: int, header: BatchHeader) -> list[Record]:
    if header.record_count > PUBLISHED_RECORDS_COUNT_MAX:
        raise MessageTooLargeError(f"a batch of {header.record_count} records is too large to be converted")
    return decode_records(batches, position, header, PUBLISHED_SIZE_MAX)
