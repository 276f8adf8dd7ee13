"""Record data as no producer writes it: batches of every format and codec, damaged and signed anew or not.

What is bounded stays small here: a bomb unpacks to megabytes from kilobytes.
"""

from __future__ import annotations

import struct
from random import Random

from headrace.broker.legacy.message_sets import encode_messages
from headrace.broker.wire import batches

TIMESTAMP_MS = 1_700_000_000_000
NUMBERS = (0, 1, -1, 2, 7, 127, 255, 32767, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63))
# Position and struct form of each field of a batch's header.
FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">i"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}
CODECS = range(5)
BOMB_SIZE = 4 << 20
_BOMBS: dict[int, bytes] = {}


def odd_records(random: Random) -> bytes | None:
    """The records of one partition of a Produce request."""
    kind = random.randrange(12)
    if kind == 0:
        return random.choice((b"", b"\0" * 61, random.randbytes(random.randrange(200)), None))
    if kind == 1:
        return old_messages(random)
    if kind == 2:
        return bomb(random.choice(CODECS))
    data = good_batch(random)
    if kind <= 5:
        return bytes(data)
    if kind <= 8:
        return bytes(with_odd_header(random, data))
    if kind == 9:
        return bytes(with_odd_payload(random, data))
    if kind == 10:
        return bytes(data) + bytes(good_batch(random))
    return bytes(data[: random.randrange(len(data))])


def good_batch(random: Random) -> bytearray:
    """A batch that a producer might write, idempotent or not."""
    records = [
        batches.Record(
            0, TIMESTAMP_MS + n, random.choice((None, b"key")), random.choice((None, b"value" * 9)), []
        )
        for n in range(random.choice((1, 1, 3, 10)))
    ]
    producer = random.choice((-1, -1, 4000, 4001))
    return batches.encode_batch(
        records,
        codec=random.choice(CODECS),
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=random.choice((0, 1, 3)) if producer >= 0 else -1,
    )


def with_odd_header(random: Random, data: bytearray) -> bytearray:
    """Some field of the header says something else; mostly the checksum is right all the same."""
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice(list(FIELDS))
        position, form = FIELDS[name]
        size = struct.calcsize(form)
        value = random.choice(NUMBERS if name != "attributes" else range(256))
        data[position : position + size] = (value % (1 << 8 * size)).to_bytes(size, "big")
    if random.random() < 0.9:
        batches.set_crc(data, 0)
    return data


def with_odd_payload(random: Random, data: bytearray) -> bytearray:
    """The records, or what packs them, are damaged below a right checksum."""
    for _ in range(random.randrange(1, 6)):
        data[random.randrange(batches.HEADER_SIZE, len(data))] = random.choice(
            (0, 0xFF, 0x80, random.randrange(256))
        )
    batches.set_crc(data, 0)
    return data


def bomb(codec: int) -> bytes:
    """A small batch that unpacks to `BOMB_SIZE` bytes."""
    if codec not in _BOMBS:
        size = BOMB_SIZE if codec else 1000
        record = batches.Record(0, TIMESTAMP_MS, b"key", bytes(size), [])
        _BOMBS[codec] = bytes(batches.encode_batch([record], codec=codec))
    return _BOMBS[codec]


def old_messages(random: Random) -> bytes:
    """A message set of format 0 or 1, damaged or not."""
    records = [batches.Record(n, TIMESTAMP_MS, b"k", b"v" * 20, []) for n in range(random.choice((1, 3)))]
    data = bytearray(
        encode_messages(records, magic=random.randrange(2), codec=random.randrange(4), timestamp_type=0)
    )
    for _ in range(random.choice((0, 0, 1, 3))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)
