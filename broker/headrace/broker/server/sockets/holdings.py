"""What connections hold in memory for their clients: large requests on their way in, large replies on their way out.

Invariant: all of it together is at most `size_max`; when it would be more, those that have held something for the longest
are closed, as they either trickle or do not read. Small buffers, which every connection has, are bounded by
`max.connections` and not counted. Must not know what is held.
"""

from __future__ import annotations

from typing import Protocol

HELD_SIZE_MAX = 1 << 30
REQUESTS_COUNT_MIN = 4
"""Requests of the largest size that always have room together."""
LARGE_SIZE = 2 << 20


class Holder(Protocol):
    """Who holds something."""

    def close(self, reason: str | None = None) -> None:
        """Let it go, by way of `Holdings.hold(holder, 0)`."""
        ...


class Holdings:
    """Sizes by holder, in the order in which they began to hold something large."""

    def __init__(self, request_size_max: int) -> None:
        self.size = 0
        self.size_max = max(HELD_SIZE_MAX, REQUESTS_COUNT_MIN * request_size_max)
        self._sizes: dict[Holder, int] = {}

    def hold(self, holder: Holder, size: int) -> None:
        """From now on it holds `size` bytes; this may close it, or others."""
        before = self._sizes.get(holder, 0)
        self.size += size - before
        if size:
            self._sizes[holder] = size
        elif before:
            del self._sizes[holder]
        while self.size > self.size_max:
            oldest = next(iter(self._sizes))
            held = self._sizes[oldest]
            oldest.close(
                f"clients hold more than {self.size_max} bytes, and this one {held} of them for the longest"
            )
