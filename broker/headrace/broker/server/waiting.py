"""Parked requests: fetches that wait for data and produces that wait for replicas.

A parked request names the partitions it depends on and an `attempt`: called with those that moved, and once with None
when its time is over. Wake-ups of one turn of the loop are gathered, so that many appends cost a parked fetch one
attempt. Invariants: at most `parked_max` requests are parked (the next is answered at once with what there
is); a finished request is in no index and has no timer. Knows nothing of Kafka's messages, sockets or logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol, TypeVar

from headrace.broker.handlers.deferred import Deferred

T = TypeVar("T")
PartitionKey = tuple[str, int]
PARKED_MAX = 10_000


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """The two services of an event loop that parking needs."""

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Any: ...

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> TimerHandle: ...


class _Parked:
    __slots__ = ("attempt", "deferred", "keys", "moved", "timer")

    def __init__(
        self, keys: tuple[PartitionKey, ...], attempt: Callable[[Collection[PartitionKey] | None], Any]
    ) -> None:
        self.keys = keys
        self.attempt = attempt
        self.deferred: Deferred[Any] = Deferred()
        self.timer: TimerHandle | None = None
        self.moved: set[PartitionKey] = set()


class Waiting:
    """Parks and wakes requests."""

    def __init__(self, scheduler: Scheduler, parked_max: int = PARKED_MAX) -> None:
        self._scheduler = scheduler
        self._parked_max = parked_max
        self._by_key: dict[PartitionKey, dict[_Parked, None]] = {}
        self._woken: list[_Parked] = []
        self.parked_count = 0

    def park(
        self,
        keys: Iterable[PartitionKey],
        timeout_ms: int,
        attempt: Callable[[Collection[PartitionKey] | None], T | None],
    ) -> Deferred[T]:
        """Wait until `attempt(moved)` gives a value after a wake of some of `keys`, at most `timeout_ms`.

        At the time-out, or at once when too many are parked, the value is that of `attempt(None)`, which must give one.
        """
        # A request may name a partition twice.
        parked = _Parked(tuple(dict.fromkeys(keys)), attempt)
        if self.parked_count >= self._parked_max or timeout_ms <= 0:
            parked.deferred.complete(attempt(None))
            return parked.deferred
        self.parked_count += 1
        for key in parked.keys:
            self._by_key.setdefault(key, {})[parked] = None
        parked.timer = self._scheduler.call_later(timeout_ms / 1000, self._expire, parked)
        parked.deferred.on_cancel(lambda: self._forget(parked))
        return parked.deferred

    def wake(self, topic: str, partition: int) -> None:
        """The partition has new data, a new high watermark or another leader, or is gone."""
        if not self._by_key:
            return
        key = (topic, partition)
        waiting = self._by_key.get(key)
        if waiting is None:
            return
        for parked in waiting:
            if not parked.moved:
                if not self._woken:
                    self._scheduler.call_soon(self._attempt_woken)
                self._woken.append(parked)
            parked.moved.add(key)

    def release(self) -> None:
        """Answer every parked request with what there is (the broker stops)."""
        for parked in {parked: None for waiting in self._by_key.values() for parked in waiting}:
            self._expire(parked)

    def _attempt_woken(self) -> None:
        woken, self._woken = self._woken, []
        for parked in woken:
            moved, parked.moved = parked.moved, set()
            if not parked.deferred.done:
                self._attempt(parked, moved)

    def _expire(self, parked: _Parked) -> None:
        if not parked.deferred.done:
            self._attempt(parked, None)

    def _attempt(self, parked: _Parked, moved: Collection[PartitionKey] | None) -> None:
        try:
            value = parked.attempt(moved)
        except Exception as error:
            self._forget(parked)
            parked.deferred.fail(error)
            return
        if value is not None:
            self._forget(parked)
            parked.deferred.complete(value)

    def _forget(self, parked: _Parked) -> None:
        self.parked_count -= 1
        if parked.timer is not None:
            parked.timer.cancel()
        for key in parked.keys:
            waiting = self._by_key[key]
            waiting.pop(parked, None)
            if not waiting:
                del self._by_key[key]
