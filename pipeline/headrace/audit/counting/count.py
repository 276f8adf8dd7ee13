"""A partition's new records become tallies: only the five fields of the envelope are read, vectorised.

Owns where these fields lie: behind the registry's frame of five bytes, at the beginning of the Avro binary, as `time`
(varint), `server`, `service`, `producer` (strings) and `sequence` (varint); the schema is not needed for that. A value
that has no such beginning is counted as foreign. Pure: no sockets, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.audit.windows import Int64s, ProducerName, Tally, tally
from headrace.broker.wire.batches import BatchHeader
from headrace.load.columns import VARINT_BYTES_MAX, RecordColumns

FRAME_SIZE: Final = 5
NAME_SIZE_MAX: Final = 1024
WORD_SIZE: Final = 8
CONTINUATIONS: Final = np.uint64(0x8080808080808080)
PADDING: Final = bytes(16)


class Envelopes(NamedTuple):
    """The events among some records: `names[producer[i]]` is the producer of the i-th; `record` is its record's index."""

    record: npt.NDArray[np.intp]
    time_ms: Int64s
    names: list[str]
    producer: npt.NDArray[np.intp]
    sequence: Int64s
    producers: dict[str, ProducerName]
    """Server and service of each producer, as the first of its records says."""


class Census(NamedTuple):
    """What some records are: tallies of the events, how many are no events, and who published the events."""

    tallies: list[Tally]
    foreign: int
    producers: dict[str, ProducerName]


def census(records: Sequence[RecordColumns], window_size_ms: int) -> Census:
    """Count the events among records, by producer and window."""
    found = Census([], 0, {})
    for part in records:
        events = envelopes(part)
        tallies = tally(events.names, events.producer, events.time_ms, events.sequence, window_size_ms)
        found = Census(
            found.tallies + tallies,
            found.foreign + len(part.offset) - len(events.record),
            events.producers | found.producers,
        )
    return found


def count(records: Sequence[RecordColumns], window_size_ms: int) -> tuple[list[Tally], int]:
    """Return the tallies of records and how many of them are no events."""
    found = census(records, window_size_ms)
    return found.tallies, found.foreign


def removed_offsets(
    headers: Iterable[BatchHeader], kept: Sequence[Int64s], first: int, following: int
) -> int:
    """Return how many of the offsets [first, following) have no record any more.

    `headers` are of all batches there (or more), `kept` the offsets of the records that were read of them, in parts. Compaction
    leaves such gaps between batches and within them.
    """
    present = 0
    for header in headers:
        begin, end = max(first, header.base_offset), min(following, header.next_offset)
        if begin >= end:
            continue
        if header.record_count > header.last_offset_delta:
            present += end - begin
        elif (begin, end) == (header.base_offset, header.next_offset):
            present += header.record_count
        else:
            present += sum(int(np.count_nonzero((part >= begin) & (part < end))) for part in kept)
    return max(0, following - first - present)


def envelopes(records: RecordColumns) -> Envelopes:
    """Read the envelopes of all records that have one."""
    raw = _Bytes(records.data)
    index = np.flatnonzero(records.value_size > FRAME_SIZE)
    start = records.value_start[index]
    end = start + records.value_size[index]
    is_good = raw.bytes[start] == 0
    time_ms, position = raw.varints(start + FRAME_SIZE)
    texts = []
    for _ in ("server", "service", "producer"):
        begin, position, fits = _string(raw, position, end)
        texts.append((begin, position))
        is_good &= fits
    producer_start, producer_size = texts[2][0], texts[2][1] - texts[2][0]
    sequence, position = raw.varints(position)
    is_good &= (producer_size > 0) & (position <= end) & (sequence >= 0)
    names, producer = _names(raw, producer_start, producer_size, is_good)
    kept = np.flatnonzero(producer >= 0)
    producers = _producers(raw, texts[0], texts[1], names, producer)
    return Envelopes(index[kept], time_ms[kept], names, producer[kept], sequence[kept], producers)


