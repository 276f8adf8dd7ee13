"""How many partitions one request may create and delete (KIP-599).

A strict allowance refuses whatever comes while the client's bucket is overdrawn; a permissive one, for clients that do not know
the error, takes everything and lets the client wait. Either may overdraw the bucket once.
Pure: `monotonic_ms()` is told the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace.broker.config.keys import INT_MAX
from headrace.broker.errors import ThrottlingQuotaExceededError
from headrace.broker.quotas.buckets import FOREVER, TokenBucket


class Allowance:
    """What a request with a limit takes from the bucket of its client; `bucket` None is one without a limit."""

    def __init__(
        self, bucket: TokenBucket | None, limit: float, monotonic_ms: Callable[[], int], *, is_strict: bool
    ) -> None:
        self._bucket = bucket
        self._limit = limit
        self._monotonic_ms = monotonic_ms
        self._is_strict = is_strict
        self._until_ms = 0

    def take(self, partition_count: int) -> None:
        """Before so many partitions are made or deleted. Raises ThrottlingQuotaExceededError; then they must not be."""
        bucket = self._bucket
        if bucket is None:
            return
        now_ms = self._monotonic_ms()
        if self._is_strict:
            if bucket.is_overdrawn(self._limit, now_ms):
                self._wait(bucket, now_ms)
                raise ThrottlingQuotaExceededError("The throttling quota has been exceeded.")
            bucket.record(partition_count, self._limit, now_ms)
        else:
            bucket.record(partition_count, self._limit, now_ms)
            self._wait(bucket, now_ms)

    @property
    def throttle_ms(self) -> int:
        """For how long, from now on, the client has to wait for what it took or was refused."""
        return max(0, self._until_ms - self._monotonic_ms())

    def _wait(self, bucket: TokenBucket, now_ms: int) -> None:
        throttle_ms = bucket.throttle_ms(self._limit, now_ms)
        # Apache Kafka has no number for what never ends.
        self._until_ms = 0 if throttle_ms == FOREVER else now_ms + min(throttle_ms, INT_MAX)


UNLIMITED: Final = Allowance(None, 0.0, lambda: 0, is_strict=False)
"""Of a client without a limit."""
