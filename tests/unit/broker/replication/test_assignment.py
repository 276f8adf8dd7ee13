"""Spreading partitions over brokers as Apache Kafka does."""

from collections import Counter

import pytest

from headrace.broker.errors import InvalidPartitionsError, InvalidReplicationFactorError
from headrace.broker.replication.assignment import assign_replicas

PLAIN = dict.fromkeys(range(5))


def test_the_example_in_kafkas_own_documentation() -> None:
    """AdminUtils: 10 partitions, 5 brokers, factor 3, first replicas 0..4, the shift grows by one each round."""
    assignment = assign_replicas(PLAIN, 10, 3, start=0, shift=0)
    assert assignment == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


@pytest.mark.parametrize("start", range(5))
def test_leaders_are_spread_evenly_whatever_the_start(start: int) -> None:
    leaders = Counter(r[0] for r in assign_replicas(PLAIN, 15, 1, start=start, shift=3).values())
    assert set(leaders.values()) == {3}


def test_added_partitions_go_on_where_the_first_ones_ended() -> None:
    whole = assign_replicas(PLAIN, 10, 2, start=2, shift=1)
    later = assign_replicas(PLAIN, 4, 2, start=2, shift=2, first_partition=6)
    assert {p: r[0] for p, r in later.items()} == {p: whole[p][0] for p in range(6, 10)}


@pytest.mark.parametrize("start", range(6))
@pytest.mark.parametrize("shift", range(6))
def test_replicas_lie_in_different_racks(start: int, shift: int) -> None:
    racks = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "c"}
    for replicas in assign_replicas(racks, 12, 3, start=start, shift=shift).values():
        assert {racks[r] for r in replicas} == {"a", "b", "c"}


def test_brokers_are_never_named_twice_for_a_partition() -> None:
    for brokers in (PLAIN, {0: "a", 1: "a", 2: "b"}):
        for replicas in assign_replicas(brokers, 30, 3, start=1, shift=1).values():
            assert len(set(replicas)) == 3


def test_what_cannot_be_is_refused_with_a_sentence() -> None:
    with pytest.raises(InvalidPartitionsError, match="larger than 0"):
        assign_replicas(PLAIN, 0, 1, start=0, shift=0)
    with pytest.raises(InvalidReplicationFactorError, match="larger than 0"):
        assign_replicas(PLAIN, 1, 0, start=0, shift=0)
    with pytest.raises(InvalidReplicationFactorError, match="6 larger than available brokers: 5"):
        assign_replicas(PLAIN, 1, 6, start=0, shift=0)
