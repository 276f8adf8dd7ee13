"""A whole live cluster whose topic a whole offline one brings into its namesake, under faults: see `aggregated_clusters`.

CLUSTER_SEEDS=7 python -m pytest -m "" tests/sim/test_sim_aggregated_clusters.py replays one; CLUSTER_SEEDS=0-999 tries more.
"""

from __future__ import annotations

import os

import pytest
from aggregated_clusters import simulate
from long_runs import first_of

FIRST, _, LAST = os.environ.get("CLUSTER_SEEDS", "1-50").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)


@pytest.mark.parametrize("seed", first_of(1, SEEDS))
def test_each_message_comes_once_and_in_order_whatever_fails_at_either_end(seed: int) -> None:
    simulate(seed)
