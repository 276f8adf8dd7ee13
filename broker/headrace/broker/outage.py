"""What fails again and again: the log has a line as it begins, one a minute while it lasts, and one when it is over.

It is over with a success that comes a minute after the last failure: what works now and then is still an outage.
"""

from __future__ import annotations

REPEAT_MS = 60_000


class Outage:
    """Of one thing; `count` is how often it failed. All times are monotonic."""

    def __init__(self) -> None:
        self.count = 0
        self._began_ms = self._failed_ms = self._said_ms = 0

    @property
    def seconds(self) -> int:
        """From the first failure to the last."""
        return (self._failed_ms - self._began_ms) // 1000

    def failed(self, now_ms: int) -> bool:
        """It failed; whether to say so now."""
        if not self.count:
            self._began_ms = now_ms
        is_due = not self.count or now_ms - self._said_ms >= REPEAT_MS
        if is_due:
            self._said_ms = now_ms
        self.count += 1
        self._failed_ms = now_ms
        return is_due

    def is_over(self, now_ms: int) -> bool:
        """It works now; whether that ends an outage, which is to be said."""
        return self.count > 0 and now_ms - self._failed_ms >= REPEAT_MS
