"""Partitions that somebody waits for, one request at a time; `waiting.parking` keeps them and wakes who is parked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.partitions import PartitionKey

Attempt = Callable[[Collection[PartitionKey] | None], Any]


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Watch:
    """`attempt` is None while no request is parked; `is_kept`: it serves for more than one request.

    `for_end`: a follower's, for the ends of logs. `moved` are the partitions that moved since the last attempt, of a watch
    that is kept also those that did between its requests.
    """

    __slots__ = ("attempt", "deferred", "for_end", "is_kept", "is_woken", "keys", "moved", "timer")

    def __init__(self, keys: Iterable[PartitionKey], *, is_kept: bool, for_end: bool) -> None:
        # A request may name a partition twice.
        self.keys = dict.fromkeys(keys)
        self.is_kept = is_kept
        self.for_end = for_end
        self.attempt: Attempt | None = None
        self.deferred: Deferred[Any] = Deferred()
        self.timer: TimerHandle | None = None
        self.moved: set[PartitionKey] = set()
        # An attempt is to come.
        self.is_woken = False

    def take_moved(self) -> set[PartitionKey]:
        """What moved, from now on anew."""
        moved, self.moved = self.moved, set()
        return moved
