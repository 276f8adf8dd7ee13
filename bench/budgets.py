"""What each path may cost (the project's budgets for 2 cores), and whether raw runs keep to it.

A budget is met when the median of all runs of its cell is, or, beside Apache Kafka, the median of the ratios of pairs.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bench import (
    audit_cells,
    audit_page_cells,
    audit_share_cells,
    broker_cells,
    catching_up_cells,
    fail_over_cells,
    idle_cells,
    load_cells,
    log_in_cells,
    mirror_cells,
    mirror_distance_cells,
    mirror_upkeep_cells,
    producer_cells,
    quota_cells,
    transaction_cells,
)
from bench.contest import KAFKA
from bench.figures import (
    Figure,
    Run,
    cpu_percent,
    cpu_ratio,
    cpu_us_per_message,
    mb_per_cpu_second,
    mb_per_second,
    memory_mib,
    messages_per_second,
    p50_ms,
    p99_ms,
    pair_ratios,
    seconds,
    update_seconds,
    wake_ups_per_second,
)
from bench.runs import HEADRACE
from bench.workloads import (
    CLUSTERED,
    FETCH,
    FETCH_BY_TLS,
    FETCH_OF_64,
    LATENCY_1K,
    LATENCY_1K_OF_3,
    LATENCY_10K,
    MANY,
    MAX_BATCH,
    PRODUCE_1,
    PRODUCE_1_TO_8,
    PRODUCE_1_TO_64,
    PRODUCE_50,
    PRODUCE_50_BY_50,
    PRODUCE_50_BY_TLS,
    PRODUCE_50_TO_8,
    PRODUCE_50_TO_64,
    PRODUCE_MAX,
    PRODUCE_MAX_TO_64,
    Workload,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit on one figure of headrace in one cell: the most it may be, or with `is_floor` the least.

    With `is_ratio` the limit is on the ratio to Apache Kafka, pair by pair, or, where another cell is `beside`, to its median.
    """

    cell: str
    figure: Figure
    what: str
    limit: float
    is_floor: bool = False
    is_ratio: bool = False
    beside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A budget beside what was measured: the runs' figures, and the ratios of pairs."""

    budget: Budget
    own: tuple[float, ...]
    rivals: tuple[float, ...]
    ratios: tuple[float, ...]

    @property
    def is_measured(self) -> bool:
        return bool(self.ratios if self.budget.is_ratio else self.own)

    @property
    def measured(self) -> float:
        """The median of what the limit is on; there must be one."""
        return statistics.median(self.ratios if self.budget.is_ratio else self.own)

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


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def _rate(workload: _Named, times: float) -> Budget:
    return _rate_of(workload.name, times, "messages/s")


def _rate_of(cell: str, times: float, what: str) -> Budget:
    return Budget(
        cell=cell,
        figure=messages_per_second,
        what=what,
        limit=times,
        is_floor=True,
        is_ratio=True,
    )


def _cpu(workload: Workload, microseconds: float) -> Budget:
    return Budget(cell=workload.name, figure=cpu_us_per_message, what=_CPU, limit=microseconds)


def _cpu_ratio(workload: _Named, times: float) -> Budget:
    return _cpu_ratio_of(workload.name, times, _CPU)


def _cpu_ratio_of(cell: str, times: float, what: str) -> Budget:
    return Budget(cell=cell, figure=cpu_us_per_message, what=what, limit=times, is_ratio=True)


def _p99(workload: Workload) -> Budget:
    return Budget(cell=workload.name, figure=p99_ms, what="p99 (ms)", limit=1, is_ratio=True)


def _memory(workload: Workload, mebibytes: float) -> Budget:
    return Budget(cell=workload.name, figure=memory_mib, what="memory (MiB)", limit=mebibytes)


def _memory_ratio(workload: Workload, times: float) -> Budget:
    return Budget(cell=workload.name, figure=memory_mib, what="memory (MiB)", limit=times, is_ratio=True)


def _replicated(workload: Workload) -> tuple[Budget, ...]:
    """Of three brokers: half of Kafka's CPU at twice its rate; large batches are the kernel's work for both."""
    if workload == LATENCY_1K_OF_3:
        return _p99(workload), _memory_ratio(workload, 0.1)
    is_large = workload.batch == MAX_BATCH
    return _rate(workload, 1 if is_large else 2), _cpu_ratio(workload, 1 if is_large else 0.5)


def _mirror(cell: str) -> Budget:
    """Beside MirrorMaker 2."""
    return Budget(
        cell=cell,
        figure=mb_per_cpu_second,
        what="MB per CPU-second",
        limit=10,
        is_floor=True,
        is_ratio=True,
    )


def _distance(cell: str, limit: float) -> Budget:
    return Budget(cell=cell, figure=mb_per_second, what="MB/s", limit=limit, is_floor=True)


def _fail_over(cell: str, what: str, limit: float) -> tuple[Budget, ...]:
    return (
        Budget(cell=cell, figure=seconds, what=what, limit=limit),
        Budget(cell=cell, figure=p99_ms, what="a bystander's p99 (ms)", limit=50),
    )


def _catching_up(cell: str) -> Budget:
    return Budget(
        cell=cell,
        figure=mb_per_cpu_second,
        what="MB per CPU-second",
        limit=0.8,
        is_floor=True,
        is_ratio=True,
        beside=catching_up_cells.MIRRORED[cell],
    )


