"""Has who may read a source's topics read its copies, round by round, on the one broker of the cluster that does rounds."""

from __future__ import annotations

import asyncio

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import KafkaError
from headrace.broker.server.embedding import EmbeddingHost
from headrace.broker.structured_log import get_logger
from headrace.mirror import acl_grants, acl_sync
from headrace.mirror.acl_sync import AclMove
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.group_rounds import LOOK_SECONDS, does_rounds
from headrace.mirror.own_topics import STATES, WRITTEN_PARTITION
from headrace.mirror.reports import ACLS, SyncReport, failed
from headrace.mirror.source import Source

logger = get_logger(__name__)
INTERVAL_MS = 60_000


async def follow_acls(host: EmbeddingHost, source: Source) -> None:
    """Bring them for ever; does nothing where they are not to be brought."""
    due_ms = 0
    while source.config.sync_acls:
        if not does_rounds(host):
            source.syncs.pop(ACLS, None)
        elif source.is_known and host.clock.monotonic_ms() >= due_ms:
            await _round(host, source)
            due_ms = host.clock.monotonic_ms() + INTERVAL_MS
        await asyncio.sleep(LOOK_SECONDS)


async def _round(host: EmbeddingHost, source: Source) -> None:
    before = source.syncs.get(ACLS)
    try:
        found = await _bring(host, source)
    except (*FAILURES, KafkaError) as error:
        told = failed(source.config.name, ACLS, before, str(error) or type(error).__name__)
        if before is None or before.problem != told.problem:
            logger.warning("access control lists are not brought", source=told.source, reason=told.problem)
        source.syncs[ACLS] = told
        return
    for move in found:
        if move.added or move.removed:
            logger.info(
                "who may read a copy has changed", source=source.config.name, told=acl_sync.told(move)
            )
    source.syncs[ACLS] = SyncReport(
        source=source.config.name, what=ACLS, succeeded_ms=host.clock.now_ms(), in_step=len(found)
    )


async def _bring(host: EmbeddingHost, source: Source) -> list[AclMove]:
    own = host.leader_address(STATES, WRITTEN_PARTITION)
    here = ClusterClient([own] if own else [], source.client_id, host.security)
    there = ClusterClient([*source.addresses.values()], source.client_id, source.config.security)
    async with here, there:
        found = await acl_grants.moves(here, there, source.config.name)
        await acl_grants.bring(here, found)
        return found
