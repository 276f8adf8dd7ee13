"""Three brokers with clients through a time of faults and a time without, under one seed.

Processes are killed (with a power cut, where every write is flushed), stopped and paused; connections break and ways are cut;
ZooKeeper goes away. What is acknowledged meanwhile holds, and after the last fault everything gets on within
`RECOVERY_SECONDS_MAX`: each partition takes writes, the group reads to the end, topics are made.
"""

from __future__ import annotations

import asyncio

from clients import Client, Consumer, History, Producer, TopicMaker
from node import Node
from virtual_time import VirtualLoop
from world import World, unforeseen_failures, until

from headrace.broker.errors import ErrorCode
from headrace.broker.wire.partitions import PartitionKey

STEPS_COUNT = 8
RECOVERY_SECONDS_MAX = 60.0
TOPIC, PARTITION_COUNT = "events", 4
PLACES: list[PartitionKey] = [(TOPIC, number) for number in range(PARTITION_COUNT)]
FLUSHED = {"log.flush.interval.messages": "1"}


class Simulation:
    """One run; `history` and `stories` tell of it."""

    def __init__(self, loop: VirtualLoop, seed: int, broker_count: int = 3) -> None:
        self.has_power_cuts = seed % 2 == 1
        self.world = World(loop, seed, broker_count, FLUSHED if self.has_power_cuts else {})
        self.history = history = History()
        self.random = self.world.random
        self.maker = TopicMaker(self.world, "maker", history)
        self.producers = [
            Producer(self.world, f"producer-{number}", history, PLACES, idempotent=number < 2)
            for number in range(3)
        ]
        self.consumers = [Consumer(self.world, f"consumer-{number}", history, PLACES) for number in range(2)]
        self.logs: dict[PartitionKey, dict[int, bytes]] = {}
        self._running: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        world = self.world
        world.start_dead()
        await self.maker.until_done([], lambda: self.maker.create(TOPIC, PARTITION_COUNT))
        works = [producer.run() for producer in self.producers]
        works += [consumer.run() for consumer in self.consumers]
        self._running = [world.loop.create_task(work) for work in (*works, self.maker.run())]
        driver = world.loop.create_task(self._drive())
        left = {driver, *self._running}
        while driver in left:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        for task in left:
            task.cancel()
        for place, log in self.logs.items():
            self.history.check_log(place, log, {p.name for p in self.producers if p.idempotent})
        for node in world.live():
            await node.stop()

    async def _drive(self) -> None:
        await asyncio.sleep(self.random.uniform(0.5, 2))
        for _ in range(STEPS_COUNT):
            await self._harm()
            await asyncio.sleep(self.random.uniform(0, self.random.choice((0.2, 1.0, 3.0))))
        self.world.tell("heal")
        self.world.network.is_faulty = False
        self.world.network.heal()
        try:
            async with asyncio.timeout(RECOVERY_SECONDS_MAX):
                await self._get_on()
        except TimeoutError:
            raise AssertionError(f"not whole after {RECOVERY_SECONDS_MAX} s: {self._description()}") from None

    async def _harm(self) -> None:
        node = self.random.choice(list(self.world.nodes.values()))
        if node.is_dead:
            self.world.tell(f"{node.name} starts")
            node.start()
            return
        kinds = {"kill": 3, "restart": 3, "stop": 1, "pause": 2, "cut": 2, "session": 1, "zookeeper": 1}
        (kind,) = self.random.choices(list(kinds), list(kinds.values()))
        self.world.tell(f"{kind} {node.name}")
        self.history.happened[kind] += 1
        await self._do(kind, node)

    async def _do(self, kind: str, node: Node) -> None:
        seconds = self.random.choice((0.1, 1.0, 5.0))
        if kind in ("kill", "restart"):
            power_cut = self.has_power_cuts and self.random.random() < 0.5
            self.history.happened["power cut"] += power_cut
            node.kill(self.random if power_cut else None)
            if kind == "restart":
                await asyncio.sleep(self.random.uniform(0, 0.5))
                node.start()
        elif kind == "stop":
            await node.stop()
        elif kind == "pause":
            node.pause(seconds)
        elif kind == "cut":
            others = [*(other.name for other in self.world.nodes.values()), *(p.name for p in self.producers)]
            ends = [node.name, self.random.choice(others)]
            self.random.shuffle(ends)
            self.world.network.cut(*ends)
            await asyncio.sleep(self.random.uniform(0, seconds))
            self.world.network.heal()
        elif kind == "session":
            node.disconnect()
        else:
            await self.world.harm_zookeeper(self.random.uniform(0, seconds))

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
                for place in PLACES
            )
        )
        self.maker.is_over = True
        for producer in self.producers:
            producer.is_over = True
        await asyncio.wait([task for task, _ in zip(self._running, self.producers, strict=False)])
        reader = Client(self.world, "reader", self.history)
        for place in PLACES:
            self.logs[place] = await self._whole(reader, place)
        await until(
            lambda: all(self.history.committed.get(place) == len(log) for place, log in self.logs.items())
        )
        maker = TopicMaker(self.world, "last maker", self.history)
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
            f"{node.name}: dead={node.is_dead} serving={node.is_serving}"
            for node in self.world.nodes.values()
        ]
        lines += [f"{producer.name}: {dict(producer.acknowledged)}" for producer in self.producers]
        lines.append(
            f"committed {self.history.committed}, ends { ({p: len(log) for p, log in self.logs.items()}) }"
        )
        return "\n".join(lines)


def simulate(seed: int) -> Simulation:
    """A whole run; an AssertionError says what the brokers broke, and its notes the seed and what happened."""
    with unforeseen_failures() as failures, VirtualLoop() as loop:
        simulation = Simulation(loop, seed)
        try:
            loop.run_until_complete(simulation.run())
            assert not failures, failures[0]
        except Exception as error:
            error.add_note(f"seed {seed}\n" + "\n".join(simulation.world.stories[-40:]))
            raise
        return simulation
