"""What the clients of a broker use of one thing that has quotas, and how long each has to wait.

Invariants: a client for which there is no limit costs one look-up; at most `BUCKETS_COUNT_MAX` buckets are kept, those used
last, however many names clients make up. Pure: `now_ms` is monotonic time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from headrace.broker.config.keys import INT_MAX
from headrace.broker.quotas.buckets import FOREVER, Bucket, Rate, TokenBucket, Windows
from headrace.broker.quotas.limits import Entity, Limits
from headrace.broker.quotas.mutations import UNLIMITED, Allowance

BUCKETS_COUNT_MAX = 10_000


B = TypeVar("B", bound=Bucket)


class Share(NamedTuple, Generic[B]):
    """What a client uses of its limit, with all that share it."""

    bucket: B
    limit: float


class Usage(Generic[B]):
    """One kind of quota: bytes produced, bytes fetched, time of requests, or changes of the cluster."""

    def __init__(
        self,
        make_bucket: Callable[[Windows], B],
        windows: Windows,
        throttle_ms_max: int | None = None,
    ) -> None:
        self._make_bucket = make_bucket
        self._windows = windows
        self._throttle_ms_max = throttle_ms_max
        self._limits = Limits()
        self._buckets: dict[Entity, B] = {}
        # By user and client id; None: no limit.
        self._shares: dict[tuple[str, str | None], Share[B] | None] = {}

    @property
    def is_limited(self) -> bool:
        """Whether anybody has a limit."""
        return bool(self._limits)

    def set_limit(self, entity: Entity, value: float | None) -> None:
        """From now on; what was used counts against the new limit, too."""
        self._limits.set(entity, value)
        self._shares.clear()

    def share(self, user: str, client_id: str | None, now_ms: int) -> Share[B] | None:
        """Where the usage of that client is counted; None when nothing limits it."""
        key = (user, client_id)
        try:
            share = self._shares[key]
        except KeyError:
            share = self._find(user, client_id or "", now_ms)
            if len(self._shares) >= BUCKETS_COUNT_MAX:
                self._shares.clear()
            self._shares[key] = share
        return share

    def record(self, user: str, client_id: str | None, value: float, now_ms: int) -> int:
        """The client used so much; for how long, in milliseconds, nothing more shall be taken from it."""
        share = self.share(user, client_id, now_ms)
        if share is None:
            return 0
        share.bucket.record(value, share.limit, now_ms)
        throttle_ms = share.bucket.throttle_ms(share.limit, now_ms)
        if self._throttle_ms_max is not None:
            return min(throttle_ms, self._throttle_ms_max)
        # Apache Kafka has no number for what never ends.
        return 0 if throttle_ms == FOREVER else min(throttle_ms, INT_MAX)

    def burst(self, user: str, client_id: str | None, now_ms: int) -> float | None:
        """The most that a client which used nothing lately may use at once; None: anything."""
        share = self.share(user, client_id, now_ms)
        if share is None:
            return None
        return max(0.0, share.limit) * (self._windows.count - 1) * self._windows.size_ms / 1000

    def _find(self, user: str, client_id: str, now_ms: int) -> Share[B] | None:
        limit = self._limits.find(user, client_id)
        if limit is None:
            return None
        bucket = self._buckets.get(limit.bucket)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_COUNT_MAX:
                self._forget_half()
            bucket = self._buckets[limit.bucket] = self._make_bucket(self._windows)
            bucket.used_ms = now_ms
        return Share(bucket, limit.value)

    def _forget_half(self) -> None:
        by_use = sorted(self._buckets, key=lambda entity: self._buckets[entity].used_ms)
        for entity in by_use[: BUCKETS_COUNT_MAX // 2]:
            del self._buckets[entity]
        self._shares.clear()


class ClientUsage:
    """All kinds of quota that clients have."""

    def __init__(self, windows: Windows, controller_windows: Windows) -> None:
        """As `quota.window.*` and `controller.quota.window.*` say."""
        self.produced: Usage[Rate] = Usage(Rate, windows)
        self.fetched: Usage[Rate] = Usage(Rate, windows)
        # In percent of one processor's time.
        self.requests: Usage[Rate] = Usage(Rate, windows, windows.size_ms)
        # Partitions created and deleted.
        self.mutations: Usage[TokenBucket] = Usage(TokenBucket, controller_windows)
        self.is_limited = False

    def allowance(
        self, user: str, client_id: str | None, monotonic_ms: Callable[[], int], *, is_strict: bool
    ) -> Allowance:
        """What a request may create and delete."""
        share = self.mutations.share(user, client_id, monotonic_ms())
        if share is None:
            return UNLIMITED
        return Allowance(share.bucket, share.limit, monotonic_ms, is_strict=is_strict)

    def limits_producer(self, user: str, client_id: str | None, now_ms: int) -> bool:
        """Whether each request of a producer is to be counted."""
        return (
            self.produced.share(user, client_id, now_ms) is not None
            or self.requests.share(user, client_id, now_ms) is not None
        )

    def set_limits(
        self,
        entity: Entity,
        *,
        produced: float | None,
        fetched: float | None,
        requests: float | None,
        mutations: float | None,
    ) -> None:
        """All limits of one entity; None: none of its own."""
        for usage, value in (
            (self.produced, produced),
            (self.fetched, fetched),
            (self.requests, requests),
            (self.mutations, mutations),
        ):
            usage.set_limit(entity, value)
        self.is_limited = any(
            usage.is_limited for usage in (self.produced, self.fetched, self.requests, self.mutations)
        )


def unlimited() -> ClientUsage:
    """Nobody has a limit."""
    return ClientUsage(Windows(), Windows())
