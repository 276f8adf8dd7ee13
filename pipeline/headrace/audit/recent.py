"""How long the events of the last hours took, by the minute of their own time, for those who ask about a stretch of it.

Beside the distributions of all events so far, which a day of slow ones no longer moves. Bounded: `KEPT_MINUTES_MAX` minutes, and
in each only the buckets that were hit. Pure; times are milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from headrace.audit.histogram import bucket_of, upper_of
from headrace.audit.period import Period
from headrace.audit.windows import Int64s

KEPT_MINUTES_MAX: Final = 180
MINUTE_MS: Final = 60_000
Key = tuple[str, str]
"""Datacenter and span."""


class Figures(NamedTuple):
    """How many events, and the seconds that half of them and 99 in 100 of them took at most."""

    events: int
    p50: float
    p99: float


class RecentLatencies:
    """Latencies by (datacenter, span) and minute."""

    def __init__(self) -> None:
        self._minutes: dict[Key, dict[int, Counter[int]]] = {}

    def observe(self, key: Key, time_ms: Int64s, values_ms: Int64s) -> None:
        """Take the latencies of events of these times; events older than what is kept are passed over."""
        if not len(values_ms):
            return
        minutes = self._minutes.setdefault(key, {})
        minute = time_ms // MINUTE_MS
        oldest = max([*minutes, int(minute.max())]) - KEPT_MINUTES_MAX + 1
        for old in [known for known in minutes if known < oldest]:
            del minutes[old]
        first, buckets = max(oldest, int(minute.min())), bucket_of(values_ms)
        width = int(buckets.max()) + 1
        places = (minute - first) * width + buckets
        table = np.bincount(places[minute >= first])
        for start in range(0, len(table), width):
            counts = table[start : start + width]
            found = np.flatnonzero(counts)
            if len(found):
                counted = minutes.setdefault(first + start // width, Counter())
                for bucket, count in zip(found.tolist(), counts[found].tolist(), strict=True):
                    counted[bucket] += count

    def figures(self, span: str, period: Period) -> Figures | None:
        """What the events of the minutes that reach into a period took, of all datacenters; None without any."""
        return _figures(self._within(span, period))

    def minutes(self, span: str) -> dict[int, Figures]:
        """The same of each minute since the epoch that has events, in their order."""
        counted: dict[int, list[Counter[int]]] = {}
        for (_, known), minutes in self._minutes.items():
            if known == span:
                for minute, buckets in minutes.items():
                    counted.setdefault(minute, []).append(buckets)
        found = {minute: _figures(counted[minute]) for minute in sorted(counted)}
        return {minute: figures for minute, figures in found.items() if figures is not None}

    def _within(self, span: str, period: Period) -> Iterator[Counter[int]]:
        for (_, known), minutes in self._minutes.items():
            if known == span:
                for minute, counted in minutes.items():
                    if period.overlaps(minute * MINUTE_MS, (minute + 1) * MINUTE_MS):
                        yield counted

    def as_json(self) -> list[list[Any]]:
        return [
            [*key, [[minute, list(counted.items())] for minute, counted in minutes.items()]]
            for key, minutes in self._minutes.items()
        ]

    @classmethod
    def from_json(cls, fields: Any) -> RecentLatencies:
        found = cls()
        for *key, minutes in fields:
            known: Key = (key[0], key[1])
            found._minutes[known] = {minute: Counter(dict(counted)) for minute, counted in minutes}
        return found


def _figures(counted: Iterable[Counter[int]]) -> Figures | None:
    buckets: Counter[int] = Counter()
    for each in counted:
        buckets.update(each)
    total = buckets.total()
    return Figures(total, _percentile(buckets, 0.5), _percentile(buckets, 0.99)) if total else None


def _percentile(buckets: Counter[int], share: float) -> float:
    """Seconds at or below which this share lies, rounded up to the end of their bucket."""
    wanted, seen = share * buckets.total(), 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= wanted:
            return upper_of(bucket) / 1000
    return 0.0
