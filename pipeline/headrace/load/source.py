"""A range of offsets becomes checked, parsed records, or the checked headers of its batches, chunk by chunk.

Owns what a fetched batch must satisfy before it is believed: whole, checksum right, inside the log, and that log the one
that was read before. Invariants: chunks cover the range from its first offset without gap or overlap, up to
`next_offset` of the last chunk; what follows a fence is fetched by one request together with the batch that the fence
names, and again after every new connection and leader epoch, so that no chunk is of a log that was cut below it; a batch
that is not what its checksum says ends the range with a finding, and what lies before it stays usable; aborted
transactions and control batches have no records. Must not know schemas or tables.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

import numpy as np

from headrace.broker.errors import (
    CorruptMessageError,
    OffsetOutOfRangeError,
    UnsupportedForMessageFormatError,
)
from headrace.broker.wire.batches import BatchHeader, check_crc, decode_records, iter_batches
from headrace.broker.wire.partitions import TopicPartition
from headrace.load import header_table
from headrace.load.columns import RecordColumns, UnreadableBatchError, columns
from headrace.load.fences import EpochEnd, Fence, compare, fence_at, has_epoch_until
from headrace.load.log_client import Fetched, Origin
from headrace.load.ranges import FindingKind, LoadFinding, OffsetRange

FETCH_SIZE: Final = 4 * 1024 * 1024
FETCH_SIZE_MAX: Final = 128 * 1024 * 1024
EMPTY_FETCHES_MAX: Final = 3
EMPTY_FETCH_WAIT_MS: Final = 300
ABORT_MARKER: Final = 0

PlacedBatch = tuple[int, BatchHeader]


AnyChunk = TypeVar("AnyChunk", "Chunk", "HeaderChunk")
MakeChunk = Callable[[Fetched, list[PlacedBatch], int, int], AnyChunk]
"""Makes a chunk of batches that are believed, from an offset on, up to before a limit."""


class Fetcher(Protocol):
    """What is needed of `log_client.LogClient`."""

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        size_max: int = ...,
        wait_ms: int = ...,
        topic_id: str | None = ...,
        wants_headers: bool = ...,
    ) -> Fetched: ...

    def epoch_end(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd: ...


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
    headers: tuple[BatchHeader, ...] = ()
    """Of all batches that the chunk covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderChunk:
    """The batches of one fetch, none of them unpacked: in the order of offsets, each whole, complete up to `next_offset`."""

    headers: Sequence[BatchHeader]
    aborted: frozenset[int]
    """The base offsets of those whose transaction was aborted."""
    next_offset: int


class StandstillError(Exception):
    """The range cannot go on at `finding.offset`; chunks yielded before stay good."""

    def __init__(self, finding: LoadFinding) -> None:
        super().__init__(finding.detail)
        self.finding = finding


def chunks(client: Fetcher, wanted: OffsetRange) -> Iterator[Chunk]:
    """Yield the records of a range; may end early when the broker has nothing more to give now.

    Raises:
        StandstillError: another log, rot, a batch outside the log, a message format that is not read here, or deleted
            offsets.
    """
    return _read(client, wanted, _chunk)


def header_chunks(client: Fetcher, wanted: OffsetRange) -> Iterator[HeaderChunk]:
    """Yield the headers of all batches that begin in a range, like `chunks`; `next_offset` is the end of the last batch.

    The first batch may begin before the range. From brokers that can part headers from their records, headers alone are
    fetched, so that no checksum is checked, but where one is out of its place or a transaction was aborted.
    """
    return _read(client, wanted, _header_chunk, _headers_at_once, wants_headers=True)


