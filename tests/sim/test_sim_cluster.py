"""Brokers that are killed, freeze and return, a ZooKeeper that goes away, answers that get lost: the cluster becomes whole.

After the last fault there is one controller, every broker names it, a topic can be made, and what ZooKeeper holds is
what the brokers show and lead.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from cluster_world import run
from ensemble import DELAY_SECONDS_MAX, Ensemble, SimulatedKazoo
from long_runs import first_of
from virtual_time import VirtualLoop

from headrace.broker.server.control.term import ControllerMovedError, Term
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient

SEEDS, BLOCK = 90, 25
SEEDS_OF_THREE, BLOCK_OF_THREE = 60, 12


@pytest.mark.acceptance
def test_two_brokers_become_whole_again_from_all_that_the_schedules_are_for() -> None:
    worlds = [run(seed) for seed in range(BLOCK)]
    stories = "\n".join(story for world in worlds for story in world.stories)
    for happening in ("kill", "restart", "freeze", "zookeeper", "break", "breaks", "stop"):
        assert f" {happening} " in stories
    assert max(int(world.ensemble.znodes["/controller_epoch"].data) for world in worlds) >= 5


@pytest.mark.long
@pytest.mark.parametrize("first", range(BLOCK, SEEDS, BLOCK))
def test_two_brokers_become_whole_again(first: int) -> None:
    for seed in range(first, min(first + BLOCK, SEEDS)):
        run(seed)


@pytest.mark.parametrize("first", first_of(1, range(0, SEEDS_OF_THREE, BLOCK_OF_THREE)))
def test_three_brokers_become_whole_again(first: int) -> None:
    for seed in range(first, first + BLOCK_OF_THREE):
        run(seed, broker_count=3)


@pytest.mark.parametrize("seed", range(10))
def test_a_controller_that_is_deposed_while_it_removes_a_topic_removes_no_more_of_it(seed: int) -> None:
    """Its successor may have finished, and somebody have made another topic of that name."""
    rng = random.Random(seed)
    with VirtualLoop() as loop:
        ensemble = Ensemble(loop, rng)
        client = ZooKeeperClient(
            "zk",
            session_timeout_ms=3000,
            connection_timeout_ms=3000,
            make_kazoo=lambda *_: SimulatedKazoo(ensemble, 3.0),
        )
        wanted = [paths.partition_state("t", number) for number in range(3)]
        wanted += [paths.entity_config("topics", "t"), paths.delete_topic("t")]

        async def script() -> None:
            await client.connect()
            for path in (*wanted, paths.CONTROLLER_EPOCH):
                await client.ensure(path)
            left: set[str] = set()

            async def depose() -> None:
                await asyncio.sleep(rng.uniform(0, 16 * DELAY_SECONDS_MAX))
                ensemble.set(paths.CONTROLLER_EPOCH, b"2", -1)
                left.update(ensemble.znodes)

            removal = Term(client, epoch_version=0).remove_topic("t")
            outcome, _ = await asyncio.gather(removal, depose(), return_exceptions=True)
            assert outcome is None or isinstance(outcome, ControllerMovedError)
            await asyncio.sleep(10 * DELAY_SECONDS_MAX)
            assert set(ensemble.znodes) == left
            await Term(client, epoch_version=1).remove_topic("t")
            assert not {*wanted, paths.topic("t")} & ensemble.znodes.keys()

        loop.run_until_complete(script())
