"""Brokers that are killed, freeze and return, a ZooKeeper that goes away, answers that get lost: the cluster becomes whole.

After the last fault there is one controller, every broker names it, a topic can be made, and what ZooKeeper holds is
what the brokers show and lead.
"""

from __future__ import annotations

import pytest
from cluster_world import run

SEEDS, SEEDS_OF_THREE = 90, 50


@pytest.mark.parametrize("first", range(0, SEEDS, 30))
def test_two_brokers_become_whole_again(first: int) -> None:
    for seed in range(first, first + 30):
        run(seed)


@pytest.mark.parametrize("first", range(0, SEEDS_OF_THREE, 25))
def test_three_brokers_become_whole_again(first: int) -> None:
    for seed in range(first, first + 25):
        run(seed, broker_count=3)


def test_the_schedules_reach_what_they_are_for() -> None:
    worlds = [run(seed) for seed in range(20)]
    stories = "\n".join(story for world in worlds for story in world.stories)
    for happening in ("kill", "restart", "freeze", "zookeeper", "break", "breaks", "stop"):
        assert f" {happening} " in stories
    assert max(int(world.ensemble.znodes["/controller_epoch"].data) for world in worlds) >= 5
