"""An administrator of a simulated cluster: makes, grows, configures and deletes topics, by request and by znode.

It goes on until `is_done`, whatever becomes of the brokers meanwhile; what fails is not tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.broker.errors import KafkaError
from headrace.broker.replication.model import ReplicaAssignment, TopicAssignment
from headrace.broker.replication.topic_requests import NewTopic, TopicResult
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.zk import paths
from headrace.broker.zk.znodes import ZooKeeperError

if TYPE_CHECKING:
    from cluster_world import World
    from node import Node

TIMEOUT_MS = 5000


class Administrator:
    """One of them, for topics of a few names."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._znodes = world.ensemble
        self._count = 0
        self.is_done = False

    async def run(self) -> None:
        actions: tuple[tuple[Callable[[str], Awaitable[object]], int], ...] = (
            (self.create, 50),
            (self._delete, 20),
            (self._grow, 12),
            (self._configure, 8),
            (self._create_by_znode, 6),
            (self._delete_by_znode, 6),
            (self._grow_by_znode, 6),
            (self._configure_by_znode, 6),
        )
        works, weights = zip(*actions, strict=True)
        while not self.is_done:
            await asyncio.sleep(self._random.uniform(0, 0.5))
            self._count += 1
            name = f"topic-{self._count % 4}"
            self._wish_for_preferred_leaders(name)
            (work,) = self._random.choices(works, weights)
            self._world.tell(f"{work.__name__} {name}")
            await work(name)

    async def create(self, name: str, seconds: float = 5) -> TopicResult | None:
        """What became of it; None when nobody answered in time."""
        topic = NewTopic(name=name, partition_count=2, replication_factor=1)

        async def work(node: Node) -> list[TopicResult]:
            return await node.cluster.topics.create([topic], timeout_ms=TIMEOUT_MS)

        return await self._world.ask(work, seconds)

    async def _delete(self, name: str) -> None:
        await self._world.ask(
            lambda node: node.cluster.topics.delete([name], timeout_ms=TIMEOUT_MS), seconds=5
        )

    async def _grow(self, name: str) -> None:
        async def work(node: Node) -> list[TopicResult]:
            count = len(node.metadata.topics(name) or ()) + 1
            return [
                await node.cluster.topics.grow(name, count, None, timeout_ms=TIMEOUT_MS, validate_only=False)
            ]

        await self._world.ask(work, seconds=5)

    async def _configure(self, name: str) -> None:
        """Any broker does that."""
        serving = [node for node in self._world.live() if node.is_serving]
        if not serving:
            return
        try:
            async with asyncio.timeout(5):
                await self._random.choice(serving).cluster.configurations.alter_topic(
                    name, lambda overrides: {**overrides, "retention.ms": self._value()}, validate_only=False
                )
        except (TimeoutError, ZooKeeperError, KafkaError) as error:
            self._world.tell(f"not configured: {error!r}")

    async def _create_by_znode(self, name: str) -> None:
        """As tools before KIP-516 did: without a topic id."""
        if not {paths.topic(name), paths.delete_topic(name)} & self._znodes.znodes.keys():
            config = paths.entity_config("topics", name)
            if config not in self._znodes.znodes:
                self._put(config, paths.encode_config({}))
            replica = self._random.choice(sorted(self._world.nodes))
            partitions = {0: ReplicaAssignment(replicas=(replica,))}
            topic = TopicAssignment(topic=name, topic_id=ZERO_UUID, partitions=partitions)
            self._put(paths.topic(name), paths.encode_topic(topic))

    async def _delete_by_znode(self, name: str) -> None:
        doomed = self._random.choice((name, name, "nowhere"))
        if paths.delete_topic(doomed) not in self._znodes.znodes:
            self._put(paths.delete_topic(doomed), b"")

    async def _grow_by_znode(self, name: str) -> None:
        znode = self._znodes.znodes.get(paths.topic(name))
        if znode is None:
            return
        topic = paths.decode_topic(name, znode.data)
        added = ReplicaAssignment(replicas=(self._random.choice(sorted(self._world.nodes)),))
        grown = replace(topic, partitions={**topic.partitions, len(topic.partitions): added})
        self._znodes.set(paths.topic(name), paths.encode_topic(grown), -1)

    async def _configure_by_znode(self, name: str) -> None:
        path = paths.entity_config("topics", name)
        if path in self._znodes.znodes:
            self._znodes.set(path, paths.encode_config({"retention.ms": self._value()}), -1)
            self._put(paths.CONFIG_CHANGE_PREFIX, paths.encode_config_change(f"topics/{name}"), sequence=True)

    def _wish_for_preferred_leaders(self, topic: str) -> None:
        if paths.PREFERRED_ELECTION not in self._znodes.znodes:
            wishes = (paths.encode_preferred_election([(topic, 0), ("nowhere", 7)]), b"no JSON")
            self._put(paths.PREFERRED_ELECTION, self._random.choice(wishes))

    def _put(self, path: str, data: bytes, *, sequence: bool = False) -> None:
        self._znodes.create(path, data, 0, sequence=sequence, makepath=True)

    def _value(self) -> str:
        return str(self._random.randint(1000, 9999))
