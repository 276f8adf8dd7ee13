"""A 64-bit fingerprint of one event: the ledger compares tiers by the sum of fingerprints modulo 2**64.

The sum does not depend on order, and unlike XOR it shows an event that is there twice. The mix is the
finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014) over the
producer's key and the sequence, so that neighbouring sequences do not cancel out. `fingerprint_columns` is
its vectorised twin.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

MASK: Final = 2**64 - 1
GOLDEN: Final = 0x9E3779B97F4A7C15
FIRST_FACTOR: Final = 0xBF58476D1CE4E5B9
SECOND_FACTOR: Final = 0x94D049BB133111EB


@lru_cache(maxsize=4096)
def producer_key(producer: str) -> int:
    """Return the 64 bits that stand for a producer."""
    return int.from_bytes(blake2b(producer.encode(), digest_size=8).digest(), "little")


def mix(key: int, sequence: int) -> int:
    """Return the fingerprint of a sequence (>= 0) of the producer with this key: 0 <= result < 2**64."""
    bits = (key + sequence * GOLDEN) & MASK
    bits = ((bits ^ (bits >> 30)) * FIRST_FACTOR) & MASK
    bits = ((bits ^ (bits >> 27)) * SECOND_FACTOR) & MASK
    return bits ^ (bits >> 31)


def mix_run(key: int, first: int, last: int) -> int:
    """Return the sum of the fingerprints of the sequences first to last (inclusive) modulo 2**64."""
    total = 0
    golden, mask, one, two = GOLDEN, MASK, FIRST_FACTOR, SECOND_FACTOR
    start = (key + first * golden) & mask
    for bits in range(start, start + (last - first + 1) * golden, golden):
        # Each step is that of `mix`, written out: a call for each event would cost as much again.
        bits &= mask
        bits = ((bits ^ (bits >> 30)) * one) & mask
        bits = ((bits ^ (bits >> 27)) * two) & mask
        total += bits ^ (bits >> 31)
    return total & mask


def fingerprint(producer: str, sequence: int) -> int:
    """Return the fingerprint of one event."""
    return mix(producer_key(producer), sequence)


def to_signed(value: int) -> int:
    """Return an unsigned 64-bit number as the two's complement number that an Avro long holds."""
    return value - 2**64 if value >= 2**63 else value


def from_signed(value: int) -> int:
    """Undo `to_signed`."""
    return value & MASK
