"""Random record data: sound and faulty batches of format 2 and message sets of formats 0 and 1, from a seeded generator.

What is left out is a listed deviation (docs/compatibility.md): null records, codecs that are none, packed bytes that do not
unpack, and faults inside a batch whose header is sound.
"""

from __future__ import annotations

import struct
from random import Random
from typing import NamedTuple

from sessions import TIMESTAMP_MS

from headrace.broker.legacy.message_sets import encode_messages
from headrace.broker.wire.batches import HEADER_SIZE, Record, encode_batch, set_crc

FUTURE_MS, PAST_MS, NONE_MS = 9_000_000_000_000, 1_000, -1
SEQUENCE_MAX = (1 << 31) - 1
PRODUCERS = (7001, 7002, 7003)
HEADER_FAULTS = {
    "length": (8, ">i", (5000, 0, -1)),
    "leader_epoch": (12, ">i", (9, -2)),
    "magic": (16, ">b", (3, -1, 1, 0)),
    "last_offset_delta": (23, ">i", (7, -1, 0, SEQUENCE_MAX)),
    "producer_id": (43, ">q", (7001, -1, -2)),
    "producer_epoch": (51, ">h", (0, -1, -2)),
    "base_sequence": (53, ">i", (0, 5, -1, -2)),
    "record_count": (57, ">i", (0, -1, 4, 1000)),
}


class Style(NamedTuple):
    """What a session may contain, so that what clocks and codecs decide otherwise is not taken for a difference."""

    codecs: tuple[int, ...]
    """Those of sound batches; more than none excludes small fetch and segment sizes, for packed sizes differ."""

    append_time: bool
    """Topics with LogAppendTime; excludes questions about the largest timestamp."""

    has_producers: bool
    """Idempotent ones; excludes whatever opens a new segment, which Kafka does before it refuses a sequence, too."""

    now_ms: int
    base_ms: int = TIMESTAMP_MS
    """About when clients say that they wrote their records."""

    @property
    def packs(self) -> bool:
        return len(self.codecs) > 1


class Sequences:
    """The next sequence of each producer in each partition, as a client would count if all went well."""

    def __init__(self) -> None:
        self._next: dict[tuple[object, int], tuple[int, int]] = {}

    def draw(self, rng: Random, partition: object, producer_id: int, count: int) -> tuple[int, int]:
        """(epoch, base sequence): mostly the one that is due."""
        epoch, due = self._next.get((partition, producer_id), (0, 0))
        kind = rng.random()
        if kind < 0.1:
            return epoch, max(0, due - rng.choice((1, count, 2 * count)))
        if kind < 0.15:
            return epoch, due + rng.choice((1, 5))
        if kind < 0.18:
            return epoch - 1, due
        if kind < 0.2:
            return epoch, rng.choice((-1, SEQUENCE_MAX))
        if kind < 0.28:
            epoch, due = epoch + 1, rng.choice((0, 0, 0, due))
        self._next[partition, producer_id] = epoch, due + count
        return epoch, due


def sound_batches(rng: Random, style: Style, producer_id: int, count: int) -> list[bytes]:
    """Batches with few keys, many of which are deleted, in part of a producer that begins with them."""
    batches, sequence = [], 0
    for _ in range(count):
        first_ms = style.base_ms + rng.randrange(200) * 1000
        records = [
            Record(0, first_ms + number, b"key %d" % rng.randrange(4), rng.choice((None, b"", b"v" * 30)), [])
            for number in range(rng.choice((1, 1, 2, 3, 5)))
        ]
        producer = (-1, -1, -1)
        if style.has_producers and rng.random() < 0.4:
            producer = producer_id, 0, sequence
            sequence += len(records)
        data = encode_batch(
            records,
            codec=rng.choice(style.codecs),
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
        )
        batches.append(bytes(data))
    return batches


def random_records(rng: Random, style: Style, sequences: Sequences, partition: object, version: int) -> bytes:
    """The records of one partition of a Produce request, mostly what a client of that version sends."""
    old = rng.random() < (0.85 if version < 3 else 0.04)
    data = _message_set(rng, style) if old else _batches(rng, style, sequences, partition)
    kind = rng.random()
    if kind < 0.03:
        return data[: rng.randrange(len(data))]
    if kind < 0.05:
        return data + rng.choice((b"x", b"\0" * 5, b"\0" * 80))
    if kind < 0.07:
        return _flipped(rng, data)
    return b"" if kind < 0.08 else data


