"""A whole live cluster and a whole offline one that mirrors it, under faults: see `mirrored_clusters`.

CLUSTER_SEEDS=7 python -m pytest -m "" tests/sim/test_sim_mirrored_clusters.py replays one; CLUSTER_SEEDS=0-999 tries a thousand.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from long_runs import first_of
from mirror_mutations import epochs_are_noted_after_the_append, states_are_read_without_a_claim_before
from mirrored_clusters import COPY, MirroredClusters, simulate

FIRST, _, LAST = os.environ.get("CLUSTER_SEEDS", "0-99").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
MUTATION_SEEDS = 40
HITS = frozenset({"kill", "restart", "pause", "isolate", "cut", "expire", "alone"})


@pytest.mark.parametrize("seed", first_of(1, SEEDS))
def test_copies_become_what_their_sources_are_whatever_fails_at_either_end(seed: int) -> None:
    simulate(seed, MirroredClusters)


@pytest.mark.acceptance
def test_the_schedules_hit_both_clusters_while_much_is_copied() -> None:
    happened: dict[str, Counter[str]] = {"east": Counter(), "offline": Counter()}
    copied = 0
    for seed in range(1, 11):
        clusters = simulate(seed, MirroredClusters)
        happened["east"] += clusters.east.history.happened
        happened["offline"] += clusters.offline.history.happened
        copied += sum(
            len(next(iter(replicas.values())).values)
            for (topic, _), replicas in clusters.offline.history.replicas.items()
            if topic == COPY
        )
        if seed >= 3 and all(len(cluster.keys() & HITS) >= 3 for cluster in happened.values()):
            break
    assert copied > 300
    for cluster in happened.values():
        assert len(cluster.keys() & HITS) >= 3


@pytest.mark.long
@pytest.mark.parametrize(
    "switch_off", [states_are_read_without_a_claim_before, epochs_are_noted_after_the_append]
)
def test_some_seed_fails_with_a_rule_off(
    switch_off: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(monkeypatch)
    assert any(_fails(seed) for seed in range(MUTATION_SEEDS))


def _fails(seed: int) -> bool:
    try:
        simulate(seed, MirroredClusters)
    except AssertionError:
        return True
    return False
