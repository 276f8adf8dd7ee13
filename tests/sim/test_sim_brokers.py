"""Whole brokers in one process, their clients, and faults: what was acknowledged holds, and all of it gets on afterwards.

BROKER_SEEDS=7 pytest tests/sim/test_sim_brokers.py replays one; BROKER_SEEDS=0-999 tries a thousand.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from broker_simulation import simulate

first, _, last = os.environ.get("BROKER_SEEDS", "0-49").partition("-")
HAPPENINGS = ("kill", "restart", "stop", "pause", "cut", "session", "zookeeper", "power cut")


@pytest.mark.parametrize("seed", range(int(first), int(last or first) + 1))
def test_three_brokers_keep_what_they_acknowledged_and_get_on(seed: int) -> None:
    simulate(seed)


def test_the_schedules_reach_what_they_are_for() -> None:
    happened: Counter[str] = Counter()
    for seed in range(8):
        happened += simulate(seed).history.happened
    for happening in (*HAPPENINGS, "tried again", "joined", "committed", "create: NONE", "delete: NONE"):
        assert happened[happening], happening


def test_a_seed_is_replayed_by_its_number() -> None:
    one, again, other = simulate(3), simulate(3), simulate(5)
    assert one.world.stories == again.world.stories
    assert one.logs == again.logs
    assert one.logs != other.logs