def stops_apache_kafka(records: bytes) -> bool:
    """Whether Kafka refuses all partitions of a request because it cannot walk over these records."""
    position = 0
    while len(records) - position > 16:
        size = int.from_bytes(records[position + 8 : position + 12], "big", signed=True)
        if size < 14 or records[position + 16] > 2:
            return True
        position += size + 12
    return False


def _flipped(rng: Random, data: bytes) -> bytes:
    """A bit flipped in what a checksum covers."""
    position = rng.randrange(min(HEADER_SIZE, len(data) - 1), len(data))
    return data[:position] + bytes((data[position] ^ 1 << rng.randrange(8),)) + data[position + 1 :]


def _batches(rng: Random, style: Style, sequences: Sequences, partition: object) -> bytes:
    data = _batch(rng, style, sequences, partition)
    return data + _batch(rng, style, sequences, partition) if rng.random() < 0.04 else data


def _batch(rng: Random, style: Style, sequences: Sequences, partition: object) -> bytes:
    records = _records(rng, style)
    producer_id, epoch, sequence = -1, -1, -1
    if style.has_producers and rng.random() < 0.4:
        producer_id = rng.choice(PRODUCERS)
        epoch, sequence = sequences.draw(rng, partition, producer_id, len(records))
    data = encode_batch(
        records,
        codec=rng.choice(style.codecs),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        control=rng.random() < 0.02,
    )
    if rng.random() < 0.12:
        _damage(rng, data, style)
    return bytes(data)


def _damage(rng: Random, data: bytearray, style: Style) -> None:
    name = rng.choice([n for n in HEADER_FAULTS if style.has_producers or n != "producer_id"])
    position, form, values = HEADER_FAULTS[name]
    struct.pack_into(form, data, position, rng.choice(values))
    if name not in ("magic", "length"):
        set_crc(data, 0)


def _records(rng: Random, style: Style) -> list[Record]:
    count = rng.choice((1, 1, 2, 3, 5))
    first_ms = _timestamp(rng, style)
    step_ms = 0 if first_ms <= 0 else rng.choice((0, 1, 1000, 90_000))
    keyed = rng.random() < 0.7
    return [_record(rng, first_ms + step_ms * n, keyed=keyed or rng.random() < 0.2) for n in range(count)]


def _timestamp(rng: Random, style: Style) -> int:
    if rng.random() < 0.75 or style.has_producers:
        return style.base_ms + rng.randrange(200) * 1000
    return rng.choice((style.now_ms, style.now_ms, NONE_MS, 0, PAST_MS, FUTURE_MS))


def _record(rng: Random, timestamp_ms: int, *, keyed: bool) -> Record:
    key = rng.choice((b"", b"k", b"key %d" % rng.randrange(5))) if keyed else None
    size = rng.choice((0, 1, 10, 40, 40, 200))
    value = None if rng.random() < 0.1 else bytes(rng.choices(b"abcdef ", k=size))
    headers: list[tuple[str, bytes | None]] = []
    if rng.random() < 0.1:
        headers = [("h", rng.choice((b"x", b"", None)))]
    return Record(0, timestamp_ms, key, value, headers)


def _message_set(rng: Random, style: Style) -> bytes:
    magic = rng.randrange(2)
    codec = rng.choice([c for c in style.codecs if c != 4])
    records = [
        record._replace(offset=number, headers=[]) for number, record in enumerate(_records(rng, style))
    ]
    if magic == 0 and codec:
        records = [record._replace(timestamp_ms=-1) for record in records]
    is_stamped = records[0].timestamp_ms >= 0 and rng.random() < 0.04
    data = encode_messages(records, magic=magic, codec=codec, timestamp_type=int(is_stamped))
    if rng.random() < 0.05:
        data += encode_messages(records, magic=magic, codec=codec, timestamp_type=0)
    return data