def _read(
    client: Fetcher,
    wanted: OffsetRange,
    make: MakeChunk[AnyChunk],
    at_once: Callable[[Fetched, OffsetRange, int], AnyChunk | None] = lambda *_: None,
    *,
    wants_headers: bool = False,
) -> Iterator[AnyChunk]:
    """`at_once` makes a chunk of all batches together where nothing is wrong with any of them; None otherwise."""
    reader = _LogReader(client, wanted)
    offset, size_max, empty = wanted.first_offset, FETCH_SIZE, 0
    wants_whole = False
    while offset < wanted.next_offset and empty < EMPTY_FETCHES_MAX:
        wait_ms = EMPTY_FETCH_WAIT_MS if empty else 0
        fetched = reader.fetch(offset, size_max, wait_ms, wants_headers=wants_headers and not wants_whole)
        if not len(fetched.records):
            empty += 1
            continue
        quick = at_once(fetched, wanted, offset)
        wants_whole = fetched.is_headers and quick is None
        if wants_whole:
            continue
        believed, failure = ([], None) if quick is not None else _believe(fetched, wanted, offset)
        if quick is not None or believed:
            empty = 0
            chunk = quick or make(fetched, believed, offset, wanted.next_offset)
            offset = chunk.next_offset
            reader.fence = fence_at(chunk.headers, offset) or reader.fence
            yield chunk
        elif failure is None:
            if size_max >= FETCH_SIZE_MAX:
                raise _standstill("corruption", wanted, offset, f"the batch at offset {offset} has no end")
            size_max = min(size_max * 4, FETCH_SIZE_MAX)
        if failure is not None and offset < wanted.next_offset:
            raise failure


class _LogReader:
    """Fetches from one log: the one that has the batch of `fence`, as long as the same leader answers."""

    def __init__(self, client: Fetcher, wanted: OffsetRange) -> None:
        self._client = client
        self._wanted = wanted
        self._is_compared = wanted.fence is None
        self._origin: Origin | None = None
        self.fence = wanted.fence

    def fetch(self, offset: int, size_max: int, wait_ms: int, *, wants_headers: bool) -> Fetched:
        """Return batches from the one that holds `offset` on, or their headers alone.

        Raises:
            StandstillError: the log is another one, or begins behind the offset.
        """
        fetched = self._ask(offset, size_max, wait_ms, wants_headers) if self._is_compared else None
        if self.fence is not None and (fetched is None or fetched.origin != self._origin):
            fetched = self._compared(self.fence, offset, size_max, wait_ms)
        assert fetched is not None
        self._is_compared, self._origin = True, fetched.origin
        return fetched

    def _compared(self, fence: Fence, offset: int, size_max: int, wait_ms: int) -> Fetched:
        """Return what follows the fence's batch in the very answer that has it, or in another of the same origin."""
        for start in dict.fromkeys((fence.base_offset, min(fence.next_offset, offset) - 1)):
            fetched = self._has(start, size_max)
            found = None if fetched is None else next(iter_batches(fetched.records), None)
            if fetched is None or found is None:
                continue
            position, header = found
            comparison = compare(fence, header)
            if comparison == "other":
                raise self._other_log(
                    offset, fence, f"has offsets {header.base_offset} to {header.last_offset} there"
                )
            if comparison == "cleaned":
                break
            if fence.next_offset >= offset:
                behind = position + (header.size if fence.next_offset == offset else 0)
                return replace(fetched, records=fetched.records[behind:])
            following = self._ask(offset, size_max, wait_ms)
            if following.origin == fetched.origin:
                return following
        told = self._client.epoch_end(self._wanted.topic_partition, fence.leader_epoch)
        if not has_epoch_until(fence, offset, told):
            raise self._other_log(
                offset, fence, f"ends that leader's epoch {fence.leader_epoch} at {told.end_offset}"
            )
        return self._ask(offset, size_max, wait_ms)

    def _has(self, offset: int, size_max: int) -> Fetched | None:
        try:
            return self._client.fetch(
                self._wanted.topic_partition, offset, size_max=size_max, topic_id=self._wanted.topic_id
            )
        except (OffsetOutOfRangeError, CorruptMessageError):
            return None

    def _ask(self, offset: int, size_max: int, wait_ms: int, wants_headers: bool = False) -> Fetched:
        place, topic_id = self._wanted.topic_partition, self._wanted.topic_id
        try:
            return self._client.fetch(
                place,
                offset,
                size_max=size_max,
                wait_ms=wait_ms,
                topic_id=topic_id,
                wants_headers=wants_headers,
            )
        except OffsetOutOfRangeError as error:
            detail = f"offset {offset} is no longer in the log"
            raise _standstill("retention", self._wanted, offset, detail) from error
        except CorruptMessageError as error:
            detail = f"the broker itself finds that offset {offset} does not match its checksum"
            raise _standstill("corruption", self._wanted, offset, detail) from error

    def _other_log(self, offset: int, fence: Fence, instead: str) -> StandstillError:
        detail = (
            f"the log lost its end and grew again: what was read last, the batch of offsets {fence.base_offset} to "
            f"{fence.next_offset - 1}, is another one now (the log {instead})"
        )
        return _standstill("truncation", self._wanted, offset, detail)


