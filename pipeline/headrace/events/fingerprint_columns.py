"""The vectorised twin of `fingerprint`, for tiers that count whole columns of sequences. Needs numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.events.fingerprint import FIRST_FACTOR, GOLDEN, SECOND_FACTOR, producer_key


def fingerprints(producer: str, sequences: NDArray[np.int64] | Sequence[int]) -> NDArray[np.uint64]:
    """Return the fingerprint of each sequence (>= 0) of one producer, in the order given."""
    array = np.asarray(sequences, dtype=np.int64).astype(np.uint64)
    bits = array * np.uint64(GOLDEN) + np.uint64(producer_key(producer))
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(FIRST_FACTOR)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(SECOND_FACTOR)
    return bits ^ (bits >> np.uint64(31))


def fingerprint_sum(producer: str, sequences: NDArray[np.int64] | Sequence[int]) -> int:
    """Return the sum of the fingerprints modulo 2**64 as a Python int."""
    return int(np.add.reduce(fingerprints(producer, sequences), dtype=np.uint64))
