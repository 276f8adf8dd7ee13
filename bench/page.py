"""The page docs/benchmarks.md and its plot, made from the raw runs beside it and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import budgets, misses
from bench.budgets import Judged
from bench.contest import KAFKA
from bench.figures import Run, number, spread
from bench.groups import CELLS, GROUPS

RUNS = "benchmarks.json"
PLOT = "benchmarks.svg"
Record = Mapping[str, Any]
"""What is kept of a cell: where and when it ran, how busy the machine was, and its raw runs."""

HEAD = f"""# Benchmarks

What each path may cost on a machine with 2 cores, and what it does. `make bench` measures and writes this page, from the raw
runs in [`{RUNS}`]({RUNS}).

| path | figure | headrace | {KAFKA} | × | budget | |
|---|---|---|---|---|---|---|"""
PLOT_LINE = f"""
![Share of each budget that is used]({PLOT})
"""
METHOD = f"""## How it is measured

A figure is the median of the runs, with the lowest and highest in brackets. Where {KAFKA} stands beside headrace, it
runs in the same minutes with the same settings on the same disk, with the JVM options of its own start script, warm (the
time that is named below), and the client takes the two in turns: A B, B A, A B, ... The column × is the median of the ratios
of such pairs, headrace over Kafka; a budget with × is one of that ratio. Both brokers stay up; the one that is not measured
idles. What a run has written is deleted before the next.

Messages have 200 B. The load generator is a C program on librdkafka; it runs on the same machine and shares its cores with what
is measured, so that rates are what both reach together, while CPU and memory are those of the measured processes alone.
"""


def read(docs: Path) -> dict[str, Record]:
    """The records by cell, as far as there are any."""
    file = docs / RUNS
    records: dict[str, Record] = json.loads(file.read_text()) if file.exists() else {}
    return records


def keep(docs: Path, records: Mapping[str, Record]) -> None:
    """Replace the records of these cells beside the page."""
    kept = read(docs) | dict(records)
    ordered = {cell: kept[cell] for cell in CELLS if cell in kept}
    (docs / RUNS).write_text(_json(ordered))


def write(docs: Path) -> None:
    """Make the page and its plot from the raw runs beside it."""
    records = read(docs)
    (docs / "benchmarks.md").write_text(render(records))
    _plot((judged for judged in budgets.judge(_runs(records)) if judged.is_measured), docs / PLOT)


def render(records: Mapping[str, Record]) -> str:
    """The page's text."""
    judgements = budgets.judge(_runs(records))
    rows = [_row(judged) for judged in judgements]
    notes = [
        f"- {group.title}: {group.note}. {_circumstances(some)}"
        for group in GROUPS
        if (some := [records[cell] for cell in group.cells if cell in records])
    ]
    return "\n".join([HEAD, *rows, PLOT_LINE, *_profiles(judgements), METHOD, *notes, ""])


def _profiles(judgements: Iterable[Judged]) -> list[str]:
    """Where the time goes in the cells that miss a budget, as far as somebody has looked."""
    missed = dict.fromkeys(
        judged.budget.cell for judged in judgements if judged.is_measured and not judged.is_met
    )
    profiles = [f"- {cell}: {misses.PROFILES[cell]}" for cell in missed if cell in misses.PROFILES]
    return ["## Where the time goes in what is missed", "", *profiles, ""] if profiles else []


def _runs(records: Mapping[str, Record]) -> list[Run]:
    return [run for record in records.values() for run in record["runs"]]


def _row(judged: Judged) -> str:
    budget = judged.budget
    limit = f"{'≥' if budget.is_floor else '≤'} {number(budget.limit)}{' ×' if budget.is_ratio else ''}"
    limit += " the mirror's" if budget.beside else ""
    word = "not measured"
    if judged.is_measured:
        word = "met" if judged.is_met else "**not met**"
    figures = (spread(values) for values in (judged.own, judged.rivals, judged.ratios))
    return f"| {budget.cell} | {budget.what} | {' | '.join(figures)} | {limit} | {word} |"


def _circumstances(records: Sequence[Record]) -> str:
    """When and where the runs of some cells were made, and how busy the machine was."""
    dates = sorted({record["date"] for record in records})
    machines = {
        f"{machine['cores']} cores of {machine['processor']}, {machine['memory_mib'] / 1024:.0f} GiB, "
        f"Linux {machine['kernel']}, Python {machine['python']}"
        for machine in (record["machine"] for record in records)
    }
    controls = sorted({record["congestion_control"] for record in records})
    warm_ups = sorted({record["effort"]["warm_up_seconds"] for record in records if _has_rival(record)})
    warm = f"; {KAFKA} warmed up for {_span([f'{seconds:g}' for seconds in warm_ups])} s" if warm_ups else ""
    load = sorted(value for record in records for value in record["load_average"])
    return (
        f"Measured {_span(dates)} at a load average (others' work and the benchmark's own) of {_span(load)}; "
        f"congestion control {_span(controls)}{warm}; {'; '.join(sorted(machines))}."
    )


def _has_rival(record: Record) -> bool:
    return any(run["peer"] == KAFKA for run in record["runs"])


def _span(values: Sequence[object]) -> str:
    return f"{values[0]}" if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def _json(records: Mapping[str, Record]) -> str:
    """The records with one run a line."""
    cells = []
    for cell, record in records.items():
        fields = [
            f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items() if key != "runs"
        ]
        runs = ",\n".join(f"   {json.dumps(run)}" for run in record["runs"])
        cells.append(
            f" {json.dumps(cell)}: {{\n" + ",\n".join([*fields, f'  "runs": [\n{runs}\n  ]']) + "\n }"
        )
    return "{\n" + ",\n".join(cells) + "\n}\n"


def _plot(measured: Iterable[Judged], file: Path) -> None:
    """Bars of the share of each budget that is used; the line at 100 % is the budget."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    measured = list(measured)
    names = [f"{judged.budget.cell}: {judged.budget.what}" for judged in measured]
    shares = [judged.share * 100 for judged in measured]
    colours = ["#2a7f62" if judged.is_met else "#b3402f" for judged in measured]
    with pyplot.rc_context({"svg.hashsalt": "headrace", "svg.fonttype": "none"}):
        figure, axes = pyplot.subplots(figsize=(9, 0.4 * len(measured) + 1))
        axes.bar_label(axes.barh(names, shares, color=colours), fmt="%.0f %%", padding=3)
        axes.axvline(100, color="#444444", linestyle="--", linewidth=1)
        axes.set_xlim(0, max([110.0, *shares]) * 1.1)
        axes.set_xlabel("share of the budget that is used (%)")
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(file, bbox_inches="tight", metadata={"Date": None})
        pyplot.close(figure)
