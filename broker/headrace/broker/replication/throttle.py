"""How fast replicas that are out of sync may be brought up (KIP-73): what was copied lately, against a rate.

Owns the measure of one direction, what this broker sends as a leader or takes as a follower, and which replicas it touches.
Those in sync are counted but never held back, by whoever asks. Pure: `now_ms` is monotonic time. After
kafka.server.ReplicationQuotaManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache

ALL = "*"
WINDOWS_DEFAULT, WINDOW_MS_DEFAULT = 11, 1000


@lru_cache(maxsize=1000)
def throttled_partitions(text: str, broker_id: int) -> Callable[[int], bool]:
    """Which partitions of a topic `…replication.throttled.replicas` names for a broker: `*`, or `partition:broker,…`."""
    if text.strip() == ALL:
        return lambda _: True
    pairs = (entry.split(":") for entry in text.split(",") if ":" in entry)
    numbers = frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
    return numbers.__contains__


class Throttle:
    """`rate_max` is in bytes a second, None for no bound."""

    def __init__(self, *, windows: int = WINDOWS_DEFAULT, window_ms: int = WINDOW_MS_DEFAULT) -> None:
        self.rate_max: int | None = None
        self._windows_max = windows
        self._window_ms = window_ms
        # [begin, bytes], oldest first; at most `windows` of them.
        self._windows: deque[list[int]] = deque()

    def record(self, size: int, now_ms: int) -> None:
        """So many bytes of replicas under the throttle were copied."""
        self._expire(now_ms)
        if not self._windows or now_ms - self._windows[-1][0] >= self._window_ms:
            self._windows.append([now_ms, 0])
        self._windows[-1][1] += size

    def rate(self, now_ms: int) -> float:
        """Bytes a second, over the windows that are kept and one window at least."""
        self._expire(now_ms)
        if not self._windows:
            return 0.0
        elapsed_ms = max(now_ms - self._windows[0][0], self._window_ms)
        return sum(size for _, size in self._windows) * 1000 / elapsed_ms

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether replicas that are out of sync have to wait."""
        return self.rate_max is not None and self.rate(now_ms) > self.rate_max

    def _expire(self, now_ms: int) -> None:
        kept_from_ms = now_ms - self._windows_max * self._window_ms
        while self._windows and self._windows[0][0] <= kept_from_ms:
            self._windows.popleft()
