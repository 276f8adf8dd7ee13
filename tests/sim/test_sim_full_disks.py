"""Whole brokers whose disks fill up one after the other: others lead what a full one led, as long as that helps.

DISK_SEEDS=7 python -m pytest -m "" tests/sim/test_sim_full_disks.py replays one; DISK_SEEDS=0-99 tries a hundred.
"""

from __future__ import annotations

import asyncio
import os

import pytest
from broker_simulation import Simulation
from long_runs import first_of
from node import Node
from replicas_seen import state_of
from virtual_time import VirtualLoop
from world import run_and_check, unforeseen_failures, until

from headrace.broker.replication.model import PartitionState

FIRST, _, LAST = os.environ.get("DISK_SEEDS", "0-29").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
SEEDS_IN_SHORT = 2
GETS_ON_SECONDS_MAX = 30.0


class FullDisks(Simulation):
    """No faults but disks without room; three brokers, `min.insync.replicas` is 2."""

    async def _drive(self) -> None:
        try:
            await self._fill_and_clear()
        except TimeoutError:
            self.history.stuck.append(f"did not get on: {self._description()}")

    async def _fill_and_clear(self) -> None:
        nodes = list(self.world.nodes.values())
        await self._all_are_written()
        first = self._leader()
        self._fill(first)
        await self._all_are_written()
        assert self._led_by(first) == 0, "others lead all of it"
        second = self._leader()
        self._fill(second)
        third = next(node for node in nodes if node not in (first, second))
        self._fill(third)
        await asyncio.sleep(20)
        led = self._leaders()
        await asyncio.sleep(60)
        assert self._leaders() == led, "nothing moves where no move helps"
        assert all(leader >= 0 for leader, _ in led), "somebody answers those who read"
        self.world.tell("room on two disks")
        first.make_room()
        third.make_room()
        await self._all_are_written()
        self.world.tell("heal")
        second.make_room()
        async with asyncio.timeout(GETS_ON_SECONDS_MAX):
            await self._get_on()

    def _fill(self, node: Node) -> None:
        self.world.tell(f"{node.name} is full")
        node.fill_disk(self.random.choice((0, 100, 1000)))

    async def _all_are_written(self) -> None:
        """Each partition takes a message of each producer."""
        before = [producer.acknowledged.copy() for producer in self.producers]
        async with asyncio.timeout(GETS_ON_SECONDS_MAX):
            await until(
                lambda: all(
                    producer.acknowledged[place] > earlier[place]
                    for producer, earlier in zip(self.producers, before, strict=True)
                    for place in self.places
                )
            )

    def _states(self) -> list[PartitionState]:
        states = [state_of(self.world, place) for place in self.places]
        return [state for state in states if state is not None]

    def _leaders(self) -> list[tuple[int, int]]:
        return [(state.leader, state.leader_epoch) for state in self._states()]

    def _leader(self) -> Node:
        """Who leads the first partition."""
        (leader,) = (n for n in self.world.nodes.values() if n.broker_id == self._states()[0].leader)
        return leader

    def _led_by(self, node: Node) -> int:
        return sum(state.leader == node.broker_id for state in self._states())


@pytest.mark.parametrize("seed", first_of(SEEDS_IN_SHORT, SEEDS))
def test_others_lead_what_a_full_disk_held_and_all_are_in_sync_once_there_is_room(seed: int) -> None:
    with unforeseen_failures() as failures, VirtualLoop() as loop:
        # Even seeds have three brokers, and nobody moves partitions.
        simulation = FullDisks(loop, 2 * seed, factor=3)
        run_and_check(simulation.world, 2 * seed, simulation.run(), failures)
