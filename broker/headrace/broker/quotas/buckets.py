"""The two measures of quotas: usage and now go in, a throttle time comes out.

A `Rate` looks back over windows, as org.apache.kafka.common.metrics.stats.Rate does, and lets go on when the rate is down to
the limit; a `TokenBucket` (KIP-599) is filled at the limit and may be overdrawn once. A limit of 0 throttles whoever uses
anything `FOREVER`, one below that nobody, as in Apache Kafka 3.9 with ZooKeeper. Pure: `now_ms` is monotonic time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from headrace.broker.config.keys import LONG_MAX

FOREVER = LONG_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """How many windows usage is measured over, and how long each is."""

    count: int = 11
    size_ms: int = 1000

    @property
    def span_ms(self) -> int:
        """What is older is forgotten."""
        return self.count * self.size_ms


class Bucket(Protocol):
    """Counts what a client used."""

    used_ms: int

    def record(self, value: float, limit: float, now_ms: int) -> None:
        """So much was used; a negative value was not used after all."""
        ...

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """For how long nothing more may be used; 0 below the limit."""
        ...


class Rate:
    """Usage a second, over whole windows but one and what has passed of the last one."""

    __slots__ = ("_samples", "_windows", "used_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.used_ms = 0
        # [begin, last use, value], oldest first; one more than there are windows overlaps the oldest.
        self._samples: deque[list[float]] = deque(maxlen=windows.count + 1)

    def record(self, value: float, limit: float, now_ms: int) -> None:
        self.used_ms = now_ms
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._windows.size_ms:
            samples.append([now_ms, now_ms, 0.0])
        sample = samples[-1]
        sample[1] = now_ms
        sample[2] += value

    def measure(self, now_ms: int) -> tuple[float, int]:
        """(the rate a second, the milliseconds it is measured over)."""
        windows, samples = self._windows, self._samples
        while samples and now_ms - samples[0][1] >= windows.span_ms:
            samples.popleft()
        elapsed_ms = now_ms - int(samples[0][0]) if samples else 0
        whole = elapsed_ms // windows.size_ms
        # What is young is measured as if nothing had been used before.
        elapsed_ms += max(0, windows.count - 1 - whole) * windows.size_ms
        elapsed_ms = max(elapsed_ms, 1)
        return sum([sample[2] for sample in samples]) * 1000 / elapsed_ms, elapsed_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        rate, elapsed_ms = self.measure(now_ms)
        if rate <= limit or limit < 0:
            return 0
        return round((rate - limit) / limit * elapsed_ms) if limit else FOREVER


class TokenBucket:
    """Tokens that come at the limit, at most as many as all windows bring; below none, everybody waits until there are some."""

    __slots__ = ("_filled_ms", "_tokens", "_windows", "used_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.used_ms = 0
        self._tokens = 0.0
        # A new bucket is full.
        self._filled_ms: int | None = None

    def record(self, value: float, limit: float, now_ms: int) -> None:
        self.used_ms = now_ms
        self._fill(limit, now_ms)
        self._tokens -= value

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        if not self.is_overdrawn(limit, now_ms) or limit < 0:
            return 0
        return round(-self._tokens / limit * 1000) if limit else FOREVER

    def is_overdrawn(self, limit: float, now_ms: int) -> bool:
        """Whether more was used than there was; with a limit below 0 always."""
        self._fill(limit, now_ms)
        return self._tokens < 0

    def _fill(self, limit: float, now_ms: int) -> None:
        burst = limit * self._windows.span_ms / 1000
        filled = burst if self._filled_ms is None else limit * (now_ms - self._filled_ms) / 1000
        self._filled_ms = now_ms
        self._tokens = min(burst, self._tokens + filled)
