"""Counted ranges become a chain: repeated, overlapping and missing ones."""

from __future__ import annotations

from headrace.audit.coverage import HELD_MAX, Coverage
from headrace.audit.records import Counted, Standstill
from headrace.load.ranges import TopicPartition

PARTITION = TopicPartition("pageviews", 0)


def counted(first: int, following: int) -> Counted:
    return Counted(
        tier="live",
        datacenter="dc-east",
        partition=PARTITION,
        first=first,
        next=following,
        tallies=(),
        at_ms=0,
    )


def covered(*ranges: tuple[int, int]) -> Coverage:
    coverage = Coverage()
    for item in ranges:
        coverage.add(counted(*item))
    return coverage


def chain(coverage: Coverage) -> list[tuple[int, int]]:
    return [(item.first, item.next) for item in coverage.chain]


def test_ranges_in_order_are_the_chain() -> None:
    coverage = covered((10, 20), (20, 25))
    assert (chain(coverage), coverage.position, coverage.origin, coverage.gap) == (
        [(10, 20), (20, 25)],
        25,
        10,
        None,
    )


def test_a_repeated_range_counts_once() -> None:
    coverage = covered((0, 10), (0, 10), (10, 20), (0, 10), (10, 20))
    assert chain(coverage) == [(0, 10), (10, 20)]


def test_a_range_behind_a_gap_waits_for_it_to_be_filled() -> None:
    coverage = covered((0, 10), (20, 30))
    assert (coverage.position, coverage.gap) == (10, (10, 20))
    coverage.add(counted(10, 20))
    assert (chain(coverage), coverage.gap) == ([(0, 10), (10, 20), (20, 30)], None)


def test_goes_over_to_the_counter_that_lives_on() -> None:
    coverage = covered((0, 10), (0, 12), (10, 15), (12, 20))
    assert chain(coverage) == [(0, 12), (12, 20)]
    coverage.add(counted(15, 30))
    assert chain(coverage) == [(0, 10), (10, 15), (15, 30)]


def test_skipped_offsets_are_a_link() -> None:
    coverage = covered((0, 10))
    coverage.add(
        Standstill(tier="live", datacenter="dc-east", partition=PARTITION, first=10, next=15, reason="gone")
    )
    coverage.add(counted(15, 16))
    assert coverage.position == 16


def test_folds_the_oldest_and_drops_what_overlaps_them() -> None:
    coverage = covered(*((at, at + 1) for at in range(HELD_MAX + 3)))
    folded = [(item.first, item.next) for item in coverage.fold()]
    assert folded == [(0, 1), (1, 2), (2, 3)]
    assert len(coverage.chain) == HELD_MAX
    assert not coverage.add(counted(2, 9))
    assert coverage.position == HELD_MAX + 3