class _Bytes:
    """Fetched bytes, as such and as the eight-byte word that begins at each of them."""

    def __init__(self, data: bytes) -> None:
        # Fields are read past a value's end before they are checked against it.
        self.data = data if data.endswith(PADDING) else data + PADDING
        self.bytes = np.frombuffer(self.data, dtype=np.uint8)
        self._words = np.ndarray(
            (len(self.data) - WORD_SIZE + 1,), dtype="<u8", buffer=self.data, strides=(1,)
        )

    def words(self, position: Int64s) -> npt.NDArray[np.uint64]:
        found: npt.NDArray[np.uint64] = self._words[position]
        return found

    def varints(self, position: Int64s) -> tuple[Int64s, Int64s]:
        """Read a zigzag varint at each position; return the values and the positions behind; a too long one is -1."""
        position = np.minimum(position, len(self.data) - len(PADDING))
        word = self.words(position)
        ends = ~word & CONTINUATIONS
        # All bits up to the first byte that does not continue.
        kept = ends ^ (ends - np.uint64(1))
        groups = word & kept & ~CONTINUATIONS
        value = groups & np.uint64(0x7F)
        for number in range(1, int(np.bitwise_count(kept.max(initial=0))) // 8):
            value |= (groups >> np.uint64(number)) & np.uint64(0x7F << 7 * number)
        after = position + (np.bitwise_count(kept) >> 3)
        self._lengthen(position, np.flatnonzero(ends == 0), value, after)
        decoded: Int64s = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
        return decoded, after

    def _lengthen(
        self, position: Int64s, long: npt.NDArray[np.intp], value: npt.NDArray[np.uint64], after: Int64s
    ) -> None:
        """Read the varints of more than eight bytes, which are rare, in place."""
        for at in long.tolist():
            content = self.data[position[at] : position[at] + VARINT_BYTES_MAX]
            size = next((number for number, byte in enumerate(content, 1) if byte < 0x80), 0)
            number = sum((byte & 0x7F) << 7 * shift for shift, byte in enumerate(content[:size]))
            is_fit = size > 0 and number < 1 << 64
            value[at] = number if is_fit else 1
            after[at] = position[at] + (size if is_fit else VARINT_BYTES_MAX)


def _string(raw: _Bytes, position: Int64s, end: Int64s) -> tuple[Int64s, Int64s, npt.NDArray[np.bool_]]:
    """Return where each string begins and ends, and whether it lies within its value."""
    size, start = raw.varints(position)
    after = start + size
    fits = (size >= 0) & (size <= NAME_SIZE_MAX) & (after <= end)
    return start, np.where(fits, after, start), fits


def _names(
    raw: _Bytes, start: Int64s, size: Int64s, is_good: npt.NDArray[np.bool_]
) -> tuple[list[str], npt.NDArray[np.intp]]:
    """Return the distinct producers and each record's index among them, -1 where there is none.

    A batch is one producer's, so neighbours are almost always equal, and Python looks at the borders only.
    """
    names: dict[bytes, int] = {}
    producer = np.full(len(start), -1, dtype=np.intp)
    kept = np.flatnonzero(is_good)
    sizes = size[kept]
    for length in np.unique(sizes).tolist() if np.any(sizes != sizes[:1]) else sizes[:1].tolist():
        members = kept[sizes == length]
        differs = np.zeros(len(members) - 1, dtype=np.bool_)
        for column in _columns(raw, start[members], length):
            differs |= column[1:] != column[:-1]
        borders = (np.flatnonzero(differs) + 1).tolist()
        for begin, end in zip([0, *borders], [*borders, len(members)], strict=True):
            at = int(start[members[begin]])
            name = raw.data[at : at + length]
            if _is_text(name):
                producer[members[begin:end]] = names.setdefault(name, len(names))
    return [name.decode() for name in names], producer


def _producers(
    raw: _Bytes,
    server: tuple[Int64s, Int64s],
    service: tuple[Int64s, Int64s],
    names: list[str],
    producer: npt.NDArray[np.intp],
) -> dict[str, ProducerName]:
    """Return server and service of each name; both are given by where they begin and end in each record."""
    _, first = np.unique(producer, return_index=True)
    found = {}
    for at in first[producer[first] >= 0].tolist():
        texts = [raw.data[begin[at] : end[at]].decode(errors="replace") for begin, end in (server, service)]
        found[names[producer[at]]] = ProducerName(texts[0], texts[1])
    return found


def _columns(raw: _Bytes, start: Int64s, length: int) -> list[npt.NDArray[Any]]:
    """Return texts of one length in words, the last of which may overlap; short ones in bytes."""
    if length < WORD_SIZE:
        return [raw.bytes[start + at] for at in range(length)]
    places = [*range(0, length - WORD_SIZE, WORD_SIZE), length - WORD_SIZE]
    return [raw.words(start + at) for at in places]


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
