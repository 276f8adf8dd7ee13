"""The cluster of the broker that a member lives in: what it knows is the broker's own knowledge."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from headrace.broker.client.security import ClientSecurity
from headrace.broker.clock import Clock
from headrace.broker.server.embedding import EmbeddingHost, NewTopic
from headrace.broker.wire.client.view import Address
from headrace.mirror import lineage
from headrace.mirror.aggregate.cluster import Outcome

TIMEOUT_MS = 10_000


class EmbeddedCluster:
    """A `Cluster`."""

    def __init__(self, host: EmbeddingHost) -> None:
        self._host = host

    @property
    def member_id(self) -> int:
        return self._host.broker_id

    @property
    def cluster_id(self) -> str:
        return self._host.cluster_id

    @property
    def clock(self) -> Clock:
        return self._host.clock

    @property
    def properties(self) -> Mapping[str, str]:
        return self._host.properties

    @property
    def security(self) -> ClientSecurity:
        return self._host.security

    def leader_address(self, topic: str, partition: int) -> Address | None:
        return self._host.leader_address(topic, partition)

    def refresh_soon(self) -> None:
        """A broker is told of each change."""

    async def look_at(self, topics: Collection[str]) -> None:
        """A broker knows all of them."""

    def partition_count(self, topic: str) -> int | None:
        known = self._host.metadata.topics(topic)
        return None if known is None else len(known)

    def configs_of(self, topic: str) -> Mapping[str, str]:
        return self._host.configurations.of_topic(topic)

    async def create(self, topic: str, count: int, configs: Mapping[str, str]) -> Outcome:
        new = NewTopic(name=topic, partition_count=count, configs=dict(configs))
        (result,) = await self._host.topics.create([new], timeout_ms=TIMEOUT_MS)
        return result.error, result.message or ""

    async def grow(self, topic: str, count: int) -> Outcome:
        result = await self._host.topics.grow(topic, count, None, timeout_ms=TIMEOUT_MS, validate_only=False)
        return result.error, result.message or ""

    async def mark(self, topic: str, configs: Mapping[str, str]) -> None:
        def marked(overrides: Mapping[str, str]) -> dict[str, str]:
            return {**overrides, **lineage.with_merged(overrides, configs)}

        async with asyncio.timeout(TIMEOUT_MS / 1000):
            await self._host.configurations.alter_topic(topic, marked, validate_only=False)
