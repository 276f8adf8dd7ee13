"""The log under a disk that tears writes and forgets unsynced ones; with a safety rule off, some seed notices."""

import pytest
from log_simulation import LogSimulation

SEEDS = 120
STEPS = 120


@pytest.mark.parametrize("block", range(4))
def test_a_leaders_log_survives_every_crash(block: int) -> None:
    for seed in range(block, SEEDS, 4):
        LogSimulation(seed).run(STEPS)


@pytest.mark.parametrize("block", range(4))
def test_a_mirrors_log_survives_every_crash(block: int) -> None:
    for seed in range(block, SEEDS, 4):
        LogSimulation(seed, is_mirror=True).run(STEPS)
