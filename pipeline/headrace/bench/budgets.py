"""What each path may cost (the project's budgets for 2 cores), and whether raw runs keep to it.

A budget is met when the median of all runs of its cell is. Must not know how a cell is measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.bench import broker_cells, load_cells, mirror_cells

Run = Mapping[str, Any]
MIRROR_MAKER_MB_PER_CPU_SECOND = 52
"""The best of a tuned MirrorMaker 2 on such a machine (29 to 52)."""


def cpu_us_per_message(run: Run) -> float:
    return float(run["cpu_seconds"]) / int(run["messages"]) * 1e6


def mb_per_cpu_second(run: Run) -> float:
    return float(run["bytes"]) / 1e6 / max(float(run["cpu_seconds"]), 0.01)


def messages_per_second(run: Run) -> float:
    return int(run["messages"]) / float(run["seconds"])


def megabytes_per_second(run: Run) -> float:
    return float(run["bytes"]) / 1e6 / float(run["seconds"])


def seconds(run: Run) -> float:
    return float(run["seconds"])


def memory_mib(run: Run) -> float:
    return float(run["memory_mib"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit on one figure of one cell: the most it may be, or with `is_floor` the least.

    Of `beyond`, another cell, messages and CPU are taken off first, so that a start counts for nothing.
    """

    cell: str
    figure: Callable[[Run], float]
    what: str
    limit: float
    is_floor: bool = False
    beyond: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A budget beside the median that was measured."""

    budget: Budget
    measured: float

    @property
    def is_met(self) -> bool:
        limit = self.budget.limit
        return self.measured >= limit if self.budget.is_floor else self.measured <= limit

    @property
    def share(self) -> float:
        """How much of the budget is used: 1 is exactly all of it."""
        limit = self.budget.limit
        return limit / max(self.measured, 1e-9) if self.budget.is_floor else self.measured / limit


_CPU = "CPU per message (µs)"
_MIRROR = "MB per CPU-second"
_MIRROR_LIMIT = 10 * MIRROR_MAKER_MB_PER_CPU_SECOND
BUDGETS = (
    Budget(cell=broker_cells.START, figure=seconds, what="seconds to ready", limit=5),
    Budget(cell=broker_cells.BATCH_1, figure=cpu_us_per_message, what=_CPU, limit=18),
    Budget(cell=broker_cells.BATCH_50, figure=cpu_us_per_message, what=_CPU, limit=0.8),
    Budget(cell=broker_cells.BATCH_MAX, figure=cpu_us_per_message, what=_CPU, limit=0.45),
    Budget(cell=broker_cells.FETCH, figure=cpu_us_per_message, what=_CPU, limit=0.08),
    Budget(cell=broker_cells.FETCH, figure=memory_mib, what="memory (MiB)", limit=100),
    Budget(cell=broker_cells.MANY, figure=memory_mib, what="memory (MiB)", limit=200),
    Budget(
        cell=mirror_cells.BATCH_50,
        figure=mb_per_cpu_second,
        what=_MIRROR,
        limit=_MIRROR_LIMIT,
        is_floor=True,
    ),
    Budget(
        cell=mirror_cells.BATCH_MAX,
        figure=mb_per_cpu_second,
        what=_MIRROR,
        limit=_MIRROR_LIMIT,
        is_floor=True,
    ),
    Budget(
        cell=load_cells.FLAT,
        figure=cpu_us_per_message,
        what="CPU per record of all processes, their start aside (µs): 1 M/s on 2 cores",
        limit=2,
        beyond=load_cells.ONE,
    ),
    Budget(
        cell=load_cells.FLAT,
        figure=messages_per_second,
        what="records/s, wall clock",
        limit=1_000_000,
        is_floor=True,
    ),
)


def verdicts(runs: Sequence[Run]) -> list[Verdict]:
    """Judge every budget whose cell is among the runs."""
    judged = []
    for budget in BUDGETS:
        base = [run for run in runs if run["cell"] == budget.beyond]
        figures = [budget.figure(_beyond(base, run)) for run in runs if run["cell"] == budget.cell]
        if figures:
            judged.append(Verdict(budget=budget, measured=statistics.median(figures)))
    return judged


def _beyond(base: Sequence[Run], run: Run) -> Run:
    """The run without the median messages and CPU of the runs in `base`, if there are any."""
    if not base:
        return run
    less = {
        key: run[key] - statistics.median(other[key] for other in base) for key in ("messages", "cpu_seconds")
    }
    return {**run, **less}
