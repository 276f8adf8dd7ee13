"""Carries out the orders to restore of the copies that this broker leads, as `restoring` says, one after the other.

A copy is handed over with its leadership and comes back, with its new state, once it is restored; never when the leadership
ends before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.errors import KafkaError
from headrace.broker.server.embedding import EmbeddingHost
from headrace.broker.structured_log import get_logger
from headrace.mirror.memory.journal import Journal
from headrace.mirror.memory.lead import Lead
from headrace.mirror.memory.state import State
from headrace.mirror.restoring import Restoring

logger = get_logger(__name__)
LOOK_SECONDS, RETRY_SECONDS = 0.1, 1.0


class _Turn(NamedTuple):
    lead: Lead
    restoring: Restoring
    state: State
    ready: Callable[[State], None]


class Restorer:
    """Of all copies of this broker."""

    def __init__(self, host: EmbeddingHost, journal: Journal) -> None:
        self._host = host
        self._journal = journal
        self._turns: list[_Turn] = []
        self._due = asyncio.Event()

    def begin(self, lead: Lead, restoring: Restoring, state: State, ready: Callable[[State], None]) -> None:
        """Restore the copy; `ready(state)` once it may be copied to again."""
        self._turns.append(_Turn(lead, restoring, state, ready))
        self._due.set()

    async def run(self) -> None:
        """Work for ever."""
        while True:
            await self._due.wait()
            pause_seconds = await self.step()
            if not self._turns:
                self._due.clear()
            await asyncio.sleep(pause_seconds)

    async def step(self) -> float:
        """Go on with each once; how long to wait before the next time."""
        pause_seconds = LOOK_SECONDS
        for turn in list(self._turns):
            try:
                is_over = not turn.lead.holds or await self._is_done(turn)
            except KafkaError as error:
                logger.error("copy cannot be restored", partition=turn.lead.place.decode(), reason=error)
                pause_seconds = RETRY_SECONDS
                continue
            if is_over:
                self._turns.remove(turn)
        return pause_seconds

    async def _is_done(self, turn: _Turn) -> bool:
        lead, restoring, state, ready = turn
        if restoring.wants_cut:
            await self._cut(lead, restoring.order.end_offset)
            restoring.was_cut()
        if not restoring.is_done:
            return False
        restored = state.restored(restoring.order)
        self._journal.restored(lead, restored, lambda: ready(restored))
        return True

    async def _cut(self, lead: Lead, offset: int) -> None:
        own_log = lead.partition.log
        if offset < own_log.log_end_offset:
            logger.warning(
                "copy is restored: its own messages are cut",
                partition=lead.place.decode(),
                leader_epoch=lead.leader_epoch,
                end_offset=offset,
                log_end_offset=own_log.log_end_offset,
            )
        await self._host.cut_mirrored(lead.partition, offset, leader_epoch=lead.leader_epoch)
