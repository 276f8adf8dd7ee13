"""Waiting until what was wished for topics shows: in the metadata cache, and in the list of deletions under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from headrace.broker.replication.model import NO_LEADER, TopicAssignment
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.reads import read_topics

T = TypeVar("T")


class Deadline:
    """The end of the time that a request grants."""

    def __init__(self, timeout_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + timeout_ms / 1000

    @property
    def left_seconds(self) -> float:
        """What is left; 0 or less when it is over."""
        return self._end - self._loop.time()


class TopicWaits:
    """Whoever waits looks again at each change of the cache."""

    def __init__(self, zookeeper: ZooKeeperClient, metadata: MetadataCache) -> None:
        self._zookeeper = zookeeper
        self._metadata = metadata
        self._waiting: set[asyncio.Event] = set()
        metadata.on_change(self._look_again)

    def is_led(self, topic: str, count: int = 1) -> bool:
        """Whether the cache shows that many partitions, all of them led."""
        partitions = self._metadata.topics(topic) or {}
        return len(partitions) >= count and all(p.leader != NO_LEADER for p in partitions.values())

    async def until_removed(self, names: Iterable[str], deadline: Deadline) -> set[str]:
        """Wait for the end of the deletions of these topics; answers those that are not over: they wait for
        a broker that is away, or the time ran out.
        """
        doomed = set(names) & set(await self._zookeeper.children(paths.DELETE_TOPICS))
        if not doomed or deadline.left_seconds <= 0:
            return doomed
        topics = await read_topics(self._zookeeper, sorted(doomed))
        present = set(doomed)

        def listed(names: list[str]) -> None:
            nonlocal present
            present = doomed & set(names)
            self._look_again()

        subscription = self._zookeeper.watch_children(paths.DELETE_TOPICS, listed)
        try:
            await self.until(
                doomed,
                lambda t: t not in present or self._is_held_up(topics.get(t)),
                deadline,
            )
        finally:
            subscription.cancel()
        return present

    async def until(self, names: Iterable[T], holds: Callable[[T], bool], deadline: Deadline) -> set[T]:
        """Wait for `holds(name)` of each; answers those for which the time ran out."""
        pending = {name for name in names if not holds(name)}
        if not pending or deadline.left_seconds <= 0:
            return pending
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            async with asyncio.timeout(deadline.left_seconds):
                while pending:
                    await changed.wait()
                    changed.clear()
                    pending = {name for name in pending if not holds(name)}
        except TimeoutError:
            return pending
        finally:
            self._waiting.discard(changed)
        return pending

    def _is_held_up(self, topic: TopicAssignment | None) -> bool:
        """Whether a broker that holds part of the topic is away."""
        partitions = {} if topic is None else topic.partitions
        return any(b not in self._metadata.brokers for a in partitions.values() for b in a.replicas)

    def _look_again(self) -> None:
        for event in self._waiting:
            event.set()
