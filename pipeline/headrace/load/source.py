"""A range of offsets becomes checked, parsed records, chunk by chunk.

Owns what a fetched batch must satisfy before it is believed: whole, checksum right, inside the log. Invariants: chunks
cover the range from its first offset without gap or overlap, up to `next_offset` of the last chunk; a batch that is
not what its checksum says ends the range with a finding, and what lies before it stays usable; aborted transactions
and control batches have no records. Must not know schemas or tables.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from headrace.broker.errors import (
    CorruptMessageError,
    OffsetOutOfRangeError,
    UnsupportedForMessageFormatError,
)
from headrace.broker.wire.batches import BatchHeader, check_crc, decode_records, iter_batches
from headrace.load.columns import RecordColumns, UnreadableBatchError, columns
from headrace.load.ranges import Finding, FindingKind, OffsetRange, TopicPartition
from headrace.load.wire_client import Fetched

FETCH_SIZE: Final = 4 * 1024 * 1024
FETCH_SIZE_MAX: Final = 128 * 1024 * 1024
EMPTY_FETCHES_MAX: Final = 3
EMPTY_FETCH_WAIT_MS: Final = 300
ABORT_MARKER: Final = 0

PlacedBatch = tuple[int, BatchHeader]


class Fetcher(Protocol):
    """What is needed of `wire_client.Client`."""

    def fetch(
        self, partition: TopicPartition, offset: int, *, size_max: int = ..., wait_ms: int = ...
    ) -> Fetched: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableBatch:
    """A batch with a good checksum that does not parse: the producer sent it so."""

    first_offset: int
    last_offset: int
    timestamp_ms: int
    reason: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What one fetch brought: `records` in offset order, complete up to `next_offset`."""

    records: tuple[RecordColumns, ...]
    unreadable: tuple[UnreadableBatch, ...]
    next_offset: int
    size_bytes: int


