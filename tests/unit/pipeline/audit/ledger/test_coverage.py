"""Counted ranges become a chain: repeated, overlapping and missing ones."""

from __future__ import annotations

from headrace.audit.ledger.coverage import HELD_MAX, UNKNOWN_MS, Coverage
from headrace.audit.records import Counted, Standstill
from headrace.broker.wire.partitions import TopicPartition

PARTITION = TopicPartition("pageviews", 0)


def skipped(first: int, following: int, at_ms: int = 0) -> Standstill:
    return Standstill(
        tier="live",
        datacenter="dc-east",
        partition=PARTITION,
        first=first,
        next=following,
        reason="deleted",
        at_ms=at_ms,
    )


def counted(first: int, following: int, at_ms: int = 0) -> Counted:
    return Counted(
        tier="live",
        datacenter="dc-east",
        partition=PARTITION,
        first=first,
        next=following,
        tallies=(),
        at_ms=at_ms,
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


def uncounted(coverage: Coverage) -> list[tuple[int, int, int]]:
    return [(hole.first, hole.next, hole.until_ms) for hole in coverage.uncounted()]


def test_what_lies_before_the_first_range_was_in_the_log_when_that_was_counted() -> None:
    coverage = Coverage()
    coverage.add(counted(10, 20, at_ms=500))
    coverage.add(counted(20, 30, at_ms=900))
    assert uncounted(coverage) == [(0, 10, 500)]


def test_a_log_that_is_counted_from_its_beginning_has_no_hole() -> None:
    assert uncounted(covered((0, 10), (10, 20))) == []


def test_a_skipped_range_was_in_the_log_when_it_was_skipped_or_something_behind_it_counted() -> None:
    coverage = covered((0, 10))
    coverage.add(skipped(10, 15))
    assert uncounted(coverage) == [(10, 15, UNKNOWN_MS)]
    coverage.add(counted(15, 20, at_ms=700))
    assert uncounted(coverage) == [(10, 15, 700)]
    coverage.add(skipped(20, 25, at_ms=800))
    assert uncounted(coverage) == [(10, 15, 700), (20, 25, 800)]


def test_what_one_counter_counted_is_not_given_up_because_another_skipped_it() -> None:
    coverage = covered((0, 10))
    coverage.add(skipped(10, 20, at_ms=5))
    coverage.add(counted(20, 30))
    coverage.add(counted(10, 15))
    assert chain(coverage) == [(0, 10), (10, 15), (15, 20), (20, 30)]
    assert uncounted(coverage) == [(15, 20, 5)]
    coverage.add(counted(15, 20))
    assert (chain(coverage)[-2:], uncounted(coverage)) == ([(15, 20), (20, 30)], [])


def test_holes_that_are_folded_are_remembered() -> None:
    coverage = Coverage()
    coverage.add(counted(5, 6, at_ms=1))
    coverage.add(skipped(6, 8, at_ms=2))
    for at in range(8, 8 + HELD_MAX + 3):
        coverage.add(counted(at, at + 1, at_ms=3))
    assert [(item.first, item.next) for item in coverage.fold()] == [
        (5, 6),
        (6, 8),
        (8, 9),
        (9, 10),
        (10, 11),
    ]
    assert uncounted(coverage) == [(0, 5, 1), (6, 8, 2)]
