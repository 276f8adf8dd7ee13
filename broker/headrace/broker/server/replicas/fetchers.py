"""What this broker follows, and the fetchers that bring it: one a leader and `num.replica.fetchers` slot.

Owns which fetcher has which partition: it takes from `Partitions` what the controller said, and starts and ends fetchers as
that needs. Invariants: a partition is fetched by one fetcher at most, in the leader epoch that the controller told last; one
that this broker leads, lost or stopped is fetched by none, nor is one that it led until it began to stop, of whose in-sync
replicas the controller took it off with that. What a fetcher does is `replica_fetcher`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

from headrace.broker.replication.follower import Follower, Phase
from headrace.broker.replication.partition import Partition
from headrace.broker.server.replicas.fetcher import ReplicaFetcher
from headrace.broker.server.replicas.followed import FetchContext, Followed
from headrace.broker.tasks import Tasks
from headrace.broker.wire.partitions import PartitionKey

FetcherKey = tuple[int, int]
"""The leader, and which of the fetchers that ask it."""


class SourceFigures(NamedTuple):
    """What the metrics tell of one leader's partitions."""

    source: int
    partitions: int
    lag_max: int
    failed: int


class ReplicaFetchers:
    """See the module's text; `changed` is to be told of every change of a partition."""

    def __init__(self, context: FetchContext, tasks: Tasks) -> None:
        self._context = context
        self._tasks = tasks
        self._fetchers: dict[FetcherKey, tuple[ReplicaFetcher, asyncio.Task[None]]] = {}
        self._places: dict[PartitionKey, FetcherKey] = {}
        self._is_sweeping = False

    def changed(self, partition: Partition) -> None:
        """The partition became led or followed, was stopped or deleted, or is in another leader epoch."""
        key = (partition.topic, partition.partition)
        place = self._place_of(partition)
        before = self._places.pop(key, None)
        if before is not None and before != place:
            self._fetchers[before][0].drop(key)
            self._sweep_soon()
        if place is not None:
            self._places[key] = place
            self._fetcher(place).follow(self._followed(partition))

    def _place_of(self, partition: Partition) -> FetcherKey | None:
        """Which fetcher brings it; None for a partition that is not followed."""
        context = self._context
        key = (partition.topic, partition.partition)
        if partition.leader in (-1, context.broker_id) or context.partitions.get(*key) is not partition:
            return None
        if context.is_leaving() and context.broker_id not in partition.isr:
            # Nobody waits for it, and its new leader would only propose to have it in sync again.
            return None
        slots = context.config.num_replica_fetchers
        return partition.leader, crc32(f"{key[0]}-{key[1]}".encode()) % max(1, slots)

    def _followed(self, partition: Partition) -> Followed:
        follower = Follower(
            partition.topic,
            partition.partition,
            partition.log,
            leader_epoch=partition.leader_epoch,
            backoff_ms=self._context.config.replica_fetch_backoff_ms,
        )
        return Followed(follower, partition)

    def _fetcher(self, place: FetcherKey) -> ReplicaFetcher:
        found = self._fetchers.get(place)
        if found is None or found[1].done():
            fetcher = ReplicaFetcher(self._context, place[0], place[1])
            task = self._tasks.start(f"replica-fetcher-{place[0]}-{place[1]}", fetcher.run())
            found = self._fetchers[place] = fetcher, task
        return found[0]

    def _sweep_soon(self) -> None:
        """Fetchers without partitions end once all changes that come together are in."""
        if not self._is_sweeping:
            self._is_sweeping = True
            asyncio.get_running_loop().call_soon(self._sweep)

    def _sweep(self) -> None:
        self._is_sweeping = False
        for place in [place for place, (fetcher, _) in self._fetchers.items() if not fetcher.followed]:
            self._fetchers.pop(place)[1].cancel()

    def figures(self) -> Iterable[SourceFigures]:
        """Of each leader that is followed."""
        by_source: dict[int, list[Follower]] = {}
        for (source, _), (fetcher, _) in self._fetchers.items():
            followers = (followed.follower for followed in fetcher.followed.values())
            by_source.setdefault(source, []).extend(followers)
        for source, found in sorted(by_source.items()):
            yield SourceFigures(
                source,
                len(found),
                max((follower.lag or 0 for follower in found), default=0),
                sum(follower.phase is Phase.FAILED for follower in found),
            )