BUDGETS = (
    Budget(cell=broker_cells.START_DEV, figure=seconds, what="seconds to ready", limit=5),
    _rate(PRODUCE_1, 4),
    _cpu(PRODUCE_1, 18),
    _rate(PRODUCE_50, 2),
    _cpu(PRODUCE_50, 0.8),
    _rate(PRODUCE_MAX, 1),
    _cpu(PRODUCE_MAX, 0.45),
    _rate(PRODUCE_1_TO_8, 4),
    _cpu(PRODUCE_1_TO_8, 18),
    _rate(PRODUCE_50_TO_8, 2),
    _cpu(PRODUCE_50_TO_8, 0.9),
    _rate(PRODUCE_1_TO_64, 4),
    _cpu(PRODUCE_1_TO_64, 18),
    _rate(PRODUCE_50_TO_64, 2),
    _cpu(PRODUCE_50_TO_64, 0.9),
    _rate(PRODUCE_MAX_TO_64, 1),
    _rate(PRODUCE_50_BY_50, 1.5),
    _cpu_ratio(PRODUCE_50_BY_50, 0.5),
    _rate(FETCH, 1),
    _cpu(FETCH, 0.08),
    _memory(FETCH, 100),
    _rate(FETCH_OF_64, 1),
    _p99(LATENCY_1K),
    _p99(LATENCY_10K),
    _memory(MANY, 200),
    Budget(cell=quota_cells.BYSTANDER, figure=p99_ms, what="p99 (ms)", limit=1, is_ratio=True),
    _rate(PRODUCE_50_BY_TLS, 1),
    _cpu_ratio(PRODUCE_50_BY_TLS, 0.5),
    _rate(FETCH_BY_TLS, 1),
    _cpu_ratio(FETCH_BY_TLS, 0.5),
    _rate_of(log_in_cells.LOG_INS, 1, "log-ins/s"),
    _cpu_ratio_of(log_in_cells.LOG_INS, 0.5, "CPU per log-in (µs)"),
    *(budget for workload in CLUSTERED.values() for budget in _replicated(workload)),
    *(
        budget
        for each in transaction_cells.ALL.values()
        for budget in (_rate(each, 1), _cpu_ratio(each, 0.5))
    ),
    *_fail_over(fail_over_cells.KILLED, "seconds until all are led", 1),
    *_fail_over(fail_over_cells.STOPPED, "seconds without leader", 1),
    *_fail_over(fail_over_cells.CONTROLLER_KILLED, "seconds until all are led", 5),
    Budget(cell=idle_cells.IDLE, figure=wake_ups_per_second, what="wake-ups a second", limit=16),
    Budget(cell=idle_cells.IDLE, figure=cpu_ratio, what="CPU, × that of one a broker", limit=1.2),
    _mirror(mirror_cells.BATCH_50),
    _mirror(mirror_cells.BATCH_MAX),
    _distance(mirror_distance_cells.NEAR, 150),
    _distance(mirror_distance_cells.FAR, 80),
    Budget(cell=mirror_distance_cells.IDLE, figure=cpu_percent, what="CPU (% of a core)", limit=3),
    Budget(cell=mirror_distance_cells.IDLE, figure=p50_ms, what="median latency (ms)", limit=20),
    Budget(cell=mirror_upkeep_cells.NEW_TOPICS, figure=seconds, what="seconds until copied", limit=15),
    Budget(cell=mirror_upkeep_cells.COMPARISON, figure=cpu_percent, what="CPU (% of the copy's)", limit=2),
    *map(_catching_up, catching_up_cells.cells),
    Budget(
        cell=load_cells.FLAT,
        figure=messages_per_second,
        what="records/s",
        limit=1_000_000,
        is_floor=True,
    ),
    Budget(cell=audit_cells.SCALE, figure=seconds, what="CPU seconds a round", limit=1),
    Budget(cell=audit_cells.SCALE, figure=memory_mib, what="memory (MiB)", limit=2048),
    Budget(cell=audit_cells.HEADERS_50, figure=cpu_us_per_message, what=_CPU, limit=0.05),
    Budget(cell=audit_share_cells.SHARE, figure=cpu_percent, what="CPU (% of the pipeline's)", limit=5),
    Budget(cell=audit_page_cells.PAGE, figure=seconds, what="CPU seconds of a first look", limit=1),
    Budget(cell=audit_page_cells.PAGE, figure=update_seconds, what="CPU seconds of an update", limit=0.2),
    Budget(
        cell=audit_page_cells.PAGE, figure=cpu_percent, what="CPU while nobody looks (% of a core)", limit=1
    ),
    Budget(cell=producer_cells.ACCOUNTED, figure=cpu_us_per_message, what=_CPU, limit=20),
    Budget(cell=producer_cells.ACCOUNTED, figure=cpu_ratio, what="CPU, × the bare client's", limit=12),
)


def judge(runs: Sequence[Run]) -> list[Judged]:
    """Every budget beside what the runs say of it."""
    by_cell: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_cell[run["cell"]].append(run)
    return [_judged(budget, by_cell[budget.cell], by_cell[budget.beside]) for budget in BUDGETS]


def _judged(budget: Budget, runs: Sequence[Run], others: Sequence[Run]) -> Judged:
    own = [run for run in runs if run["peer"] == HEADRACE]
    rivals = [run for run in runs if run["peer"] == KAFKA]
    ratios = pair_ratios(own, rivals, budget.figure)
    if others:
        beside = statistics.median(budget.figure(run) for run in others if run["peer"] == HEADRACE)
        ratios = [budget.figure(run) / beside for run in own]
    return Judged(
        budget=budget,
        own=tuple(map(budget.figure, own)),
        rivals=tuple(map(budget.figure, rivals)),
        ratios=tuple(ratios),
    )