def _believe(
    fetched: Fetched, wanted: OffsetRange, offset: int
) -> tuple[list[PlacedBatch], StandstillError | None]:
    """Return the leading batches that hold what they say, and why the next one does not.

    One that begins behind the range is among them only when it comes first: it says that the rest of the range is empty.
    """
    believed: list[PlacedBatch] = []
    expected = offset
    records, end = fetched.records, fetched.last_stable_offset
    try:
        for position, header in iter_batches(records):
            if believed and header.base_offset >= wanted.next_offset:
                break
            last, delta = header.base_offset + header.last_offset_delta, header.last_offset_delta
            is_placed = expected <= last < end
            if delta < 0 or not is_placed or not check_crc(records, position, header):
                failure = _disbelief(fetched, position, header, expected)
                following = header.next_offset if is_placed else None
                return believed, _standstill("corruption", wanted, expected, failure, following)
            believed.append((position, header))
            expected = last + 1
    except CorruptMessageError as error:
        return believed, _standstill("corruption", wanted, expected, f"at offset {expected}: {error}")
    except UnsupportedForMessageFormatError as error:
        return believed, _standstill("unsupported", wanted, expected, f"at offset {expected}: {error}")
    return believed, None


def _disbelief(fetched: Fetched, position: int, header: BatchHeader, expected: int) -> str:
    """Return what is wrong with a batch that is not believed."""
    if not check_crc(fetched.records, position, header):
        return f"the batch at offset {header.base_offset} does not match its checksum"
    if header.last_offset < expected or header.last_offset_delta < 0:
        return f"the batch after offset {expected - 1} claims offsets {header.base_offset} to {header.last_offset}"
    return f"the batch at offset {header.base_offset} claims offsets beyond the end of the log"


def _chunk(fetched: Fetched, believed: list[PlacedBatch], first: int, limit: int) -> Chunk:
    """Parse the batches together; when that fails, a first part of them, down to the one batch that does not parse.

    What is left out is fetched again as the next chunk, so a chunk's memory has the bound of `columns`.
    """
    visible = [batch for batch in _committed(fetched, believed) if batch[1].base_offset < limit]
    next_offset = min(believed[-1][1].next_offset, limit)
    records: tuple[RecordColumns, ...] = ()
    unreadable: tuple[UnreadableBatch, ...] = ()
    try:
        if visible:
            records = (between(columns(fetched.records, visible), first, next_offset),)
    except UnreadableBatchError as error:
        if len(visible) > 1:
            middle, _ = visible[len(visible) // 2]
            return _chunk(fetched, [batch for batch in believed if batch[0] < middle], first, limit)
        unreadable = (_unreadable(fetched.records, visible[0], first, next_offset, str(error)),)
    size = sum(header.size for _, header in believed)
    return Chunk(
        records=records,
        unreadable=unreadable,
        next_offset=next_offset,
        size_bytes=size,
        headers=tuple(header for _, header in believed),
    )


def _headers_at_once(fetched: Fetched, wanted: OffsetRange, offset: int) -> HeaderChunk | None:
    if fetched.aborted:
        return None
    read = header_table.told if fetched.is_headers else header_table.believed
    headers = read(fetched.records, offset, fetched.last_stable_offset, wanted.next_offset)
    if headers is None:
        return None
    return HeaderChunk(headers=headers, aborted=frozenset(), next_offset=headers[-1].next_offset)


def _header_chunk(fetched: Fetched, believed: list[PlacedBatch], first: int, limit: int) -> HeaderChunk:
    headers = [header for _, header in believed]
    aborted: frozenset[int] = frozenset()
    if fetched.aborted:
        visible = {header.base_offset for _, header in _committed(fetched, believed)}
        aborted = frozenset(header.base_offset for header in headers if not header.is_control) - visible
    return HeaderChunk(headers=tuple(headers), aborted=aborted, next_offset=headers[-1].next_offset)


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


def between(records: RecordColumns, first: int, limit: int) -> RecordColumns:
    """Return the records of offsets [first, limit): a batch is fetched whole even when a range begins or ends inside it."""
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


def _standstill(
    kind: FindingKind, wanted: OffsetRange, offset: int, detail: str, go_on_at: int | None = None
) -> StandstillError:
    return StandstillError(
        LoadFinding(
            kind=kind,
            topic=wanted.topic,
            partition=wanted.partition,
            offset=offset,
            detail=detail,
            go_on_at=go_on_at,
        )
    )
