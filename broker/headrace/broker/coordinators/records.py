"""Records of the topics in which coordinators keep their state, and which partition keeps what.

Knows nothing of batches or logs, nor of what any of the topics holds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from headrace.broker.wire.special_values import NO_PRODUCER_ID


class Record(NamedTuple):
    """One record to append: `value` None deletes the key; `producer_id` is the one in whose open transaction it is."""

    key: bytes
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID


class RecordFormatError(ValueError):
    """A stored record that no version of Kafka up to 3.9 writes."""


def partition_for(key: str, partition_count: int) -> int:
    """The partition of a coordinator's topic that keeps a key: Java's `abs(hashCode) % count`."""
    hashed = java_hash(key)
    signed = hashed - (1 << 32) if hashed & 0x80000000 else hashed
    # Kafka's Utils.abs maps Integer.MIN_VALUE, which has no positive twin, to 0.
    return (0 if signed == -(1 << 31) else abs(signed)) % partition_count


@lru_cache(maxsize=256)
def java_hash(text: str) -> int:
    """Java's `hashCode` of a string, as an unsigned number of 32 bits.

    A name may have tens of thousands of characters: all of them are folded at once, in lanes of one long integer, first
    neighbours with each other, then halves.
    """
    lanes = int.from_bytes(text.encode("utf-16-be", "surrogatepass"), "big")
    # Zeros in front, which the hash does not see, fill the lanes up to a power of two.
    count = 1 << (max(lanes.bit_length() - 1, 0) // 64).bit_length()
    lanes = (lanes & _low_halves(32, 2 * count)) + (lanes >> 16 & _low_halves(32, 2 * count)) * 31
    lanes = (lanes & _low_halves(64, count)) + (lanes >> 32 & _low_halves(64, count)) * 31**2
    while count > 1:
        count //= 2
        right = lanes & ((1 << 64 * count) - 1)
        left = lanes >> 64 * count
        lanes = (left * pow(31, 4 * count, 1 << 32) + right) & _low_halves(64, count)
    return lanes & 0xFFFFFFFF


@lru_cache(maxsize=64)
def _low_halves(width: int, count: int) -> int:
    """`count`, a power of two, lanes of `width` bits with the lower half of each set."""
    mask, have = (1 << width // 2) - 1, 1
    while have < count:
        mask |= mask << width * have
        have *= 2
    return mask
