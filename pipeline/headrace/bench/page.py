"""The page docs/benchmarks.md and its plot, made from the raw runs beside it and from nothing else."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.bench import budgets
from headrace.bench.budgets import Run, Verdict
from headrace.bench.runs import RawRun

ORDER = ("broker", "mirror", "load")
PLOT = "budgets.svg"

HEAD = """# Benchmarks

`make bench` measures and writes this page; every figure is computed from the raw runs in [`benchmarks/`](benchmarks/).
Messages have 200 B. The load generator is a C program on librdkafka; it runs on the same machine and shares its cores
with what is measured, so rates are what both reach together, while CPU is that of the measured processes alone. A figure is the
median of the rounds, with the lowest and highest in brackets.
"""
BUDGETS_HEAD = """## Budgets

What each path may cost on a machine with 2 cores, and what it does. A budget is met when the median is within it.

| path | figure | budget | measured | |
|---|---|---|---|---|"""
PLOT_LINE = """
![Share of each budget that is used](benchmarks/budgets.svg)
"""


def write(docs: Path) -> None:
    """Make `benchmarks.md` and the plot in `docs` from `docs/benchmarks/*.json`."""
    folder = docs / "benchmarks"
    (docs / "benchmarks.md").write_text(render(folder))
    _plot(budgets.verdicts(_all_runs(_records(folder))), folder / PLOT)


def render(folder: Path) -> str:
    """The page's text from the raw runs in `folder`."""
    records = _records(folder)
    lines = [BUDGETS_HEAD, *(_verdict_row(verdict) for verdict in budgets.verdicts(_all_runs(records)))]
    return "\n".join([HEAD, *lines, PLOT_LINE, *(_section(record) for record in records)])


def sentence(run: RawRun) -> str:
    """One line for the terminal."""
    recorded = run.as_json()
    if not _is_flow(recorded):
        return f"{run.cell}: {run.seconds:.2f} s, {run.memory_mib} MiB"
    return (
        f"{run.cell}: {budgets.messages_per_second(recorded):,.0f} messages/s, "
        f"{budgets.cpu_us_per_message(recorded):.3g} µs CPU a message, "
        f"{budgets.mb_per_cpu_second(recorded):,.0f} MB per CPU-second, {run.memory_mib} MiB"
    )


def _records(folder: Path) -> list[dict[str, Any]]:
    files = [folder / f"{name}.json" for name in ORDER]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def _all_runs(records: Sequence[Mapping[str, Any]]) -> list[Run]:
    return [run for record in records for run in record["runs"]]


def _verdict_row(verdict: Verdict) -> str:
    budget = verdict.budget
    limit = f"{'≥' if budget.is_floor else '≤'} {_number(budget.limit)}"
    word = "met" if verdict.is_met else "**not met**"
    return f"| {budget.cell} | {budget.what} | {limit} | {_number(verdict.measured)} | {word} |"


def _section(record: Mapping[str, Any]) -> str:
    machine = record["machine"]
    before, after = record["load_average"]
    cells: dict[str, list[Run]] = {}
    for run in record["runs"]:
        cells.setdefault(run["cell"], []).append(run)
    rounds = max(len(runs) for runs in cells.values())
    lines = [
        f"## {record['title']}",
        "",
        f"{record['note'][0].upper()}{record['note'][1:]}. {rounds} rounds on {record['date']}, load average {before} "
        f"before and {after} after; {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_mib'] / 1024:.0f} GiB, Linux {machine['kernel']}, Python {machine['python']}.",
        "",
        "| cell | messages/s | MB/s | CPU per message (µs) | MB per CPU-second | seconds | memory (MiB) |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_row(cell, runs) for cell, runs in cells.items())]) + "\n"


def _row(cell: str, runs: Sequence[Run]) -> str:
    def column(figure: Callable[[Run], float]) -> str:
        return _spread(figure(run) for run in runs)

    flows = (
        budgets.messages_per_second,
        budgets.megabytes_per_second,
        budgets.cpu_us_per_message,
        budgets.mb_per_cpu_second,
    )
    columns = [column(figure) if _is_flow(runs[0]) else "–" for figure in flows]
    columns += [column(budgets.seconds), column(budgets.memory_mib)]
    return f"| {cell} | {' | '.join(columns)} |"


def _is_flow(run: Run) -> bool:
    """Whether a rate means anything: not at a start, nor for a single message."""
    return int(run["messages"]) > 1


def _spread(values: Iterable[float]) -> str:
    numbers = list(values)
    middle = _number(statistics.median(numbers))
    if len(numbers) == 1:
        return middle
    return f"{middle} ({_number(min(numbers))}–{_number(max(numbers))})"


def _number(value: float) -> str:
    """Three significant digits below a hundred, whole numbers above."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _plot(verdicts: Sequence[Verdict], file: Path) -> None:
    """Bars of the share of each budget that is used; the line at 100 % is the budget."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    names = [f"{verdict.budget.cell}: {verdict.budget.what}" for verdict in verdicts]
    shares = [verdict.share * 100 for verdict in verdicts]
    colours = ["#2a7f62" if verdict.is_met else "#b3402f" for verdict in verdicts]
    with pyplot.rc_context({"svg.hashsalt": "headrace", "svg.fonttype": "none"}):
        figure, axes = pyplot.subplots(figsize=(9, 0.4 * len(verdicts) + 1))
        axes.bar_label(axes.barh(names, shares, color=colours), fmt="%.0f %%", padding=3)
        axes.axvline(100, color="#444444", linestyle="--", linewidth=1)
        axes.set_xlim(0, max([110.0, *shares]) * 1.1)
        axes.set_xlabel("share of the budget that is used (%)")
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(file, bbox_inches="tight", metadata={"Date": None})
        pyplot.close(figure)
