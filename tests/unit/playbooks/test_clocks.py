"""Clocks that contradict each other."""

from __future__ import annotations

import pytest

from headrace_inventory.clocks import clock_problems


def looks(**bounds: tuple[float, float]) -> dict[str, dict[str, list[float]]]:
    return {host: {"clock_ahead_s": list(bound)} for host, bound in bounds.items()}


@pytest.mark.parametrize(
    "bounds",
    [
        {},
        {"a": (-0.2, 0.4)},
        # Asked for long, each may be right.
        {"a": (-3.0, 0.1), "b": (-0.1, 2.0)},
        {"a": (-0.6, -0.5), "b": (-0.1, 0.0)},
    ],
)
def test_clocks_that_may_agree_are_fine(bounds: dict[str, tuple[float, float]]) -> None:
    assert clock_problems(looks(**bounds)) == []


def test_the_one_that_contradicts_the_others_is_named() -> None:
    (problem,) = clock_problems(looks(a=(-0.5, 0.5), b=(599.5, 600.5), c=(-0.4, 0.6)))
    assert problem.startswith("The clock of b is +600.0 s off that of a: they must be within 500 ms")
    assert clock_problems({**looks(a=(0.0, 0.1)), "b": {"failed": True}}) == []
    assert clock_problems({**looks(a=(0.0, 0.1)), "b": {"clock_ahead_s": [599.5, 600.5], "away": True}}) == []
