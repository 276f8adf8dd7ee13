"""Plans of moves: sound for every cluster, and no larger than they have to be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.reassignment_plan import PlanError, plan

IDS = st.integers(1, 8)
PARTITIONS = st.dictionaries(
    st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 9)),
    st.lists(IDS, min_size=1, max_size=3, unique=True),
    max_size=12,
)
RACKS = st.dictionaries(IDS, st.sampled_from(["a", "b", "c"]), min_size=3, max_size=8)


@given(PARTITIONS, st.sets(IDS, min_size=3), st.none() | st.integers(1, 3))
def test_shares_are_even_and_replicas_on_the_brokers_that_are_named(
    partitions: dict[tuple[str, int], list[int]], brokers: set[int], factor: int | None
) -> None:
    found = plan(partitions, dict.fromkeys(brokers), factor)
    assert found.keys() == partitions.keys()
    for key, replicas in found.items():
        assert len(replicas) == len(set(replicas)) == (factor or len(partitions[key]))
        assert set(replicas) <= brokers
    counts = Counter(dict.fromkeys(brokers, 0))
    counts.update(r for replicas in found.values() for r in replicas)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert {k: set(r) for k, r in plan(found, dict.fromkeys(brokers), factor).items()} == {
        k: set(r) for k, r in found.items()
    }, "who has an even share keeps it"


@given(PARTITIONS, RACKS)
def test_no_two_replicas_are_put_into_one_rack_while_another_has_none(
    partitions: dict[tuple[str, int], list[int]], racks: dict[int, str]
) -> None:
    new = {key: replicas[:1] for key, replicas in partitions.items()}
    factor = min(3, len(racks))
    for replicas in plan(new, dict(racks), factor).values():
        assert len({racks[r] for r in replicas}) == min(factor, len(set(racks.values())))


def test_a_replica_that_may_stay_stays_and_its_place_in_the_order_too() -> None:
    present = {("t", 0): [1, 2], ("t", 1): [2, 3], ("t", 2): [3, 1]}
    assert plan(present, dict.fromkeys([1, 2, 3])) == {k: tuple(r) for k, r in present.items()}
    assert plan(present, dict.fromkeys([1, 2, 4])) == {("t", 0): (1, 2), ("t", 1): (2, 4), ("t", 2): (4, 1)}


def test_leaders_are_spread_too() -> None:
    present = {("t", p): [1, 2, 3] for p in range(6)}
    found = plan(present, dict.fromkeys([1, 2, 3]))
    assert Counter(r[0] for r in found.values()) == {1: 2, 2: 2, 3: 2}


def test_more_replicas_than_brokers_are_no_plan() -> None:
    with pytest.raises(PlanError, match="3 replicas need as many brokers: name more than 2"):
        plan({("t", 0): [1]}, dict.fromkeys([1, 2]), 3)