class StandstillError(Exception):
    """The range cannot go on at `finding.offset`; chunks yielded before stay good."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.detail)
        self.finding = finding


def chunks(client: Fetcher, wanted: OffsetRange) -> Iterator[Chunk]:
    """Yield the records of a range; may end early when the broker has nothing more to give now.

    Raises:
        StandstillError: rot, a batch outside the log, a message format that is not read here, or deleted offsets.
    """
    offset, size_max, empty = wanted.first_offset, FETCH_SIZE, 0
    while offset < wanted.next_offset and empty < EMPTY_FETCHES_MAX:
        wait_ms = EMPTY_FETCH_WAIT_MS if empty else 0
        fetched = _fetch(client, wanted, offset, size_max, wait_ms)
        if not len(fetched.records):
            empty += 1
            continue
        believed, failure = _believe(fetched, wanted, offset)
        if believed:
            empty = 0
            chunk = _chunk(fetched, believed, offset, wanted.next_offset)
            offset = chunk.next_offset
            yield chunk
        elif failure is None:
            if size_max >= FETCH_SIZE_MAX:
                raise _standstill("corruption", wanted, offset, f"the batch at offset {offset} has no end")
            size_max = min(size_max * 4, FETCH_SIZE_MAX)
        if failure is not None and offset < wanted.next_offset:
            raise failure


def _fetch(client: Fetcher, wanted: OffsetRange, offset: int, size_max: int, wait_ms: int) -> Fetched:
    try:
        return client.fetch(wanted.topic_partition, offset, size_max=size_max, wait_ms=wait_ms)
    except OffsetOutOfRangeError as error:
        raise _standstill("retention", wanted, offset, f"offset {offset} is no longer in the log") from error


def _believe(
    fetched: Fetched, wanted: OffsetRange, offset: int
) -> tuple[list[PlacedBatch], StandstillError | None]:
    """Return the leading batches that hold what they say, and why the next one does not."""
    believed: list[PlacedBatch] = []
    expected = offset
    try:
        for position, header in iter_batches(fetched.records):
            if header.base_offset >= wanted.next_offset:
                break
            failure = _disbelief(fetched, position, header, expected)
            if failure is not None:
                return believed, _standstill("corruption", wanted, expected, failure)
            believed.append((position, header))
            expected = header.next_offset
    except CorruptMessageError as error:
        return believed, _standstill("corruption", wanted, expected, f"at offset {expected}: {error}")
    except UnsupportedForMessageFormatError as error:
        return believed, _standstill("unsupported", wanted, expected, f"at offset {expected}: {error}")
    return believed, None


def _disbelief(fetched: Fetched, position: int, header: BatchHeader, expected: int) -> str | None:
    if not check_crc(fetched.records, position, header):
        return f"the batch at offset {header.base_offset} does not match its checksum"
    if header.last_offset < expected or header.last_offset_delta < 0:
        return f"the batch after offset {expected - 1} claims offsets {header.base_offset} to {header.last_offset}"
    if header.last_offset >= fetched.last_stable_offset:
        return f"the batch at offset {header.base_offset} claims offsets beyond the end of the log"
    return None


def _chunk(fetched: Fetched, believed: list[PlacedBatch], first: int, limit: int) -> Chunk:
    """Parse the batches together; when that fails, a first part of them, down to the one batch that does not parse.

    What is left out is fetched again as the next chunk, so a chunk's memory has the bound of `columns`.
    """
    visible = _committed(fetched, believed)
    next_offset = min(believed[-1][1].next_offset, limit)
    records: tuple[RecordColumns, ...] = ()
    unreadable: tuple[UnreadableBatch, ...] = ()
    try:
        if visible:
            records = (_between(columns(fetched.records, visible), first, next_offset),)
    except UnreadableBatchError as error:
        if len(visible) > 1:
            middle, _ = visible[len(visible) // 2]
            return _chunk(fetched, [batch for batch in believed if batch[0] < middle], first, limit)
        unreadable = (_unreadable(fetched.records, visible[0], first, next_offset, str(error)),)
    size = sum(header.size for _, header in believed)
    return Chunk(records=records, unreadable=unreadable, next_offset=next_offset, size_bytes=size)


def _unreadable(
    buffer: memoryview, batch: PlacedBatch, first: int, limit: int, reason: str
) -> UnreadableBatch:
    position, header = batch
    return UnreadableBatch(
        first_offset=max(first, header.base_offset),
        last_offset=min(limit - 1, header.last_offset),
        timestamp_ms=header.max_timestamp,
        reason=reason,
        content=bytes(buffer[position : position + header.size]),
    )


def _between(records: RecordColumns, first: int, limit: int) -> RecordColumns:
    """Cut records outside [first, limit): a batch is fetched whole even when the range begins or ends inside it."""
    offset = records.offset
    if not len(offset) or (offset[0] >= first and offset[-1] < limit):
        return records
    inside = slice(int(np.searchsorted(offset, first)), int(np.searchsorted(offset, limit)))
    return RecordColumns(records.data, *(column[inside] for column in records[1:]))


def _committed(fetched: Fetched, batches: list[PlacedBatch]) -> list[PlacedBatch]:
    """Leave out control batches and those of aborted transactions, as a read_committed consumer does (KIP-98)."""
    aborted = sorted(fetched.aborted, key=lambda entry: entry[1])
    ongoing: set[int] = set()
    visible: list[PlacedBatch] = []
    for position, header in batches:
        while aborted and aborted[0][1] <= header.last_offset:
            ongoing.add(aborted.pop(0)[0])
        if header.is_control:
            if _is_abort(fetched.records, position, header):
                ongoing.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in ongoing):
            visible.append((position, header))
    return visible


def _is_abort(buffer: memoryview, position: int, header: BatchHeader) -> bool:
    key = decode_records(buffer, position, header)[0].key
    return key is not None and len(key) >= 4 and struct.unpack(">hh", key[:4])[1] == ABORT_MARKER


def _standstill(kind: FindingKind, wanted: OffsetRange, offset: int, detail: str) -> StandstillError:
    return StandstillError(
        Finding(kind=kind, topic=wanted.topic, partition=wanted.partition, offset=offset, detail=detail)
    )
