"""Producer ids for idempotent producers, from blocks of 1000 in `/latest_producer_id_block`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from headrace.broker.handlers.deferred import Deferred


class ProducerIds:
    """Hands out ids of the current block; fetches the next one through `allocate`, in a task of `tasks`."""

    def __init__(self, allocate: Callable[[], Awaitable[tuple[int, int]]], *, tasks: Any) -> None:
        raise NotImplementedError

    def next_id(self) -> Deferred[int | None]:
        """A producer id no other producer of the cluster has; None when no block can be had (answer COORDINATOR_LOAD_IN_PROGRESS)."""
        raise NotImplementedError
