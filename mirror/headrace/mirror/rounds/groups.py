"""Brings the committed offsets of a source's groups here, round by round, on one broker of the cluster at a time.

Two of them for a moment, as the leadership that decides which one it is moves, do no harm: what each commits is clamped and never
moved back. What to commit is `sync/groups`' to decide.
"""

from __future__ import annotations

from headrace.broker.server.embedding import EmbeddingHost
from headrace.broker.structured_log import get_logger
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.memory.reports import GROUPS, SyncReport
from headrace.mirror.rounds.loop import Sync, follow
from headrace.mirror.source import Source
from headrace.mirror.sync import group_offsets

logger = get_logger(__name__)


async def follow_groups(host: EmbeddingHost, source: Source) -> None:
    """Bring them for ever; does nothing where none are to be brought."""
    name, pattern = source.config.name, source.config.sync_groups
    if pattern is None:
        return

    async def bring(here: ClusterClient, there: ClusterClient) -> SyncReport:
        found = await group_offsets.bring(here, await group_offsets.moves(here, there, name, pattern))
        for move in found:
            if move.offsets:
                logger.info("group is brought", source=name, told=group_offsets.told(move))
        return SyncReport(
            source=name,
            what=GROUPS,
            succeeded_ms=host.clock.now_ms(),
            in_step=sum(not move.refusal for move in found),
            left_alone=sum(bool(move.refusal) for move in found),
            behind=sum(move.not_yet for move in found),
        )

    await follow(
        host,
        source,
        Sync(
            what=GROUPS,
            title="groups",
            interval_ms=lambda: source.tunables.sync_groups_interval_ms,
            bring=bring,
        ),
    )
