"""A batch in another codec than it came in, for topics with a compression.type of their own."""

from __future__ import annotations

from headrace.broker.wire.batches import PUBLISHED_SIZE_MAX, BatchHeader, records_of, replace_records
from headrace.broker.wire.compression import compress
from headrace.broker.wire.varint import Bytes


def recompressed(batch: Bytes, header: BatchHeader, codec: int) -> memoryview:
    """The batch with its records in another codec. Raises CorruptMessageError, MessageTooLargeError."""
    return replace_records(header, compress(codec, records_of(batch, 0, header, PUBLISHED_SIZE_MAX)), codec)
