"""A live cluster and an offline one that mirrors it, whole brokers all, through a time of faults and a time without.

Clients publish to the live cluster and read there and from the copies. Faults hit the brokers of both, and the ways between.
After the last fault every copy equals its source within `RECOVERY_SECONDS_MAX`: the same values at the same offsets on all
replicas.
Both clusters keep what they acknowledged all the time, so there is never anything for the mirror to find: a finding is a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from broker_faults import Faults
from clients import IdempotentProducer, PlainProducer, Publisher, Reader, RefusedError, TopicMaker
from history import Violation, findings
from network import Network, SimulatedLink
from replicas_seen import contents, is_settled, places_of, replicas_of, state_of
from virtual_time import VirtualLoop
from world import World, run_and_check, unforeseen_failures, until

from headrace.broker.client.asynchronous import AsyncLink
from headrace.broker.client.security import PLAINTEXT, ClientSecurity
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror.memory.own_topics import FINDINGS, OWN_TOPICS

TOPIC, SOURCE = "events", "dc-east"
COPY = f"{SOURCE}.{TOPIC}"
PARTITIONS = 2
EAST_FIRST, EAST_COUNT = 10, 2
OFFLINE_COUNT = 3
STEPS_COUNT = 10
RECOVERY_SECONDS_MAX = 120.0
REPLICATED = {"replica.lag.time.max.ms": "3000", "replica.high.watermark.checkpoint.interval.ms": "1000"}
EAST = REPLICATED | {"offsets.topic.replication.factor": "2"}
OFFLINE = REPLICATED | {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "mirror.sources": SOURCE,
    f"mirror.{SOURCE}.bootstrap.servers": ",".join(
        f"broker-{number}:9092" for number in range(EAST_FIRST, EAST_FIRST + EAST_COUNT)
    ),
    "mirror.metadata.max.age.ms": "1000",
}


class MirroredClusters:
    """One run; the stories of `offline` tell of both. `copy` is what the topic is brought into there."""

    settings, copy = OFFLINE, COPY

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        offline = self.offline = World(loop, seed, OFFLINE_COUNT, self.settings)
        east = self.east = World(
            loop, seed + 1, EAST_COUNT, EAST, first_id=EAST_FIRST, network=offline.network
        )
        east.stories = offline.stories
        self.random = offline.random
        self.places: list[PartitionKey] = [(TOPIC, number) for number in range(PARTITIONS)]
        self.maker = TopicMaker(east, "maker", east.history, EAST_COUNT)
        self.producers: list[Publisher] = [
            IdempotentProducer(east, "producer-0", east.history, self.places),
            PlainProducer(east, "producer-1", east.history, self.places),
        ]
        self.readers = [
            Reader(east, "reader", east.history, (TOPIC, 0)),
            Reader(offline, "reader of the copy", offline.history, (self.copy, 0)),
        ]
        names = [client.name for client in (*self.producers, *self.readers)]
        own = OWN_TOPICS.keys()
        self.faults = [
            Faults(east, [*names, *(node.name for node in offline.nodes.values())], (TOPIC,), 2, False),
            Faults(offline, names, (self.copy, *own), 3, False),
        ]
        self._running: list[asyncio.Task[None]] = []

    async def run(self) -> list[Violation]:
        """All that it found."""
        loop = self.east.loop
        for world in (self.east, self.offline):
            world.start_dead()
        await self.maker.until_done([], lambda: self.maker.create(TOPIC, PARTITIONS))
        works = [*(producer.run() for producer in self.producers), *(reader.run() for reader in self.readers)]
        self._running = [loop.create_task(work) for work in works]
        driver = loop.create_task(self._drive())
        left = {driver, *self._running}
        while driver in left:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            self._check(done)
        for task in left:
            task.cancel()
        await driver
        self._note_replicas()
        for world in (self.east, self.offline):
            for node in world.live():
                await node.stop()
        return [*findings(self.east.history), *findings(self.offline.history)]

    def _check(self, done: Iterable[asyncio.Task[None]]) -> None:
        for task in done:
            try:
                task.result()
            except RefusedError as error:
                raise AssertionError(f"a client was refused for good: {error}") from error

    async def _drive(self) -> None:
        await asyncio.sleep(self.random.uniform(0.5, 10))
        for _ in range(STEPS_COUNT):
            await self.random.choice(self.faults).harm()
            await asyncio.sleep(self.random.uniform(0, self.random.choice((0.2, 1.0, 3.0))))
        self.offline.tell("heal")
        for faults in self.faults:
            faults.heal()
        try:
            async with asyncio.timeout(RECOVERY_SECONDS_MAX):
                await self._get_on()
        except TimeoutError:
            raise AssertionError(f"not whole after {RECOVERY_SECONDS_MAX} s: {self._description()}") from None

    async def _get_on(self) -> None:
        """Every broker serves, each partition takes writes, and each copy becomes what its source is."""
        for world in (self.east, self.offline):
            while not all(node.is_serving for node in world.nodes.values()):
                world.start_dead()
                await asyncio.sleep(0.2)
        before = [producer.acknowledged.copy() for producer in self.producers]
        await until(
            lambda: all(
                producer.acknowledged[place] > earlier[place]
                for producer, earlier in zip(self.producers, before, strict=True)
                for place in self.places
            )
        )
        for producer in self.producers:
            producer.is_over = True
        await asyncio.wait([task for task, _ in zip(self._running, self.producers, strict=False)])
        await until(lambda: all(is_settled(self.east, place, EAST_COUNT) for place in self.places))
        await until(lambda: all(self._is_copied(number) for number in range(PARTITIONS)))

    def _is_copied(self, number: int) -> bool:
        place = COPY, number
        return is_settled(self.offline, place, OFFLINE_COUNT) and (
            _end_of(self.offline, place) == _end_of(self.east, (TOPIC, number))
        )

    def _note_replicas(self) -> None:
        """What is in the logs at the end, for the histories; and compare the clusters."""
        for world, topic in ((self.east, TOPIC), (self.offline, self.copy)):
            for place in places_of(world, topic):
                for node, partition in replicas_of(world, place):
                    world.history.replicas[place][node.broker_id] = contents(partition.log)
        for number in range(PARTITIONS):
            self._compare(number)
        for place in places_of(self.offline, FINDINGS):
            for _, partition in replicas_of(self.offline, place):
                found = contents(partition.log).values
                assert not found, f"the mirror says {found}"

    def _compare(self, number: int) -> None:
        source = next(iter(self.east.history.replicas[TOPIC, number].values()))
        copy = next(iter(self.offline.history.replicas[COPY, number].values()))
        assert copy.values == source.values, f"the copy of {TOPIC}-{number} is another than its source"

    def _description(self) -> str:
        lines = [
            f"{node.name}: dead={node.is_dead} serving={node.is_serving} {node.failure or ''}"
            for world in (self.east, self.offline)
            for node in world.nodes.values()
        ]
        for world, topic in ((self.east, TOPIC), (self.offline, self.copy)):
            for place in places_of(world, topic) or [(topic, -1)]:
                ends = {
                    n.name: (p.log.log_end_offset, p.log.high_watermark, p.is_leader)
                    for n, p in replicas_of(world, place)
                }
                lines.append(f"{place}: {state_of(world, place)} {ends}")
        return "\n".join(lines)


def _end_of(world: World, place: PartitionKey) -> int:
    return max((p.log.log_end_offset for _, p in replicas_of(world, place)), default=-1)


@contextmanager
def mirror_on(network: Network) -> Iterator[None]:
    """The mirrors' connections are the network's; a client's id ends with that of its broker."""

    async def open_(
        _: type[AsyncLink],
        address: Address,
        client_id: str,
        timeout_ms: int,
        *,
        negotiates: bool = True,
        security: ClientSecurity = PLAINTEXT,
    ) -> Any:
        host = f"broker-{client_id.rpartition('-')[2]}"
        return await SimulatedLink.open(network, host, address, client_id, timeout_ms, negotiates=negotiates)

    with patch.object(AsyncLink, "open", classmethod(open_)):
        yield


Clusters = TypeVar("Clusters", bound=MirroredClusters)


def simulate(seed: int, kind: type[Clusters]) -> Clusters:
    """A whole run; an AssertionError says what was broken, and its notes the seed and what happened."""
    with unforeseen_failures() as failures, VirtualLoop() as loop:
        clusters = kind(loop, seed)
        with mirror_on(clusters.offline.network):
            run_and_check(clusters.offline, seed, clusters.run(), failures)
        return clusters
