"""Parked requests: fetches that wait for data and produces that wait for replicas.

A parked request names the partitions it depends on and an `attempt`: called with those that moved, and once with None
when its time is over. Wake-ups of one turn of the loop are gathered, so that many appends cost a parked fetch one
attempt. Who parks for the same partitions again and again keeps a `Watch` of them. Invariants: at most `parked_max`
requests are parked (the next is answered at once with what there is), and at most `kept_max` partitions are in watches
that are kept; a finished request has no timer. Knows nothing of Kafka's messages, sockets or logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol, TypeVar

from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.watch import TimerHandle, Watch
from headrace.broker.wire.partitions import PartitionKey

T = TypeVar("T")
PARKED_MAX = 10_000
KEPT_MAX = 500_000


class Scheduler(Protocol):
    """The two services of an event loop that parking needs."""

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Any: ...

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> TimerHandle: ...


class Waiting:
    """Parks and wakes requests."""

    def __init__(self, scheduler: Scheduler, parked_max: int = PARKED_MAX, kept_max: int = KEPT_MAX) -> None:
        self._scheduler = scheduler
        self._parked_max = parked_max
        self._kept_max = kept_max
        self._by_key: dict[PartitionKey, dict[Watch, None]] = {}
        self._woken: list[Watch] = []
        self.parked_count = 0
        self.kept_count = 0

    def park(
        self,
        keys: Iterable[PartitionKey] | Watch,
        timeout_ms: int,
        attempt: Callable[[Collection[PartitionKey] | None], T | None],
    ) -> Deferred[T]:
        """Wait until `attempt(moved)` gives a value after a wake of some of `keys`, at most `timeout_ms`.

        At the time-out, or at once when too many are parked, the value is that of `attempt(None)`, which must give one.
        """
        deferred: Deferred[Any] = Deferred()
        if self.parked_count >= self._parked_max or timeout_ms <= 0:
            deferred.complete(attempt(None))
            return deferred
        # A request may name a partition twice.
        watch = keys if isinstance(keys, Watch) else self._watched(tuple(dict.fromkeys(keys)), is_kept=False)
        assert watch.attempt is None, "one request at a time"
        self.parked_count += 1
        watch.attempt, watch.deferred = attempt, deferred
        watch.timer = self._scheduler.call_later(timeout_ms / 1000, self._attempt, watch, None)
        deferred.on_cancel(lambda: self._finished(watch))
        return deferred

    def keep(self, keys: Iterable[PartitionKey]) -> Watch | None:
        """A watch to park with until `forget`; None when there are too many."""
        watched = tuple(dict.fromkeys(keys))
        if self.kept_count + len(watched) > self._kept_max:
            return None
        self.kept_count += len(watched)
        return self._watched(watched, is_kept=True)

    def forget(self, watch: Watch) -> None:
        """The end of a watch that was kept; no request is parked with it."""
        self.kept_count -= len(watch.keys)
        self._unwatch(watch)

    def wake(self, topic: str, partition: int) -> None:
        """The partition has new data, a new high watermark or another leader, or is gone."""
        if not self._by_key:
            return
        key = (topic, partition)
        waiting = self._by_key.get(key)
        if waiting is None:
            return
        for watch in waiting:
            if watch.attempt is None:
                continue
            if not watch.moved:
                if not self._woken:
                    self._scheduler.call_soon(self._attempt_woken)
                self._woken.append(watch)
            watch.moved.add(key)

    def release(self) -> None:
        """Answer every parked request with what there is (the broker stops)."""
        for watch in {watch: None for waiting in self._by_key.values() for watch in waiting}:
            self._attempt(watch, None)

    def _watched(self, keys: tuple[PartitionKey, ...], *, is_kept: bool) -> Watch:
        watch = Watch(keys, is_kept=is_kept)
        for key in keys:
            self._by_key.setdefault(key, {})[watch] = None
        return watch

    def _unwatch(self, watch: Watch) -> None:
        for key in watch.keys:
            waiting = self._by_key[key]
            del waiting[watch]
            if not waiting:
                del self._by_key[key]

    def _attempt_woken(self) -> None:
        woken, self._woken = self._woken, []
        for watch in woken:
            moved, watch.moved = watch.moved, set()
            self._attempt(watch, moved)

    def _attempt(self, watch: Watch, moved: Collection[PartitionKey] | None) -> None:
        if watch.attempt is None:
            return
        deferred = watch.deferred
        try:
            value = watch.attempt(moved)
        except Exception as error:
            self._finished(watch)
            deferred.fail(error)
            return
        if value is not None:
            self._finished(watch)
            deferred.complete(value)

    def _finished(self, watch: Watch) -> None:
        """The request that was parked with it is answered, or its client is gone."""
        self.parked_count -= 1
        watch.attempt = None
        if watch.timer is not None:
            watch.timer.cancel()
        if not watch.is_kept:
            self._unwatch(watch)
