"""What one producer says of one topic: what was acknowledged, up to when that is all, and what came after it said so.

Owns what a producer's promise means: with `complete_until` and `next_sequence` an account says that of the sequences
below the one all events before the other are in the accounts so far. An event that is handed out later with an older
time is overdue: it breaks no promise, and the promise is not taken back. Pure: accounts in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from headrace.audit.windows import EMPTY, WINDOW_SIZE_MS, Depth, Int64s, depth, once, total, without
from headrace.events.monitoring import Account

CLOCK_SKEW_MS: Final = 5_000
"""By how much the clocks of two datacenters may differ."""


WINDOW_SIZE_MS_MAX: Final = 86_400_000
"""Of what is accounted together: a day."""
SEQUENCE_MAX: Final = 1 << 62
"""Beyond it no sums can be made of sequences."""


def unsound(account: Account) -> str:
    """Say what of an account nobody can have meant; empty for one that may be true."""
    if not 0 < account.window_size_ms <= WINDOW_SIZE_MS_MAX:
        return f"has windows of {account.window_size_ms} ms"
    if any(not 0 <= first <= last < SEQUENCE_MAX for first, last, *_ in account.undelivered):
        return "has undelivered sequences that cannot be"
    if any(last >= SEQUENCE_MAX for _, last, _ in account.acknowledgements):
        return "has acknowledged sequences that cannot be"
    if not 0 <= account.next_sequence <= SEQUENCE_MAX:
        return f"names {account.next_sequence} as the next sequence"
    return ""


class OpenAccount(NamedTuple):
    """What was acknowledged of one window, in an account at an offset of the monitoring topic."""

    partition: int
    offset: int
    window_start: int
    acknowledged: Depth


@dataclass(slots=True)
class Accounts:
    """All that was heard so far. `open`: accounts that the live counts are not known to be past yet."""

    acknowledged: Depth = EMPTY
    unjudged: Depth = EMPTY
    """Of these, what may lie in offsets that were never counted in the live tier."""
    undelivered: Depth = EMPTY
    overdue: Depth = EMPTY
    """Of these, what was handed out after its window had been promised."""
    open: list[OpenAccount] = field(default_factory=list)
    begun_ms: int = 0
    """Nothing was published before, by the account that came before the first event; 0 without one."""
    complete_until: int = 0
    promised_sequence: int = 0
    """The sequences below are those that `complete_until` is about."""
    window_size_ms: int = WINDOW_SIZE_MS
    settled: Depth = EMPTY
    """The sequences of windows that are settled: nothing here speaks of them any more."""
    heard_at: int = 0
    next_sequence: int = 0
    is_closed: bool = False

    @property
    def whole_until(self) -> int:
        """The end of the last window that was promised; not before the producer began."""
        return max(self.complete_until - self.complete_until % self.window_size_ms, self.begun_ms)

    def take(self, partition: int, offset: int, account: Account, runs: Int64s, heard_at: int) -> None:
        """Take an account that lies at this offset of the monitoring topic; `runs` are the acknowledged sequences."""
        self.window_size_ms = account.window_size_ms
        self.heard_at = max(self.heard_at, heard_at)
        if len(runs):
            self.open.append(OpenAccount(partition, offset, account.window_start, depth(runs)))
            if account.window_start + account.window_size_ms <= self.complete_until:
                self._note_overdue(runs)
        if account.undelivered:
            missing = np.array([item[:2] for item in account.undelivered], dtype=np.int64)
            self.undelivered = total((self.undelivered, depth(missing)))
        if account.complete_until > self.complete_until:
            self.complete_until, self.promised_sequence = account.complete_until, account.next_sequence
        self.next_sequence = max(self.next_sequence, account.next_sequence)
        if not account.next_sequence:
            self.begun_ms = max(self.begun_ms, account.complete_until)
        self.is_closed |= account.kind == "closing"

    def _note_overdue(self, runs: Int64s) -> None:
        first = np.maximum(runs[:, 0], self.promised_sequence)
        late = np.stack((first, runs[:, 1]), axis=1)[first <= runs[:, 1]]
        if len(late):
            self.overdue = once(total((self.overdue, depth(late))))

    def settle(self, passed: Mapping[int, int], unseen_until_ms: int) -> bool:
        """Take the accounts below these offsets of the monitoring topic, which the live counts are past.

        Returns whether there are any. What happened after the last offset was written that was never counted does not lie there.
        """
        past = [item for item in self.open if item.offset < passed.get(item.partition, 0)]
        if not past:
            return False
        self.open = [item for item in self.open if item.offset >= passed.get(item.partition, 0)]
        self.acknowledged = total((self.acknowledged, *(item.acknowledged for item in past)))
        unjudged = [
            item.acknowledged
            for item in past
            if max(item.window_start, self.begun_ms) <= unseen_until_ms + CLOCK_SKEW_MS
        ]
        self.unjudged = total((self.unjudged, *unjudged))
        return True

    def remove(self, found: Depth) -> None:
        """Take sequences out whose windows are settled."""
        self.acknowledged = without(self.acknowledged, found)
        self.unjudged = without(self.unjudged, found)
        self.undelivered = without(self.undelivered, found)
        self.overdue = without(self.overdue, found)
        self.settled = once(total((self.settled, found)))
