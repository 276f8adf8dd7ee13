"""Aggregate mode of one member, a broker or a process of its own: it is in the group of each source that has
`mirror.<datacenter>.mode=aggregate`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Sequence
from uuid import uuid4

from headrace.broker.config import sections
from headrace.broker.config.keys import parse_section
from headrace.broker.outage import Outage
from headrace.broker.server.embedding import EmbeddingHost
from headrace.broker.structured_log import get_logger
from headrace.broker.zk.access import ZooKeeperAccess
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.znodes import ZooKeeperError
from headrace.mirror.aggregate.cluster import Cluster
from headrace.mirror.aggregate.embedded_cluster import EmbeddedCluster
from headrace.mirror.aggregate.group import Group, Orders
from headrace.mirror.aggregate.ownership import Ownership
from headrace.mirror.aggregate.registry import Registry
from headrace.mirror.aggregate.session import Session
from headrace.mirror.config import SourceConfig
from headrace.mirror.source import Source

logger = get_logger(__name__)
MakeSource = Callable[[SourceConfig, asyncio.TaskGroup], Source]
Connected = tuple[ZooKeeperClient, Session]
PAUSE_SECONDS = 1.0
RETRY_MS = 300
"""Pause before a partition that somebody else owns is claimed again."""


class ConnectError(Exception):
    """There is no such ensemble, or it is another cluster's."""


async def run(
    host: EmbeddingHost,
    sources: Sequence[SourceConfig],
    orders: Orders,
    groups: list[Group],
    make_source: MakeSource,
) -> None:
    """Take part as a broker until cancelled."""
    if sources:
        cluster = EmbeddedCluster(host)
        await take_part(await _connected(cluster), cluster, sources, orders, groups, make_source)


async def take_part(
    connected: Connected,
    cluster: Cluster,
    sources: Sequence[SourceConfig],
    orders: Orders,
    groups: list[Group],
    make_source: MakeSource,
) -> None:
    """Take part until cancelled, with one of `groups` for each source; the session ends with it, so that others need not wait
    for its time-out.
    """
    zookeeper, session = connected
    member = f"{cluster.member_id:010d}-{uuid4().hex[:8]}"
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.renew_often())
            for config in sources:
                registry = Registry(zookeeper, config.name, member)
                ownership = Ownership(member, retry_ms=RETRY_MS)
                source = make_source(config, tasks)
                group = Group(cluster, orders, source, ownership, registry, session, tasks)
                groups.append(group)
                tasks.create_task(group.follow())
                tasks.create_task(group.own())
    finally:
        groups.clear()
        await zookeeper.close()


async def connect_to_its_own(cluster: Cluster) -> Connected:
    """The same, where the ensemble is seen to be that cluster's: members that met elsewhere would not know of each other, and
    bring everything twice. Raises ConnectError.
    """
    try:
        zookeeper, session = await connect(cluster)
        znode = await zookeeper.get("/cluster/id")
    except ZooKeeperError as error:
        raise ConnectError(str(error)) from error
    found = ""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        found = json.loads(znode.data)["id"] if znode is not None else ""
    if found == cluster.cluster_id:
        return zookeeper, session
    await zookeeper.close()
    raise ConnectError(
        f"zookeeper.connect is of {f'the cluster {found}' if found else 'no cluster'}, and bootstrap.servers of the cluster "
        f"{cluster.cluster_id}: give both of the target, with its chroot"
    )


async def connect(cluster: Cluster) -> Connected:
    """A session of the member's own; raises ZooKeeperError."""
    settings = sections.ZooKeeper(**parse_section(sections.ZooKeeper, cluster.properties))
    timeout_ms = settings.zookeeper_session_timeout_ms
    zookeeper = ZooKeeperClient(
        settings.zookeeper_connect or "",
        session_timeout_ms=timeout_ms,
        connection_timeout_ms=settings.zookeeper_connection_timeout_ms or timeout_ms,
        access=ZooKeeperAccess.of(cluster.properties, os.environ),
    )
    await zookeeper.connect()
    return zookeeper, Session(zookeeper, timeout_ms, cluster.clock)


async def _connected(cluster: Cluster) -> Connected:
    outage = Outage()
    while True:
        try:
            return await connect(cluster)
        except ZooKeeperError as error:
            if outage.failed(cluster.clock.monotonic_ms()):
                logger.warning("aggregates wait for ZooKeeper", reason=error, failed=outage.count)
            await asyncio.sleep(PAUSE_SECONDS)
