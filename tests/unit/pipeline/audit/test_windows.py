"""Runs, tallies and their arithmetic."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.audit.windows import EMPTY, Depth, Run, depth, excess, expand, once, runs_of, tally, total
from headrace.events.fingerprint_columns import fingerprint_sum

sequences = st.lists(st.integers(0, 60), max_size=80)


def depth_of(members: list[int]) -> Depth:
    return depth(runs_of(np.array(sorted(members), dtype=np.int64)))


def counts(item: Depth) -> Counter[int]:
    found: Counter[int] = Counter()
    for run in item.runs():
        found.update(dict.fromkeys(range(run.first, run.last + 1), run.copies))
    return found


@given(sequences)
def test_runs_hold_each_sequence_as_often_as_it_is_there(members: list[int]) -> None:
    runs = runs_of(np.array(sorted(members), dtype=np.int64))
    assert sorted(expand(runs).tolist()) == sorted(members)
    assert counts(depth_of(members)) == Counter(members)
    assert depth_of(members).count == len(members)


@given(sequences, sequences)
def test_tiers_add_and_compare_as_multisets(left: list[int], right: list[int]) -> None:
    assert counts(total((depth_of(left), depth_of(right)))) == Counter(left + right)
    assert counts(excess(depth_of(left), depth_of(right))) == Counter(left) - Counter(right)
    assert counts(once(depth_of(left))) == Counter(set(left))


def test_a_run_is_as_long_as_it_can_be() -> None:
    assert depth_of([3, 4, 5, 5, 9]).runs() == [Run(3, 4, 1), Run(5, 5, 2), Run(9, 9, 1)]
    assert Run(3, 4, 2).total == 4
    assert EMPTY.count == 0


def test_events_are_tallied_by_producer_and_window() -> None:
    found = tally(
        ["a", "b"],
        np.array([1, 0, 0, 0, 1], dtype=np.intp),
        np.array([999, 1000, 1999, 2000, 1500], dtype=np.int64),
        np.array([7, 2, 1, 3, 8], dtype=np.int64),
        1000,
    )
    assert [(item.producer, item.window_start, item.count, item.runs.tolist()) for item in found] == [
        ("a", 1000, 2, [[1, 2]]),
        ("a", 2000, 1, [[3, 3]]),
        ("b", 0, 1, [[7, 7]]),
        ("b", 1000, 1, [[8, 8]]),
    ]
    assert found[0].fingerprint == fingerprint_sum("a", [1, 2])


def test_a_tally_is_sound_only_with_the_fingerprint_and_count_of_its_runs() -> None:
    (found,) = tally(
        ["p"], np.zeros(3, dtype=np.intp), np.zeros(3, dtype=np.int64), np.array([4, 5, 9], dtype=np.int64)
    )
    assert found.is_sound
    assert not replace(found, count=2).is_sound
    assert not replace(found, fingerprint=found.fingerprint ^ 1).is_sound
    assert not replace(found, producer="q").is_sound


@pytest.mark.parametrize("runs", [[[5, 4]], [[-1, 3]], [[0, 2**62]], [[0, 2**62], [2**62, 2**63 - 2]]])
def test_runs_that_no_counter_writes_are_unsound_and_cost_nothing(runs: list[list[int]]) -> None:
    (found,) = tally(
        ["p"], np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.int64), np.array([4], dtype=np.int64)
    )
    assert not replace(found, runs=np.array(runs, dtype=np.int64)).is_sound
