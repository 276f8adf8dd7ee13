"""Transactions over three brokers to which all kinds of things happen: each is seen whole or not at all.

What its coordinator acknowledged as committed is there once, in all partitions that it wrote to; what was acknowledged as
aborted is nowhere; what nobody was told of is whole or nowhere. Who reads committed messages meanwhile sees nothing else, who
was fenced gets nothing acknowledged, and nothing hangs once all is well again.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from broker_faults import Faults
from clients import TopicMaker
from history import History
from node import Node
from transaction_clients import (
    PLACES,
    TOPICS,
    CommittedReader,
    TransactionalProducer,
    Transactions,
    numbers_of,
)
from virtual_time import VirtualLoop
from world import World

from headrace.broker.log.producers import COMMIT, read_marker
from headrace.broker.replication.partition import Partition
from headrace.broker.wire import batches
from headrace.broker.wire.partitions import PartitionKey

SETTINGS = {
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "producer.id.expiration.ms": "86400000",
}
# Coordinators' logs have no replica on one of the brokers, so that a coordinator which does not reach it goes on.
ON_TWO_BROKERS = {
    **SETTINGS,
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}
WITHOUT_VERIFICATION = {**SETTINGS, "transaction.partition.verification.enable": "false"}
TRANSACTIONS_COUNT = 25
SECONDS_MAX = 900
FAULT_PAUSE_SECONDS_MAX = 3.0
COORDINATORS = "__transaction_state"


class ViolationError(AssertionError):
    """What must not be, was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Who writes, and how much happens meanwhile."""

    producers: int = 1
    is_careful: bool = True
    harm: Literal["any", "coordinators", "network"] = "any"
    """All kinds of faults; or coordinators whose markers arrive once others took over; or nothing but broken connections."""
    break_chance: float = 0.02
    settings: Mapping[str, str] = field(default_factory=lambda: SETTINGS)


RIVALS = Schedule(producers=2)
REPLACED = Schedule(harm="coordinators", settings=ON_TWO_BROKERS)
UNANSWERED = Schedule(harm="network", break_chance=0.2)
SCHEDULES = (Schedule(), RIVALS, REPLACED, UNANSWERED)


def simulate(seed: int, schedule: Schedule | None = None) -> World:
    """Raises ViolationError, or TimeoutError where something hangs, with a note of what happened."""
    with VirtualLoop() as loop:
        schedule = schedule or Schedule()
        world = World(loop, seed, 3, schedule.settings, schedule.break_chance)
        try:
            loop.run_until_complete(_Life(world, schedule).live())
        except Exception as error:
            error.add_note("\n".join(world.stories))
            raise
        return world


class _Life:
    def __init__(self, world: World, schedule: Schedule) -> None:
        self._world, self._schedule = world, schedule
        self._history = History()
        self._transactions = Transactions()
        self._producers = [
            TransactionalProducer(
                world,
                self._history,
                self._transactions,
                TRANSACTIONS_COUNT // schedule.producers,
                f"producer-{number}",
                is_careful=schedule.is_careful,
            )
            for number in range(schedule.producers)
        ]
        self._reader = CommittedReader(world, self._history)

    async def live(self) -> None:
        world = self._world
        world.start_dead()
        maker = TopicMaker(world, "maker", self._history, factor=3)
        for topic in TOPICS:
            await maker.until_done([], lambda: maker.create(topic))  # noqa: B023
        async with asyncio.timeout(SECONDS_MAX):
            await maker.until_done([*TOPICS], lambda: maker.refresh([*TOPICS]))
            names = [producer.name for producer in self._producers]
            faults = Faults(world, [*names, self._reader.name], (*TOPICS, COORDINATORS), 3, is_flushed=False)
            async with asyncio.TaskGroup() as group:
                others = [group.create_task(self._reader.run())]
                if self._schedule.harm == "any":
                    others.append(group.create_task(self._harm(faults)))
                elif self._schedule.harm == "coordinators":
                    others.append(group.create_task(self._replace_coordinators()))
                await asyncio.gather(*(producer.run() for producer in self._producers))
                for other in others:
                    other.cancel()
            faults.heal()
            world.start_dead()
            await self._reader.until_done([*TOPICS], self._reader.settle)
        self._check()
        for node in world.live():
            await node.stop()

    async def _harm(self, faults: Faults) -> None:
        while True:
            await asyncio.sleep(self._world.random.uniform(0.1, FAULT_PAUSE_SECONDS_MAX))
            await faults.harm()

    async def _replace_coordinators(self) -> None:
        """What a coordinator sends to another broker is held up until its successor has taken over, and done its work."""
        world = self._world
        while True:
            await asyncio.sleep(world.random.uniform(0.1, FAULT_PAUSE_SECONDS_MAX))
            for node in world.live():
                led = [p for p in _led_by(node) if p.topic == COORDINATORS]
                others = [other for other in world.live() if other is not node]
                if not led:
                    continue
                other = world.random.choice(others)
                world.tell(f"what {node.name} sends to {other.name} is held up")
                world.network.cut(node.name, other.name)
                await asyncio.sleep(world.random.uniform(0.1, 2.0))
                world.tell(f"the session of {node.name} ends")
                node.expire()
                await asyncio.sleep(world.random.uniform(0.1, 3.0))
                world.network.mend(node.name, other.name)

    def _check(self) -> None:
        transactions, found = (
            self._transactions,
            {place: committed_in(self._world, place) for place in PLACES},
        )
        seen: dict[int, set[PartitionKey]] = defaultdict(set)
        for place, numbers in found.items():
            if twice := [number for number, count in Counter(numbers).items() if count > 1]:
                raise ViolationError(f"{place} has {twice} twice")
            if self._reader.read_numbers[place] != numbers:
                read = self._reader.read_numbers[place]
                raise ViolationError(f"of {place} was read {read}, committed is {numbers}")
            for number in numbers:
                seen[number].add(place)
        if lost := transactions.numbers(is_committed=True) - seen.keys():
            raise ViolationError(f"{lost} are lost")
        if aborted := transactions.numbers(is_committed=False) & seen.keys():
            raise ViolationError(f"{aborted} are seen, which were aborted")
        if torn := [n for n, places in seen.items() if places != transactions.attempted[n].places]:
            raise ViolationError(f"{torn} are seen in part")
        if transactions.by_the_fenced:
            raise ViolationError(f"{transactions.by_the_fenced} were acknowledged to who was fenced")


def committed_in(world: World, place: PartitionKey) -> list[int]:
    """The numbers of the transactions whose values count, in the order of the log, from the leader's log."""
    led = [
        partition
        for node in world.live()
        for partition in _led_by(node)
        if (partition.topic, partition.partition) == place
    ]
    # Who has not heard yet that it was replaced leads in an older epoch.
    log = max(led, key=lambda partition: partition.leader_epoch).log
    data = log.read(0, size_max=2**24, upper_offset=log.log_end_offset).read()
    opened: dict[int, list[tuple[int, int]]] = defaultdict(list)
    found: list[tuple[int, int]] = []
    for position, header in batches.iter_batches(data):
        if header.is_control:
            marker = read_marker(data, position, header)
            assert marker is not None
            values = opened.pop(header.producer_id, [])
            found += values if marker.kind == COMMIT else []
        else:
            numbers = numbers_of(bytes(data), position, header)
            opened[header.producer_id] += [(header.base_offset, number) for number in numbers]
    if opened:
        raise ViolationError(f"a transaction hangs in {place}")
    return [number for _, number in sorted(found)]


def _led_by(node: Node) -> list[Partition]:
    partitions = None if node.broker is None else node.broker.partitions
    return [] if partitions is None else [*partitions.led()]
