"""A distribution of times: mean and maximum are exact, percentiles to 1 %. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from headrace.audit.windows import Int64s

EXACT_BITS: Final = 8
"""Values below 2**8 have a bucket each, others 2**7 buckets an octave, so a bucket is at most 1 % wide."""
OBSERVED_MS_MAX: Final = 1 << 40
"""What lies beyond, some thirty years, is a clock that is wrong."""
BUCKET_COUNT: Final = (1 << EXACT_BITS) + (62 - EXACT_BITS) * (1 << (EXACT_BITS - 1))


@dataclass(slots=True)
class Histogram:
    """A distribution of whole milliseconds >= 0."""

    buckets: Int64s = field(default_factory=lambda: np.zeros(BUCKET_COUNT, dtype=np.int64))
    count: int = 0
    sum_ms: int = 0
    max_ms: int = 0

    def observe(self, values_ms: Int64s) -> None:
        """Take values; one that is out of the bounds 0 and `OBSERVED_MS_MAX` counts as the bound."""
        if not len(values_ms):
            return
        values_ms = np.clip(values_ms, 0, OBSERVED_MS_MAX)
        self.buckets += np.bincount(bucket_of(values_ms), minlength=BUCKET_COUNT)
        self.count += len(values_ms)
        self.sum_ms += int(values_ms.sum())
        self.max_ms = max(self.max_ms, int(values_ms.max()))

    def add(self, other: Histogram) -> None:
        """Take all values of another distribution."""
        self.buckets += other.buckets
        self.count += other.count
        self.sum_ms += other.sum_ms
        self.max_ms = max(self.max_ms, other.max_ms)

    def percentile(self, share: float) -> int:
        """Return the value below or at which this share of the values lies, rounded up to the end of its bucket."""
        at = int(np.searchsorted(np.cumsum(self.buckets), share * self.count))
        return min(upper_of(at), self.max_ms)

    def summary(self) -> dict[str, float] | None:
        """Return mean, p50, p99 and max in seconds; None without data."""
        if not self.count:
            return None
        values = {
            "mean": self.sum_ms / self.count,
            "p50": self.percentile(0.5),
            "p99": self.percentile(0.99),
            "max": self.max_ms,
        }
        return {name: round(value / 1000, 6) for name, value in values.items()}

    def as_json(self) -> dict[str, Any]:
        used = np.flatnonzero(self.buckets)
        return {
            "count": self.count,
            "sum_ms": self.sum_ms,
            "max_ms": self.max_ms,
            "buckets": [used.tolist(), self.buckets[used].tolist()],
        }

    @classmethod
    def from_json(cls, fields: Any) -> Histogram:
        found = cls(count=fields["count"], sum_ms=fields["sum_ms"], max_ms=fields["max_ms"])
        used, counts = fields["buckets"]
        found.buckets[np.array(used, dtype=np.int64)] = counts
        return found


def bucket_of(values: Int64s) -> Int64s:
    """Return the bucket of each value >= 0."""
    # The exponent of a float of 64 bits tells the highest bit that is set, and sooner than frexp does.
    exponent = (values.astype(np.float64).view(np.int64) >> 52) - 1022
    shift = np.maximum(exponent - EXACT_BITS, 0)
    found: Int64s = (values >> shift) + shift * (1 << (EXACT_BITS - 1))
    return found


def upper_of(bucket: int) -> int:
    """Return the highest value of a bucket."""
    half = 1 << (EXACT_BITS - 1)
    shift = max(0, bucket // half - 1)
    return ((bucket - shift * half + 1) << shift) - 1
