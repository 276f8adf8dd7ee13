"""Three brokers with clients through a time of faults and a time without, under one seed.

What happens to the brokers is in `broker_faults`, what clients were promised and saw in a history. After the last fault
everything gets on within `RECOVERY_SECONDS_MAX`: each partition takes writes, the group reads to the end, topics are made, all
replicas are in sync. With factor 1 nobody survives a power cut, unless every write is flushed: odd seeds do that. With factor 3
odd seeds have a fourth broker, and somebody moves partitions all the time; every other one of those holds back replicas that are
out of sync. One reader reads from the broker in its rack whenever it may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from broker_faults import Faults
from clients import (
    Client,
    Consumer,
    IdempotentProducer,
    Mover,
    PlainProducer,
    Publisher,
    RackReader,
    Reader,
    RefusedError,
    TopicMaker,
)
from history import Violation, findings
from replicas_seen import assignment_of, contents, is_settled, places_of, replicas_of, state_of
from virtual_time import VirtualLoop
from world import World, run_and_check, unforeseen_failures, until

from headrace.broker.errors import ErrorCode
from headrace.broker.wire.partitions import PartitionKey

STEPS_COUNT = {1: 8, 3: 14}
RECOVERY_SECONDS_MAX = 60.0
TOPIC, OFFSETS = "events", "__consumer_offsets"
FLUSHED = {"log.flush.interval.messages": "1"}
REPLICATED = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "3000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
HELD_BACK = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}
THROTTLED = {"leader.replication.throttled.rate": "3000", "follower.replication.throttled.rate": "3000"}
"""Bytes a second of all replicas that are out of sync: some seconds' worth of what is published."""


