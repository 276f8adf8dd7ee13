"""What each path may cost (the project's budgets for 2 cores), and whether raw runs keep to it.

A budget is met when the median of all runs of its cell is, or, beside something else, the median of the ratios of pairs.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench import broker_cells, load_cells, mirror_cells
from bench.contest import KAFKA
from bench.figures import (
    Figure,
    Run,
    cpu_us_per_message,
    mb_per_cpu_second,
    memory_mib,
    messages_per_second,
    p99_ms,
    pair_ratios,
    seconds,
    wake_ups_per_second,
)
from bench.runs import HEADRACE
from bench.workloads import (
    BUSY,
    FETCH,
    LATENCY_1K,
    LATENCY_10K,
    PRODUCE_1,
    PRODUCE_50,
    PRODUCE_MAX,
)

MIRROR_MAKER_MB_PER_CPU_SECOND = 52
"""The best of a tuned MirrorMaker 2 on such a machine (29 to 52)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit on one figure of headrace in one cell: the most it may be, or with `is_floor` the least.

    With `beside`, a peer or another cell of headrace, the limit is on the ratio to it, pair by pair. Of `beyond`, another
    cell, messages and CPU are taken off first, so that a start counts for nothing.
    """

    cell: str
    figure: Figure
    what: str
    limit: float
    is_floor: bool = False
    beside: str = ""
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


_RATE = f"messages/s, times {KAFKA}'s"
_CPU = "CPU per message (µs)"
_CPU_RATIO = f"CPU per message, times {KAFKA}'s"
_P99_RATIO = f"p99, times {KAFKA}'s"
_MIRROR = "MB per CPU-second"
_MIRROR_LIMIT = 10 * MIRROR_MAKER_MB_PER_CPU_SECOND


def _rate(cell: str, times: float) -> Budget:
    return Budget(cell=cell, figure=messages_per_second, what=_RATE, limit=times, is_floor=True, beside=KAFKA)


def _cpu(cell: str, microseconds: float) -> Budget:
    return Budget(cell=cell, figure=cpu_us_per_message, what=_CPU, limit=microseconds)


def _cpu_ratio(cell: str) -> Budget:
    return Budget(cell=cell, figure=cpu_us_per_message, what=_CPU_RATIO, limit=0.25, beside=KAFKA)


def _p99(cell: str) -> Budget:
    return Budget(cell=cell, figure=p99_ms, what=_P99_RATIO, limit=1, beside=KAFKA)


def _mirror(cell: str) -> Budget:
    return Budget(cell=cell, figure=mb_per_cpu_second, what=_MIRROR, limit=_MIRROR_LIMIT, is_floor=True)


BUDGETS = (
    Budget(cell=broker_cells.START_DEV, figure=seconds, what="seconds to ready", limit=5),
    _rate(PRODUCE_1.name, 4),
    _cpu(PRODUCE_1.name, 18),
    _cpu_ratio(PRODUCE_1.name),
    _rate(PRODUCE_50.name, 2),
    _cpu(PRODUCE_50.name, 0.8),
    _cpu_ratio(PRODUCE_50.name),
    _rate(PRODUCE_MAX.name, 1),
    _cpu(PRODUCE_MAX.name, 0.45),
    _rate(FETCH.name, 1),
    _cpu(FETCH.name, 0.08),
    Budget(cell=FETCH.name, figure=memory_mib, what="memory after these runs (MiB)", limit=100),
    Budget(
        cell=FETCH.name,
        figure=memory_mib,
        what=f"memory after these runs, times {KAFKA}'s",
        limit=0.1,
        beside=KAFKA,
    ),
    _p99(LATENCY_1K.name),
    _p99(LATENCY_10K.name),
    _p99(BUSY.name),
    Budget(
        cell=BUSY.name,
        figure=p99_ms,
        what="p99, times that of one partition and one connection on the same broker",
        limit=2,
        beside=broker_cells.CALM,
    ),
    Budget(cell=broker_cells.MANY, figure=memory_mib, what="memory (MiB)", limit=200),
    Budget(cell=broker_cells.IDLE, figure=wake_ups_per_second, what="wake-ups per second", limit=1),
    _mirror(mirror_cells.BATCH_50),
    _mirror(mirror_cells.BATCH_MAX),
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
    """Judge every budget for which there are runs, and pairs where it takes pairs."""
    judged = []
    for budget in BUDGETS:
        figures = _figures(budget, runs)
        if figures:
            judged.append(Verdict(budget=budget, measured=statistics.median(figures)))
    return judged


def _figures(budget: Budget, runs: Sequence[Run]) -> list[float]:
    own = [run for run in runs if run["cell"] == budget.cell and run["peer"] == HEADRACE]
    if budget.beside == KAFKA:
        others = [run for run in runs if run["cell"] == budget.cell and run["peer"] == KAFKA]
        return pair_ratios(own, others, budget.figure)
    if budget.beside:
        others = [run for run in runs if run["cell"] == budget.beside and run["peer"] == HEADRACE]
        return pair_ratios(own, others, budget.figure)
    base = [run for run in runs if run["cell"] == budget.beyond]
    return [budget.figure(_beyond(base, run)) for run in own]


def _beyond(base: Sequence[Run], run: Run) -> Run:
    """The run without the median messages and CPU of the runs in `base`, if there are any."""
    if not base:
        return run
    less = {
        key: run[key] - statistics.median(other[key] for other in base) for key in ("messages", "cpu_seconds")
    }
    return {**run, **less}
