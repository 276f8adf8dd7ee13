"""Whose turn it is to write, by the order of one topic. Pure.

A process asks for a turn with a record, has it once all that asked before are through, writes, and gives it back with
another record; whoever finds a turn stuck ends it in the same way. The topic's order decides alone, so every process
that reads it comes to the same result. What stays true: a record whose turn was over before it in the topic is late
and counts for nothing, so a process that slept through the end of its turn changes nothing that others have written.
"""

from __future__ import annotations

from typing import Final

from headrace.registry.records import Turn

ASKED_MAX: Final = 1000
"""Turns that wait; the oldest is over when there are more."""
OVER_MAX: Final = 10_000
"""Turns remembered as over, the newest."""


class Turns:
    """The turns of one topic, up to what has been read of it."""

    def __init__(self) -> None:
        self._asked: dict[str, None] = {}
        self._over: dict[str, None] = {}
        self.progress = 0
        """Grows whenever a record of the turn at the head is read."""

    @property
    def head(self) -> str | None:
        """The turn that it is, None when nobody has asked."""
        return next(iter(self._asked), None)

    def apply(self, record: Turn) -> None:
        """Let a turn be asked for, or end it."""
        if record.is_over:
            self._end(record.turn)
        elif record.turn not in self._over:
            self._asked[record.turn] = None
            if len(self._asked) > ASKED_MAX:
                self._end(next(iter(self._asked)))

    def admit(self, turn: str | None) -> bool:
        """Say whether a record of this turn counts; one of no turn comes from another kind of registry and does."""
        self.progress += turn is not None and turn == self.head
        return turn is None or turn not in self._over

    def is_over(self, turn: str) -> bool:
        return turn in self._over

    def _end(self, turn: str) -> None:
        self._asked.pop(turn, None)
        self._over[turn] = None
        if len(self._over) > OVER_MAX:
            del self._over[next(iter(self._over))]
