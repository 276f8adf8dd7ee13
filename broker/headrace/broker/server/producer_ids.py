"""Producer ids for idempotent producers, from blocks of `/latest_producer_id_block` that this broker alone
owns.

Invariants: no id is given twice, in this broker or another, also after a crash (what is left of a block is
lost); one block is being fetched at a time; who has to wait is bounded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from headrace.broker.handlers.deferred import Deferred
from headrace.broker.structured_log import get_logger

WAITING_COUNT_MAX = 10_000

log = get_logger(__name__)


class ProducerIds:
    """Hands out the ids of the current block and fetches the next one when it is used up.

    `allocate` answers (first id, count) of a new block; `run` runs a coroutine on the broker's loop.
    """

    def __init__(
        self,
        allocate: Callable[[], Awaitable[tuple[int, int]]],
        run: Callable[[Coroutine[Any, Any, Any]], Deferred[Any]],
    ) -> None:
        self._allocate = allocate
        self._run = run
        self._next = 0
        self._end = 0
        self._waiting: list[Deferred[int | None]] = []
        self._fetching = False

    def next_id(self) -> Deferred[int | None]:
        """An id that no other producer of the cluster has; None when no block can be had now (try again)."""
        deferred: Deferred[int | None] = Deferred()
        if self._next < self._end:
            self._next += 1
            deferred.complete(self._next - 1)
        elif len(self._waiting) >= WAITING_COUNT_MAX:
            deferred.complete(None)
        else:
            self._waiting.append(deferred)
            self._fetch()
        return deferred

    def _fetch(self) -> None:
        if not self._fetching:
            self._fetching = True
            self._run(self._fetch_block()).then(lambda _: None, lambda _: None)

    async def _fetch_block(self) -> None:
        try:
            first, count = await self._allocate()
        except Exception as error:
            log.warning("no producer id block", reason=str(error))
            first = count = 0
        self._fetching = False
        self._next, self._end = first, first + count
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            available = self._next < self._end
            deferred.complete(self._next if available else None)
            self._next += available
