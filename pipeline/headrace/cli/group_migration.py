"""Moves a group's offsets from `/consumers/<group>/offsets` in ZooKeeper to `__consumer_offsets`.

Invariant: an offset leaves ZooKeeper only after the brokers confirmed it, so a move that breaks off is begun again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.errors import KafkaError
from headrace.broker.legacy.zookeeper_offsets import ZooKeeperOffsets
from headrace.broker.zk.access import ZooKeeperAccess
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.znodes import ZooKeeperError
from headrace.cli.asking import admin_client, asked, reason_of
from headrace.cli.coordinator import await_coordinator
from headrace.cli.shared import TIMEOUT_SECONDS

COORDINATOR_SECONDS_MAX = 30.0
"""The first commit of a cluster makes `__consumer_offsets`."""

Offsets = dict[tuple[str, int], int]
T = TypeVar("T")


def migrate(
    bootstrap: Bootstrap, zookeeper: str, access: ZooKeeperAccess, group: str
) -> tuple[Offsets, Offsets]:
    """(what was moved, what was dropped since its partition is no more). Raises ClickException."""
    found = _ask(zookeeper, access, lambda offsets: offsets.of_group(group))
    if not found:
        raise click.ClickException(f"ZooKeeper holds no offsets of group {group!r}; nothing was changed.")
    topics = asked("list topics", lambda: admin_client(bootstrap).list_topics(timeout=TIMEOUT_SECONDS)).topics
    moved = {
        (topic, partition): offset
        for (topic, partition), offset in found.items()
        if topic in topics and partition in topics[topic].partitions
    }
    commit(bootstrap, group, moved)
    _ask(zookeeper, access, lambda offsets: offsets.forget(group))
    return moved, {key: offset for key, offset in found.items() if key not in moved}


def commit(bootstrap: Bootstrap, group: str, offsets: Offsets) -> None:
    """Commit for a group without members. Raises ClickException."""
    if not offsets:
        return
    wanted = ConsumerGroupTopicPartitions(
        group, [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    )
    await_coordinator(bootstrap, group, COORDINATOR_SECONDS_MAX)
    client = admin_client(bootstrap)
    answer = asked(
        f"commit offsets of group {group}",
        client.alter_consumer_group_offsets([wanted], request_timeout=TIMEOUT_SECONDS)[group].result,
    )
    for partition in answer.topic_partitions:
        if partition.error is not None:
            raise click.ClickException(
                f"{partition.topic}-{partition.partition} was refused: {reason_of(partition.error)}. "
                "ZooKeeper is as it was; stop the group's consumers and try again."
            )


def _ask(zookeeper: str, access: ZooKeeperAccess, work: Callable[[ZooKeeperOffsets], Awaitable[T]]) -> T:
    async def run() -> T:
        session_ms = int(TIMEOUT_SECONDS * 1000)
        client = ZooKeeperClient(
            zookeeper, session_timeout_ms=session_ms, connection_timeout_ms=session_ms, access=access
        )
        await client.connect()
        try:
            return await work(ZooKeeperOffsets(client))
        finally:
            await client.close()

    try:
        return asyncio.run(run())
    except (ConfigurationError, KafkaError, ZooKeeperError) as error:
        raise click.ClickException(f"{error}.") from error
