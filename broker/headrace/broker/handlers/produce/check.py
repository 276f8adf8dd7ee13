"""What is refused, or made another, before a log looks at it."""

from __future__ import annotations

from headrace.broker.coordinators.topics import INTERNAL_TOPICS
from headrace.broker.errors import (
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    NotOneBatchError,
    TransactionalIdAuthorizationError,
    UnsupportedCompressionTypeError,
)
from headrace.broker.handlers.services import Metadata
from headrace.broker.legacy.conversion import from_old_format
from headrace.broker.wire.batches import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    OLD_FORMATS,
    TRANSACTIONAL_BIT,
    read_header,
)
from headrace.broker.wire.compression import Codec
from headrace.broker.wire.frames import RequestHeader

FORMAT_2_VERSION, ZSTD_VERSION = 3, 7
ADMIN_CLIENT_ID = "__admin_client"
# The byte of a batch's attributes that has its flags.
FLAGS_AT = ATTRIBUTES_AT + 1


def check(
    metadata: Metadata,
    header: RequestHeader,
    topic: str,
    index: int,
    records: memoryview | None,
    acks: int,
    *,
    in_transaction: bool,
) -> memoryview:
    """The records; raises a KafkaError when they are not for any log, whatever it says."""
    if acks not in (-1, 0, 1):
        raise InvalidRequiredAcksError(f"acks={acks}: give -1 (all), 0 or 1")
    if records is None or (not records and header.version >= FORMAT_2_VERSION):
        raise InvalidRecordError("the request has no record batch for this partition")
    if FORMAT_2_VERSION <= header.version < ZSTD_VERSION and _is_zstd(records):
        raise UnsupportedCompressionTypeError(
            "requests below version 7 must not hold zstd: use a newer client or another codec"
        )
    if not in_transaction and is_transactional(records):
        raise TransactionalIdAuthorizationError("a transactional batch needs the request's transactional id")
    if topic in INTERNAL_TOPICS:
        _check_internal(metadata, header.client_id, topic, index)
    return records


def _check_internal(metadata: Metadata, client_id: str | None, topic: str, index: int) -> None:
    """Raises InvalidTopicError for clients that are not, by their name, the broker's own tools, as in Kafka."""
    if client_id != ADMIN_CLIENT_ID and metadata.partition(topic, index) is not None:
        raise InvalidTopicError(f"{topic} is written by brokers only: commit offsets, or use another topic")


def as_format_2(version: int, records: memoryview) -> memoryview:
    """Message formats 0 and 1 as a batch of format 2, from the clients that know no better."""
    if len(records) <= MAGIC_AT or records[MAGIC_AT] not in OLD_FORMATS:
        return records
    if version >= FORMAT_2_VERSION:
        raise NotOneBatchError("requests of version 3 and later must hold batches of message format 2")
    return from_old_format(records)


def is_transactional(records: memoryview) -> bool:
    return _is_batch(records) and bool(records[FLAGS_AT] & TRANSACTIONAL_BIT)


def _is_batch(records: memoryview) -> bool:
    return len(records) >= HEADER_SIZE and records[MAGIC_AT] == MAGIC


def _is_zstd(records: memoryview) -> bool:
    if not _is_batch(records):
        return False
    header = read_header(records)
    return header.codec == Codec.ZSTD and header.size <= len(records)
