"""One leadership of what was a copy carries out an order to restore it: what it waits for, when it cuts, when that is done.

    restoring.wants_cut → (the log is cut) → restoring.was_cut() → restoring.is_done

Invariants: what is cut is of earlier leader epochs than this one, so that every replica, also one that comes back later, parts
from the leader there; nothing is appended before whoever may lead next has been cut, too, for only this leader knows where.
Whatever is broken off is begun again by the next leader: the order is removed once it is done. Pure.
"""

from __future__ import annotations

from typing import Protocol

from headrace.mirror.memory.state import RestoreOrder

NEEDS_EPOCH = "it is being restored, and waits for another leader epoch: give `headrace mirror restore` again"
NEEDS_REPLICAS = "it is being restored, and waits until the replicas in sync are cut"
NEEDS_CUT = "it is being restored, and its log could not be cut yet"


class LedLog(Protocol):
    """What is led, as far as a restore needs it."""

    @property
    def leads_since_its_last_message(self) -> bool:
        """Whether nothing was appended in this leader epoch."""
        ...

    @property
    def is_on_all_in_sync(self) -> bool:
        """Whether whoever may lead next ends where this log does, as far as it asked since that was cut."""
        ...


class Restoring:
    """See the module's text."""

    def __init__(self, order: RestoreOrder, led_log: LedLog) -> None:
        self.order = order
        self._led_log = led_log
        self._is_cut = False

    @property
    def wants_cut(self) -> bool:
        return not self._is_cut and self._led_log.leads_since_its_last_message

    def was_cut(self) -> None:
        """The log ends at the order's offset, or before."""
        self._is_cut = True

    @property
    def is_done(self) -> bool:
        return self._is_cut and self._led_log.is_on_all_in_sync

    @property
    def problem(self) -> str:
        """What it waits for."""
        if self._is_cut:
            return NEEDS_REPLICAS
        return NEEDS_CUT if self.wants_cut else NEEDS_EPOCH
