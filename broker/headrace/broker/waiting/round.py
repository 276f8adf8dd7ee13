"""What requests of several connections have done together, once each of those had its turn.

Whoever gives the turns opens the round and ends it; a handler lets a request join, and has it `performed` with the others.
Invariants: what joined is performed in the order in which it came, at the latest when the round ends; what must not be
done before it calls `perform` first. Knows neither turns nor what requests ask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Both are about a millisecond's work.
ROUND_REQUESTS_MAX, ROUND_SIZE_MAX = 64, 1 << 20


class Round:
    """`is_open`: others have their turn before it ends, so that it pays to join; `joins` counts who ever joined."""

    __slots__ = ("_joined", "_performed", "_request_count", "_size", "is_open", "joins")

    def __init__(self) -> None:
        self.is_open = False
        self.joins = 0
        self._joined: list[Any] = []
        self._performed: Callable[[list[Any]], None] | None = None
        self._request_count = self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to end it."""
        return self._request_count >= ROUND_REQUESTS_MAX or self._size >= ROUND_SIZE_MAX

    def join(
        self, performed: Callable[[list[Any]], None], joined: Any, *, request_count: int, size: int
    ) -> None:
        """Have `performed` called with the list of all that joined; they are so many requests, of so many bytes."""
        assert self.is_open
        self.joins += 1
        self._performed = performed
        self._joined.append(joined)
        self._request_count += request_count
        self._size += size

    def perform(self) -> None:
        """Have all done that has joined so far."""
        if self._joined:
            joined, self._joined = self._joined, []
            self._request_count = self._size = 0
            assert self._performed is not None
            self._performed(joined)

    def end(self) -> None:
        """No more may join; have the rest done."""
        self.is_open = False
        self.perform()
