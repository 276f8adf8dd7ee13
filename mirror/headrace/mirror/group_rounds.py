"""Brings the committed offsets of a source's groups here, round by round, on one broker of the cluster at a time.

That broker is whoever leads the partition of `headrace.mirror` that is written. Two of them for a moment, as its leadership
moves, do no harm: what each commits is clamped and never moved back. What to commit is `group_sync`'s to decide.
"""

from __future__ import annotations

import asyncio

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import KafkaError
from headrace.broker.server.embedding import EmbeddingHost
from headrace.broker.structured_log import get_logger
from headrace.mirror import group_offsets
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.group_sync import GroupMove
from headrace.mirror.own_topics import STATES, WRITTEN_PARTITION
from headrace.mirror.reports import GROUPS, SyncReport, failed
from headrace.mirror.source import Source

logger = get_logger(__name__)
LOOK_SECONDS = 1.0


def does_rounds(host: EmbeddingHost) -> bool:
    """Whether what one broker does for all is this one's to do."""
    found = host.metadata.partition(STATES, WRITTEN_PARTITION)
    return found is not None and found.leader == host.broker_id


async def follow_groups(host: EmbeddingHost, source: Source) -> None:
    """Bring them for ever; does nothing where none are to be brought."""
    due_ms = 0
    while source.config.sync_groups is not None:
        if not does_rounds(host):
            source.syncs.pop(GROUPS, None)
        elif source.is_known and host.clock.monotonic_ms() >= due_ms:
            await _round(host, source)
            due_ms = host.clock.monotonic_ms() + source.tunables.sync_groups_interval_ms
        await asyncio.sleep(LOOK_SECONDS)


async def _round(host: EmbeddingHost, source: Source) -> None:
    before = source.syncs.get(GROUPS)
    try:
        found = await _bring(host, source)
    except (*FAILURES, KafkaError) as error:
        told = failed(source.config.name, GROUPS, before, str(error) or type(error).__name__)
        if before is None or before.problem != told.problem:
            logger.warning("groups are not brought", source=told.source, reason=told.problem)
        source.syncs[GROUPS] = told
        return
    for move in found:
        if move.offsets:
            logger.info("group is brought", source=source.config.name, told=group_offsets.told(move))
    source.syncs[GROUPS] = SyncReport(
        source=source.config.name,
        what=GROUPS,
        succeeded_ms=host.clock.now_ms(),
        in_step=sum(not move.refusal for move in found),
        left_alone=sum(bool(move.refusal) for move in found),
        behind=sum(move.not_yet for move in found),
    )


async def _bring(host: EmbeddingHost, source: Source) -> list[GroupMove]:
    assert source.config.sync_groups is not None
    own = host.leader_address(STATES, WRITTEN_PARTITION)
    here = ClusterClient([own] if own else [], source.client_id, host.security)
    there = ClusterClient([*source.addresses.values()], source.client_id, source.config.security)
    async with here, there:
        found = await group_offsets.moves(here, there, source.config.name, source.config.sync_groups)
        return await group_offsets.bring(here, found)
