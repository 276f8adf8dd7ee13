"""Partitions that somebody waits for, one request at a time; `waiting.parking` keeps them and wakes who is parked."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.partitions import PartitionKey

Attempt = Callable[[Collection[PartitionKey] | None], Any]


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Watch:
    """`attempt` is None while no request is parked; `is_kept`: it serves for more than one request.

    `for_end`: a follower's, for the ends of logs.
    """

    __slots__ = ("attempt", "deferred", "for_end", "is_kept", "keys", "moved", "timer")

    def __init__(self, keys: tuple[PartitionKey, ...], *, is_kept: bool, for_end: bool) -> None:
        self.keys = keys
        self.is_kept = is_kept
        self.for_end = for_end
        self.attempt: Attempt | None = None
        self.deferred: Deferred[Any] = Deferred()
        self.timer: TimerHandle | None = None
        self.moved: set[PartitionKey] = set()