class Simulation:
    """One run; `history` and `stories` tell of it."""

    def __init__(self, loop: VirtualLoop, seed: int, factor: int) -> None:
        self.factor = factor
        has_moves = factor > 1 and seed % 2 == 1
        self.is_flushed = factor == 1 and seed % 2 == 1
        settings = REPLICATED if factor > 1 else FLUSHED if self.is_flushed else {}
        if factor > 1 and seed % 4 == 1:
            settings = settings | THROTTLED
        world = self.world = World(loop, seed, 4 if has_moves else 3, settings)
        history = self.history = world.history
        self.random = world.random
        self.places: list[PartitionKey] = [(TOPIC, number) for number in range(2 if factor > 1 else 4)]
        self.maker = TopicMaker(world, "maker", history, factor, HELD_BACK if factor > 1 else {})
        self.producers: list[Publisher] = [
            IdempotentProducer(world, "producer-0", history, self.places),
            IdempotentProducer(world, "producer-1", history, self.places),
            PlainProducer(world, "producer-2", history, self.places),
        ]
        self.consumers = [Consumer(world, f"consumer-{n}", history, self.places) for n in range(2)]
        self.readers = [Reader(world, f"reader-{n}", history, self.places[n]) for n in range(2)]
        if factor > 1:
            self.readers.append(RackReader(world, "rack reader", history, self.places[0], seed % 3))
        self.movers = [Mover(world, "mover", history, self.places)] if has_moves else []
        names = [client.name for client in (*self.producers, *self.consumers, *self.readers)]
        self.faults = Faults(world, names, (TOPIC, OFFSETS), factor, self.is_flushed)
        self.logs: dict[PartitionKey, dict[int, bytes]] = {}
        self._running: list[asyncio.Task[None]] = []

    async def run(self) -> list[Violation]:
        """All that it found."""
        world = self.world
        world.start_dead()
        await self.maker.until_done([], lambda: self.maker.create(TOPIC, len(self.places)))
        works = [producer.run() for producer in self.producers]
        works += [consumer.run() for consumer in self.consumers]
        works += [reader.run() for reader in self.readers]
        works += [mover.run() for mover in self.movers]
        self._running = [world.loop.create_task(work) for work in (*works, self.maker.run())]
        driver = world.loop.create_task(self._drive())
        left = {driver, *self._running}
        while driver in left:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            self._check(done)
            if self.history.stuck:
                break
        for task in left:
            task.cancel()
        for topic in (TOPIC, OFFSETS):
            for place in places_of(world, topic):
                for node, partition in replicas_of(world, place):
                    state = state_of(world, place)
                    if state is not None and node.broker_id in state.isr:
                        found = contents(partition.log)
                        # Two commits may be the same.
                        held = found if topic == TOPIC else replace(found, values={})
                        self.history.replicas[place][node.broker_id] = held
        for node in world.live():
            await node.stop()
        return findings(self.history)

    def _check(self, done: Iterable[asyncio.Task[None]]) -> None:
        """None of what clients and faults do ends with an error that nobody expects."""
        for task in done:
            try:
                task.result()
            except RefusedError as error:
                self.history.stuck.append(f"a client was refused for good: {error}")

    async def _drive(self) -> None:
        await asyncio.sleep(self.random.uniform(0.5, 2))
        for _ in range(STEPS_COUNT[self.factor]):
            await self.faults.harm()
            await asyncio.sleep(self.random.uniform(0, self.random.choice((0.2, 1.0, 3.0))))
        self.world.tell("heal")
        self.faults.heal()
        try:
            async with asyncio.timeout(RECOVERY_SECONDS_MAX):
                await self._get_on()
        except TimeoutError:
            self.history.stuck.append(f"not whole after {RECOVERY_SECONDS_MAX} s: {self._description()}")

    async def _get_on(self) -> None:
        """Every broker serves, every producer's write is taken by each partition, and all of it is consumed."""
        while not all(node.is_serving for node in self.world.nodes.values()):
            self.world.start_dead()
            await asyncio.sleep(0.2)
        before = [producer.acknowledged.copy() for producer in self.producers]
        await until(
            lambda: all(
                producer.acknowledged[place] > earlier[place]
                for producer, earlier in zip(self.producers, before, strict=True)
                for place in self.places
            )
        )
        self.maker.is_over = True
        for producer in self.producers:
            producer.is_over = True
        for mover in self.movers:
            mover.is_over = True
        await asyncio.wait([task for task, _ in zip(self._running, self.producers, strict=False)])
        reader = Client(self.world, "last reader", self.history)
        for place in self.places:
            self.logs[place] = await self._whole(reader, place)
        await until(
            lambda: all(self.history.committed.get(place, -1) >= len(log) for place, log in self.logs.items())
        )
        if self.factor > 1:
            await until(lambda: all(is_settled(self.world, place, self.factor) for place in self.places))
        maker = TopicMaker(self.world, "last maker", self.history, self.factor)
        code = await maker.until_done([], lambda: maker.create("last"))
        assert code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def _whole(self, reader: Client, place: PartitionKey) -> dict[int, bytes]:
        log: dict[int, bytes] = {}

        async def more() -> dict[int, bytes]:
            return await reader.fetch(place, len(log), max_wait_ms=0)

        while found := await reader.until_done([place[0]], more):
            log |= found
        return log

    def _description(self) -> str:
        lines = [
            f"{node.name}: dead={node.is_dead} serving={node.is_serving} {node.failure or ''}"
            for node in self.world.nodes.values()
        ]
        lines += [f"{producer.name}: {dict(producer.acknowledged)}" for producer in self.producers]
        lines.append(
            f"committed {self.history.committed}, ends { ({p: len(log) for p, log in self.logs.items()}) }"
        )
        for place in self.places:
            ends = {
                n.name: (p.log.log_end_offset, p.log.high_watermark)
                for n, p in replicas_of(self.world, place)
            }
            lines.append(f"{place}: {state_of(self.world, place)} {assignment_of(self.world, place)} {ends}")
        return "\n".join(lines)


def simulate(seed: int, factor: int = 1) -> Simulation:
    """A whole run; an AssertionError says what the brokers broke, and its notes the seed and what happened."""
    with unforeseen_failures() as failures, VirtualLoop() as loop:
        simulation = Simulation(loop, seed, factor)
        run_and_check(simulation.world, seed, simulation.run(), failures)
        return simulation
