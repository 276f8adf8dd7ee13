"""The bytes of one partition in an answer, but for its records."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.fetch.batch_headers import BatchHeaders
from headrace.broker.handlers.fetch.found import Found
from headrace.broker.handlers.fetch.read import FLEXIBLE_VERSION
from headrace.broker.log.transactions import AbortedTransaction
from headrace.broker.wire.api.k01_fetch import BATCH_HEADERS_TAG
from headrace.broker.wire.varint import encode_uvarint

LEADER_TAG_VERSION = 16
# Errors that come with null for records, as Kafka has it; the others come with none.
WITHOUT_RECORDS = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

_INT32 = Struct(">i")
_PARTITION_0 = Struct(">ihqi")
_PARTITION_4 = Struct(">ihqqii")
_PARTITION_5 = Struct(">ihqqqii")
_PARTITION_11 = Struct(">ihqqqiii")
_PARTITION_12 = Struct(">ihqqqBi")
_PARTITION_START = Struct(">ihqq")
_INT64 = Struct(">q")
_ABORTED = Struct(">qq")
_DIVERGING_EPOCH = Struct(">BBiqB")
_CURRENT_LEADER = Struct(">BBiiB")
_NO_TAGS = b"\0"
_IS_BATCH_HEADERS = b"\1" + encode_uvarint(BATCH_HEADERS_TAG) + b"\1\1"


def encode_nothing(version: int, item: Found) -> bytes:
    """A partition without records, whole: it may serve for more than one answer."""
    head = partition_head(version, item)
    return head + _NO_TAGS if version >= FLEXIBLE_VERSION else head


def partition_tags(version: int, item: Found) -> bytes:
    """The tagged fields of a partition: 0 diverging epoch, 1 current leader, or whether its records are headers alone."""
    if item.records is not None:
        return _IS_BATCH_HEADERS if isinstance(item.records, BatchHeaders) else _NO_TAGS
    tags = []
    if item.diverging_epoch is not None:
        tags.append(_DIVERGING_EPOCH.pack(0, _DIVERGING_EPOCH.size - 2, *item.diverging_epoch, 0))
    if item.current_leader is not None and version >= LEADER_TAG_VERSION:
        tags.append(_CURRENT_LEADER.pack(1, _CURRENT_LEADER.size - 2, *item.current_leader, 0))
    return bytes([len(tags)]) + b"".join(tags)


def partition_head(version: int, item: Found) -> bytes:
    """Everything of a partition before its records; aborted transactions are null or none, as Kafka has it."""
    (
        index,
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        records,
        aborted,
        _,
        _,
        _,
        preferred_read_replica,
        _,
    ) = item
    size = 0 if records is None else records.size
    if error_code in WITHOUT_RECORDS:
        size = -1
    if aborted:
        return _head_with_aborted(version, item, aborted, size)
    aborted_count = -1 if aborted is None else 0
    if version >= FLEXIBLE_VERSION:
        head = _PARTITION_12.pack(
            index,
            error_code,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            aborted_count + 1,
            preferred_read_replica,
        )
        return head + encode_uvarint(size + 1)
    if version == 11:
        return _PARTITION_11.pack(
            index,
            error_code,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            aborted_count,
            preferred_read_replica,
            size,
        )
    if version >= 5:
        return _PARTITION_5.pack(
            index, error_code, high_watermark, last_stable_offset, log_start_offset, aborted_count, size
        )
    if version == 4:
        return _PARTITION_4.pack(index, error_code, high_watermark, last_stable_offset, aborted_count, size)
    return _PARTITION_0.pack(index, error_code, high_watermark, size)


def _head_with_aborted(version: int, item: Found, aborted: Sequence[AbortedTransaction], size: int) -> bytes:
    """The same where transactions were aborted (versions 4 and later), each with its producer and first offset."""
    is_flexible = version >= FLEXIBLE_VERSION
    head = bytearray(
        _PARTITION_START.pack(
            item.partition_index, item.error_code, item.high_watermark, item.last_stable_offset
        )
    )
    if version >= 5:
        head += _INT64.pack(item.log_start_offset)
    head += encode_uvarint(len(aborted) + 1) if is_flexible else _INT32.pack(len(aborted))
    for transaction in aborted:
        head += _ABORTED.pack(transaction.producer_id, transaction.first_offset)
        if is_flexible:
            head += _NO_TAGS
    if version >= 11:
        head += _INT32.pack(item.preferred_read_replica)
    head += encode_uvarint(size + 1) if is_flexible else _INT32.pack(size)
    return bytes(head)
