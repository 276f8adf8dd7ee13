"""The page docs/benchmarks.md, made from the raw runs beside it and from nothing else."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HEAD = """# Benchmarks

Made by `make bench` from the raw runs in `benchmarks/`. One broker, messages of 200 B, the C client librdkafka as load
generator on the same machine; medians of the rounds with the lowest and highest in brackets. CPU is that of the measured
process alone.
"""


def render(folder: Path) -> str:
    """The page's text from every `*.json` of raw runs in `folder`."""
    parts = [HEAD]
    for file in sorted(folder.glob("*.json")):
        recorded = json.loads(file.read_text())
        parts.append(_section(recorded))
    return "\n".join(parts)


def _section(recorded: dict[str, Any]) -> str:
    machine = recorded["machine"]
    lines = [
        f"## {recorded['title']}",
        "",
        f"{machine['cores']} cores of {machine['processor']}, {machine['memory_mib'] // 1024} GiB, Linux "
        f"{machine['kernel']}, Python {machine['python']}; {recorded['date']}; {recorded['note']}",
        "",
        "| path | messages/s | MB/s | CPU per message (µs) | MB per CPU-second | memory (MiB) |",
        "|---|---|---|---|---|---|",
    ]
    cells: dict[str, list[dict[str, Any]]] = {}
    for run in recorded["runs"]:
        cells.setdefault(run["cell"], []).append(run)
    lines += [_row(cell, runs) for cell, runs in cells.items()]
    return "\n".join(lines) + "\n"


def _row(cell: str, runs: list[dict[str, Any]]) -> str:
    columns = (
        _spread((run["messages"] / run["seconds"] for run in runs), "{:,.0f}"),
        _spread((run["bytes"] / run["seconds"] / 1e6 for run in runs), "{:,.1f}"),
        _spread((run["cpu_seconds"] / run["messages"] * 1e6 for run in runs), "{:,.2f}"),
        _spread((run["bytes"] / 1e6 / max(run["cpu_seconds"], 1e-9) for run in runs), "{:,.0f}"),
        _spread((run["memory_mib"] for run in runs), "{:,.0f}"),
    )
    return f"| {cell} | " + " | ".join(columns) + " |"


def _spread(values: Iterable[float], pattern: str) -> str:
    numbers = list(values)
    low, middle, high = min(numbers), statistics.median(numbers), max(numbers)
    if len(numbers) == 1:
        return pattern.format(middle)
    return f"{pattern.format(middle)} ({pattern.format(low)}–{pattern.format(high)})"
