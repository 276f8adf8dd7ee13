"""Aggregate mode of one broker: a member of the group of each source that has `mirror.<datacenter>.mode=aggregate`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import uuid4

from headrace.broker.config import sections
from headrace.broker.config.keys import parse_section
from headrace.broker.server.embedding import EmbeddingHost
from headrace.broker.structured_log import get_logger
from headrace.broker.zk.client import ZooKeeperClient, ZooKeeperError
from headrace.mirror.aggregate.group import Group
from headrace.mirror.aggregate.ownership import Ownership
from headrace.mirror.aggregate.registry import Registry
from headrace.mirror.aggregate.session import Session
from headrace.mirror.config import SourceConfig
from headrace.mirror.journal import Journal
from headrace.mirror.source import Source

logger = get_logger(__name__)
PAUSE_SECONDS = 1.0
RETRY_MS = 300
"""Pause before a partition that somebody else owns is claimed again."""


async def run(
    host: EmbeddingHost,
    sources: Sequence[SourceConfig],
    journal: Journal,
    groups: list[Group],
    make_source: Callable[[SourceConfig, asyncio.TaskGroup], Source],
) -> None:
    """Take part until cancelled, with one of `groups` for each source; the session ends with it, so that others need not wait
    for its time-out.
    """
    if not sources:
        return
    zookeeper, session = await _connected(host)
    member = f"{host.broker_id:010d}-{uuid4().hex[:8]}"
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.renew_often())
            for config in sources:
                registry = Registry(zookeeper, config.name, member)
                ownership = Ownership(member, retry_ms=RETRY_MS)
                group = Group(host, journal, make_source(config, tasks), ownership, registry, session, tasks)
                groups.append(group)
                tasks.create_task(group.follow())
                tasks.create_task(group.own())
    finally:
        groups.clear()
        await zookeeper.close()


async def _connected(host: EmbeddingHost) -> tuple[ZooKeeperClient, Session]:
    settings = sections.ZooKeeper(**parse_section(sections.ZooKeeper, host.properties))
    timeout_ms = settings.zookeeper_session_timeout_ms
    while True:
        zookeeper = ZooKeeperClient(
            settings.zookeeper_connect or "",
            session_timeout_ms=timeout_ms,
            connection_timeout_ms=settings.zookeeper_connection_timeout_ms or timeout_ms,
        )
        try:
            await zookeeper.connect()
        except ZooKeeperError as error:
            logger.warning("aggregates wait for ZooKeeper", reason=error)
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        return zookeeper, Session(zookeeper, timeout_ms, host.clock)
