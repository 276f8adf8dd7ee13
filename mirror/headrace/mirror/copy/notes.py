"""What a copier has decided that must outlive its broker: its state and its findings, and whether the journal has them.

Invariant: each finding is told once a copier's life. Must not know why anything is written, where the journal is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.mirror.memory.findings import CopyFinding
from headrace.mirror.memory.state import State

TOLD_MAX = 1_000


class Journal(Protocol):
    """What outlives this broker."""

    def write(self, state: State, findings: Sequence[CopyFinding], written: Callable[[], None]) -> None:
        """Have the state and the findings that came with it committed, all or nothing; `written()` once they are."""
        ...

    def arrived(self, first_offset: int, last_offset: int, now_ms: int) -> None:
        """These offsets were appended now."""
        ...


class Notes:
    """`state` is the newest, written or on its way."""

    def __init__(self, journal: Journal, state: State) -> None:
        self.state = state
        self._journal = journal
        self._told = {finding.id for finding in (state.rotten, state.different) if finding is not None}
        self._under_way = 0

    @property
    def is_writing(self) -> bool:
        """Whether the journal does not have yet what was decided."""
        return self._under_way > 0

    def write(self, state: State, *findings: CopyFinding) -> None:
        """Have a state written, and with it the findings that were not told before."""
        told = [finding for finding in findings if finding.id not in self._told]
        if state == self.state and not told:
            return
        for finding in told:
            known = self._told if len(self._told) < TOLD_MAX else set()
            self._told = {*known, finding.id}
        self.state = state
        self._under_way += 1
        self._journal.write(state, told, self._written)

    def _written(self) -> None:
        self._under_way -= 1
