"""How fast moves between data directories may copy together (replica.alter.log.dirs.io.max.bytes.per.second, KIP-113).

What is copied is a debt that falls due at that rate, so that no piece, however large, is forgotten. Apache Kafka measures a
rate over alter.log.dirs.replication.quota.window.num windows instead, and forgets what is older. Pure: time comes in.
"""

from __future__ import annotations

from headrace.broker.config.keys import LONG_MAX

WAIT_MS_MAX = 1000


class Throttle:
    """Ask `wait_ms` before each piece of at most `piece_size_max` bytes, and `spend` its size."""

    def __init__(self) -> None:
        self.bytes_per_second = LONG_MAX
        self.window_s = 1
        self._debt = 0.0
        self._settled_ms = 0

    @property
    def piece_size_max(self) -> int:
        """What fits a window, so that the rate holds in each of them; a larger batch makes the next ones wait."""
        return max(1, self.bytes_per_second * self.window_s)

    def spend(self, size: int, now_ms: int) -> None:
        """Bytes are being copied."""
        self._settle(now_ms)
        self._debt += size

    def wait_ms(self, now_ms: int) -> int:
        """How long nothing may be copied; ask again then, at the latest after `WAIT_MS_MAX`: the rate may change."""
        self._settle(now_ms)
        if self.bytes_per_second == 0:
            return WAIT_MS_MAX
        return min(WAIT_MS_MAX, int(self._debt * 1000 / self.bytes_per_second))

    def _settle(self, now_ms: int) -> None:
        elapsed_ms = max(0, now_ms - self._settled_ms)
        self._settled_ms = now_ms
        self._debt = max(0.0, self._debt - elapsed_ms * self.bytes_per_second / 1000)
