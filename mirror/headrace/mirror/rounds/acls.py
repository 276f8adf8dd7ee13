"""Has who may read a source's topics read its copies, round by round, on the one broker of the cluster that does rounds."""

from __future__ import annotations

from headrace.broker.server.embedding import EmbeddingHost
from headrace.broker.structured_log import get_logger
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.memory.reports import ACLS, SyncReport
from headrace.mirror.rounds.loop import Sync, follow
from headrace.mirror.source import Source
from headrace.mirror.sync import acl_grants, acls

logger = get_logger(__name__)
INTERVAL_MS = 60_000


async def follow_acls(host: EmbeddingHost, source: Source) -> None:
    """Bring them for ever; does nothing where they are not to be brought."""
    name = source.config.name

    async def bring(here: ClusterClient, there: ClusterClient) -> SyncReport:
        found = await acl_grants.moves(here, there, name)
        await acl_grants.bring(here, found)
        for move in found:
            if move.added or move.removed:
                logger.info("who may read a copy has changed", source=name, told=acls.told(move))
        return SyncReport(source=name, what=ACLS, succeeded_ms=host.clock.now_ms(), in_step=len(found))

    if source.config.sync_acls:
        sync = Sync(what=ACLS, title="access control lists", interval_ms=lambda: INTERVAL_MS, bring=bring)
        await follow(host, source, sync)
