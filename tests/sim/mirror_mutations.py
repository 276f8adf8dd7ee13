"""Rules of the mirror that more than one simulation has to miss when they are off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.mirror.copy.copier import Copier
from headrace.mirror.copy.notes import Notes
from headrace.mirror.memory.findings import CopyFinding
from headrace.mirror.memory.journal import Journal
from headrace.mirror.memory.state import State


def epochs_are_noted_after_the_append(patch: pytest.MonkeyPatch) -> None:
    """A source's new epoch is written once its first batch is in the log, with the next one."""
    append_run, write = Copier._append_run, Notes.write
    later: list[tuple[Notes, State]] = []
    due: list[tuple[Notes, State]] = []

    def write_later(self: Notes, state: State, *findings: CopyFinding) -> None:
        if state.epochs and state.epochs != self.state.epochs:
            later.append((self, state))
        else:
            write(self, state, *findings)

    def append_first(self: Any, records: Any, run: Any, now_ms: int) -> None:
        due_now, due[:], later[:] = list(due), later, []
        append_run(self, records, run, now_ms)
        for notes, state in due_now:
            write(notes, state)

    patch.setattr(Notes, "write", write_later)
    patch.setattr(Copier, "_append_run", append_first)


def states_are_read_without_a_claim_before(patch: pytest.MonkeyPatch) -> None:
    when_read = Journal._when_read

    def unread(self: Journal, offset: int, go_on: Callable[[], None]) -> None:
        is_claim = "claimed" in go_on.__qualname__
        when_read(self, -1 if is_claim else offset, go_on)

    patch.setattr(Journal, "_when_read", unread)
