"""The page docs/benchmarks.md and its plot, made from the raw runs beside it and from nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import broker_cells, budgets, busy, tables
from bench.budgets import BUDGETS, Budget, Verdict
from bench.contest import KAFKA
from bench.figures import Run
from bench.groups import GROUPS
from bench.runs import Group
from bench.tables import number

PLOT = "budgets.svg"
Record = Mapping[str, Any]

HEAD = """# Benchmarks

`make bench` measures and writes this page; every figure is computed from the raw runs in [`benchmarks/`](benchmarks/).
Messages have 200 B. The load generator is a C program on librdkafka; it runs on the same machine and shares its cores
with what is measured, so rates are what both reach together, while CPU is that of the measured processes alone. What of
it is the kernel's, for system calls and the copying of bytes to and from sockets and pages, is the same work for every
broker; a latency is shared with the clients, whose CPU stands beside it. A figure is the median of the runs, with the
lowest and highest in brackets.

Apache Kafka runs beside headrace in the same run, with the JVM options of its own start script, warm (a minute and five
million messages unless a section says otherwise), and the client takes them in turns: A B, B A, A B, ... Columns with × are
medians of the ratios of such pairs, headrace over Apache Kafka, again with the lowest and highest. Both brokers stay up; the
one that is not measured idles. What a run has written is deleted before the next.
"""
BUDGETS_HEAD = """## Budgets

What each path may cost on a machine with 2 cores, and what it does. A budget is met when the median is within it.

| path | figure | budget | measured | |
|---|---|---|---|---|"""
PLOT_LINE = """
![Share of each budget that is used](benchmarks/budgets.svg)
"""


def file_of(folder: Path, group: Group, cell: str) -> Path:
    """Where the raw runs of a cell are kept, below the folder `benchmarks`."""
    return folder / group.name / f"{re.sub(r'[^a-z0-9]+', '-', cell.lower()).strip('-')}.json"


def write(docs: Path) -> None:
    """Make `benchmarks.md` and the plot in `docs` from `docs/benchmarks/*/*.json`."""
    folder = docs / "benchmarks"
    (docs / "benchmarks.md").write_text(render(folder))
    _plot(budgets.verdicts(_all_runs(folder)), folder / PLOT)


def render(folder: Path) -> str:
    """The page's text from the raw runs in `folder`."""
    judged = {verdict.budget: verdict for verdict in budgets.verdicts(_all_runs(folder))}
    lines = [BUDGETS_HEAD, *(_budget_row(budget, judged.get(budget)) for budget in BUDGETS)]
    sections = [_section(group, records) for group in GROUPS if (records := _records(folder, group))]
    return "\n".join([HEAD, *lines, PLOT_LINE, *sections])


def _records(folder: Path, group: Group) -> list[Record]:
    files = [file_of(folder, group, cell) for cell in (*group.cells, *group.more_cells)]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def _all_runs(folder: Path) -> list[Run]:
    return [run for group in GROUPS for record in _records(folder, group) for run in record["runs"]]


def _budget_row(budget: Budget, verdict: Verdict | None) -> str:
    limit = f"{'≥' if budget.is_floor else '≤'} {number(budget.limit)}"
    if verdict is None:
        return f"| {budget.cell} | {budget.what} | {limit} | – | not measured |"
    word = "met" if verdict.is_met else "**not met**"
    return f"| {budget.cell} | {budget.what} | {limit} | {number(verdict.measured)} | {word} |"


def _section(group: Group, records: Sequence[Record]) -> str:
    runs = [run for record in records for run in record["runs"]]
    note = f"{group.note[0].upper()}{group.note[1:]}."
    lines = [f"## {group.title}", "", f"{note} {_circumstances(records)}", "", *tables.of(runs)]
    if group is broker_cells:
        lines += busy.section(runs, records[0]["machine"]["cores"])
    return "\n".join(lines)


def _circumstances(records: Sequence[Record]) -> str:
    """When and where the runs of a table were made, and how busy the machine was."""
    dates = sorted({record["date"] for record in records})
    machines = {
        f"{machine['cores']} cores of {machine['processor']}, {machine['memory_mib'] / 1024:.0f} GiB, "
        f"Linux {machine['kernel']}, Python {machine['python']}"
        for machine in (record["machine"] for record in records)
    }
    controls = {record["congestion_control"] for record in records}
    warm_ups = sorted(
        {
            f"{record['effort']['warm_up_seconds']:g}"
            for record in records
            if any(run["peer"] == KAFKA for run in record["runs"])
        }
    )
    warm = f"; Apache Kafka warmed up for {_span(warm_ups)} s" if warm_ups else ""
    load = [value for record in records for value in record["load_average"]]
    return (
        f"Measured {_span(dates)} at a load average (others' work and the benchmark's own) of {_span(sorted(load))}; "
        f"congestion control {_span(sorted(controls))}{warm}; {'; '.join(sorted(machines))}."
    )


def _span(values: Sequence[object]) -> str:
    return f"{values[0]}" if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def _plot(verdicts: Iterable[Verdict], file: Path) -> None:
    """Bars of the share of each budget that is used; the line at 100 % is the budget."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    verdicts = list(verdicts)
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
