"""What one broker of the cluster brings of a source for all, round by round: the loop of `groups` and `acls`.

That broker is whoever leads the partition of `headrace.mirror` that is written. Owns what a round is told as; must not know
what is brought.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import KafkaError, reason_of
from headrace.broker.server.embedding import EmbeddingHost
from headrace.broker.structured_log import get_logger
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.memory.own_topics import STATES, WRITTEN_PARTITION
from headrace.mirror.memory.reports import SyncReport, failed
from headrace.mirror.source import Source

logger = get_logger(__name__)
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """One kind of what is brought: `what` as in `reports`, and `title` in words."""

    what: str
    title: str
    interval_ms: Callable[[], int]
    bring: Callable[[ClusterClient, ClusterClient], Awaitable[SyncReport]]
    """Brings it here from there; raises FAILURES and KafkaErrors."""


def does_rounds(host: EmbeddingHost) -> bool:
    """Whether what one broker does for all is this one's to do."""
    found = host.metadata.partition(STATES, WRITTEN_PARTITION)
    return found is not None and found.leader == host.broker_id


async def follow(host: EmbeddingHost, source: Source, sync: Sync) -> None:
    """Bring it for ever."""
    due_ms = 0
    while True:
        if not does_rounds(host):
            source.syncs.pop(sync.what, None)
        elif source.is_known and host.clock.monotonic_ms() >= due_ms:
            source.syncs[sync.what] = await _round(host, source, sync)
            due_ms = host.clock.monotonic_ms() + sync.interval_ms()
        await asyncio.sleep(LOOK_SECONDS)


async def _round(host: EmbeddingHost, source: Source, sync: Sync) -> SyncReport:
    own = host.leader_address(STATES, WRITTEN_PARTITION)
    here = ClusterClient([own] if own else [], source.client_id, host.security)
    there = ClusterClient([*source.addresses.values()], source.client_id, source.config.security)
    before = source.syncs.get(sync.what)
    try:
        async with here, there:
            return await sync.bring(here, there)
    except (*FAILURES, KafkaError) as error:
        told = failed(source.config.name, sync.what, before, reason_of(error))
        if before is None or before.problem != told.problem:
            logger.warning(f"{sync.title} are not brought", source=told.source, reason=told.problem)
        return told
