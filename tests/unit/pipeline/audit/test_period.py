"""The time that a verdict is about: sequences of windows, windows of sequences, and how a person writes a time."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.audit.period import ALWAYS, BEGIN_MS, END_MS, Period, WindowTable, sequences_of
from headrace.audit.windows import RUNS_OF_WINDOW_MAX, Int64s, depth, joined

WINDOWS = {0: [(0, 4), (9, 9)], 10: [(5, 8)], 20: [(10, 12)]}


def runs(*pairs: tuple[int, int]) -> Int64s:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def windows() -> dict[int, Int64s]:
    return {start: runs(*pairs) for start, pairs in WINDOWS.items()}


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        (Period(0, 10), [(0, 4), (9, 9)]),
        (Period(10, 20), [(5, 8)]),
        (Period(9, 11), [(0, 9)]),
        (Period(25, END_MS), [(10, 12)]),
        (Period(30, END_MS), []),
        (ALWAYS, [(0, 12)]),
    ],
)
def test_the_sequences_of_a_period_are_those_of_the_windows_that_reach_into_it(
    period: Period, expected: list[tuple[int, int]]
) -> None:
    found = sequences_of(windows(), period, 10, are_all_known=True)
    assert [(run.first, run.last) for run in found.runs()] == expected


def test_sequences_below_all_windows_are_of_those_that_are_forgotten() -> None:
    known = {100: runs((50, 60))}
    for since_ms, expected in ((99, [(0, 60)]), (100, [(50, 60)])):
        found = sequences_of(known, Period(since_ms, 200), 10, are_all_known=False)
        assert [(run.first, run.last) for run in found.runs()] == expected


def test_windows_of_sequences() -> None:
    table = WindowTable(windows(), 10)
    assert [table.latest(sequence) for sequence in (0, 5, 9, 12, 13)] == [0, 10, 0, 20, -1]
    assert table.span(depth(runs((6, 6)))) == Period(10, 20)
    assert table.span(depth(runs((4, 5), (11, 11)))) == Period(0, 30)
    assert table.span(depth(runs((13, 20)))) is None
    overlapping = WindowTable({0: runs((0, 9)), 10: runs((5, 15))}, 10)
    assert (overlapping.earliest(7), overlapping.latest(7), overlapping.earliest(16)) == (0, 10, -1)


def test_runs_are_joined_where_the_gaps_are_smallest() -> None:
    many = runs(*((at * at, at * at) for at in range(2, 12)), (4, 5))
    assert joined(many, 3).tolist() == [[4, 81], [100, 100], [121, 121]]
    assert joined(runs((5, 9), (0, 4), (3, 6)), RUNS_OF_WINDOW_MAX).tolist() == [[0, 9]]


def test_a_period_without_length_is_a_moment() -> None:
    assert Period(BEGIN_MS, 5).overlaps(4, 4)
    assert not Period(BEGIN_MS, 5).overlaps(5, 5)
