"""Replication's machines on logs in memory: what was acknowledged holds through seeded faults, and all of it gets on afterwards.

MACHINE_SEEDS=7 python -m pytest tests/sim/test_sim_machines.py replays one; MACHINE_SEEDS=0-9999 tries ten thousand.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

import pytest
from long_runs import first_of
from machine_faults import KINDS
from machine_mutations import MUTATIONS
from machine_simulation import simulate

FIRST, _, LAST = os.environ.get("MACHINE_SEEDS", "0-2499").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
PIECE, MUTATION_SEEDS = 50, 2500
MISSED_BY = {
    "truncation by epoch": 0,
    "wait for the in-sync replicas": 0,
    "maximal ISR": 32,
    "minimum for the watermark": 250,
    "controller epoch": 54,
    "epoch fence in Fetch": 561,
    "epoch cache at election": 1344,
    "joining past the epoch's start": 126,
    "partition epoch": 349,
    "broker epoch in proposals": 662,
    "broker epoch in LeaderAndIsr": 1331,
    "controller epoch at brokers": 11,
    "leadership of a parked reply": 3,
    "refusal after a lost tail": 69,
    "registrations after the state": 4,
}
"""By rule, a seed that fails without it."""


def simulate_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        simulate(seed)


@pytest.mark.parametrize("first", first_of(1, SEEDS[::PIECE]))
def test_three_replicas_keep_what_was_acknowledged_and_get_on(first: int) -> None:
    simulate_all(range(first, min(first + PIECE, SEEDS[-1] + 1)))


def test_the_schedules_reach_what_they_are_for() -> None:
    happened: Counter[str] = Counter()
    for seed in range(20):
        happened += simulate(seed).history.happened
    for happening in (*KINDS, "acknowledged", "refused", "led", "cut the log"):
        assert happened[happening], happening


def test_a_seed_is_replayed_by_its_number() -> None:
    one, again, other = simulate(3), simulate(3), simulate(5)
    assert one.world.stories == again.world.stories != other.world.stories
    assert one.history == again.history


@pytest.mark.long
@pytest.mark.parametrize(("rule", "first"), MISSED_BY.items())
def test_a_rule_that_is_switched_off_is_missed(rule: str, first: int) -> None:
    """Among the ordinary seeds there is one that fails, at least; it is looked for from one on that was."""
    seeds = range(MUTATION_SEEDS)
    with MUTATIONS[rule](), pytest.raises(AssertionError):
        simulate_all([*seeds[first:], *seeds[:first]])
