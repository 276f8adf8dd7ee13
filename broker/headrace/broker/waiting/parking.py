"""Parked requests: fetches that wait for data and produces that wait for replicas.

A parked request names the partitions it depends on and an `attempt`: called with those that moved, and once with None
when its time is over. There are two wakes: followers wait for a log's end (`wake_end`), all others for what is committed
(`wake`), and everybody for a change of leader (`wake_both`). Wake-ups of one turn of the loop are gathered, so that many
appends cost a parked fetch one attempt. Who parks for the same partitions again and again keeps a `Watch` of them.
Invariants: at most `parked_max` requests are parked (the next is answered at once with what there is), and at most
`kept_max` partitions are in watches that are kept; a finished request has no timer. Knows nothing of Kafka's messages,
sockets or logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain
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
        # Who is to hear of a log's end, and of everything else.
        self._by_end: dict[PartitionKey, dict[Watch, None]] = {}
        self._by_key: dict[PartitionKey, dict[Watch, None]] = {}
        self._woken: list[Watch] = []
        self.parked_count = 0
        self.kept_count = 0

    def park(
        self,
        keys: Iterable[PartitionKey] | Watch,
        timeout_ms: int,
        attempt: Callable[[Collection[PartitionKey] | None], T | None],
        *,
        for_end: bool = False,
    ) -> Deferred[T]:
        """Wait until `attempt(moved)` gives a value after a wake of some of `keys`, at most `timeout_ms`.

        At the time-out, or at once when too many are parked, the value is that of `attempt(None)`, which must give one.
        `for_end`: it is a follower, which `wake_end` wakes, and `wake` does not.
        """
        deferred: Deferred[Any] = Deferred()
        if self.parked_count >= self._parked_max or timeout_ms <= 0:
            deferred.complete(attempt(None))
            return deferred
        watch = keys if isinstance(keys, Watch) else self._watched(keys, for_end=for_end)
        assert watch.attempt is None, "one request at a time"
        self.parked_count += 1
        watch.attempt, watch.deferred = attempt, deferred
        watch.moved.clear()
        watch.timer = self._scheduler.call_later(timeout_ms / 1000, self._attempt, watch, None)
        deferred.on_cancel(lambda: self._finished(watch))
        return deferred

    def keep(self, keys: Iterable[PartitionKey], *, for_end: bool = False) -> Watch | None:
        """A watch to park with until `forget`; None when there are too many. A follower's notes what is committed, too,
        but is not woken by it.
        """
        watch = Watch((), is_kept=True, for_end=for_end)
        return watch if self.extend(watch, keys) else None

    def extend(self, watch: Watch, keys: Iterable[PartitionKey]) -> bool:
        """Have a watch that is kept watch these, too; False, and nothing done, when there are too many."""
        new = [key for key in dict.fromkeys(keys) if key not in watch.keys]
        if self.kept_count + len(new) > self._kept_max:
            return False
        self.kept_count += len(new)
        watch.keys |= dict.fromkeys(new)
        self._add(watch, new)
        return True

    def drop(self, watch: Watch, key: PartitionKey) -> None:
        """Have a watch that is kept watch that partition no more."""
        self.kept_count -= 1
        del watch.keys[key]
        watch.moved.discard(key)
        self._remove(watch, (key,))

    def forget(self, watch: Watch) -> None:
        """The end of a watch that was kept; a request that is parked with it is answered with what there is."""
        self.answer(watch)
        self.kept_count -= len(watch.keys)
        self._remove(watch, watch.keys)

    def answer(self, watch: Watch) -> None:
        """Answer the request that is parked with it, if there is one, with what there is."""
        self._attempt(watch, None)

    def wake(self, topic: str, partition: int) -> None:
        """More of the partition is committed, or it begins elsewhere."""
        if self._by_key:
            self._wake(self._by_key, (topic, partition), is_end=False)

    def wake_end(self, topic: str, partition: int) -> None:
        """The log's end moved."""
        if self._by_end:
            self._wake(self._by_end, (topic, partition), is_end=True)

    def wake_both(self, topic: str, partition: int) -> None:
        """The log's end moved and all is committed, or the partition has another leader, or is gone."""
        self.wake(topic, partition)
        self.wake_end(topic, partition)

    def _wake(
        self, watches: dict[PartitionKey, dict[Watch, None]], key: PartitionKey, *, is_end: bool
    ) -> None:
        waiting = watches.get(key)
        if waiting is None:
            return
        for watch in waiting:
            if watch.attempt is None:
                if watch.is_kept:
                    watch.moved.add(key)
                continue
            watch.moved.add(key)
            if not watch.is_woken and (is_end or not watch.for_end):
                watch.is_woken = True
                if not self._woken:
                    self._scheduler.call_soon(self._attempt_woken)
                self._woken.append(watch)

    def release(self) -> None:
        """Answer every parked request with what there is (the broker stops)."""
        watches = (watch for by_key in (self._by_key, self._by_end) for watch in chain(*by_key.values()))
        for watch in dict.fromkeys(watches):
            self._attempt(watch, None)

    def _watched(self, keys: Iterable[PartitionKey], *, for_end: bool) -> Watch:
        watch = Watch(keys, is_kept=False, for_end=for_end)
        self._add(watch, watch.keys)
        return watch

    def _add(self, watch: Watch, keys: Iterable[PartitionKey]) -> None:
        for watches in self._heard_by(watch):
            for key in keys:
                watches.setdefault(key, {})[watch] = None

    def _remove(self, watch: Watch, keys: Iterable[PartitionKey]) -> None:
        for watches in self._heard_by(watch):
            for key in keys:
                waiting = watches[key]
                del waiting[watch]
                if not waiting:
                    del watches[key]

    def _heard_by(self, watch: Watch) -> tuple[dict[PartitionKey, dict[Watch, None]], ...]:
        if not watch.for_end:
            return (self._by_key,)
        return (self._by_end, self._by_key) if watch.is_kept else (self._by_end,)

    def _attempt_woken(self) -> None:
        woken, self._woken = self._woken, []
        for watch in woken:
            watch.is_woken = False
            # None moved: its request was answered, and the next one has read all since.
            if watch.attempt is not None and watch.moved:
                self._attempt(watch, watch.take_moved())

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
            self._remove(watch, watch.keys)
