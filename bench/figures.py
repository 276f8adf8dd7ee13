"""What is computed from raw runs: figures of one run, ratios of pairs, and how a number is written.

Must not know how a cell is measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Run = Mapping[str, Any]
Figure = Callable[[Run], float]


def cpu_us_per_message(run: Run) -> float:
    return float(run["cpu_seconds"]) / int(run["messages"]) * 1e6


def mb_per_cpu_second(run: Run) -> float:
    return float(run["bytes"]) / 1e6 / max(float(run["cpu_seconds"]), 0.01)


def messages_per_second(run: Run) -> float:
    return int(run["messages"]) / float(run["seconds"])


def seconds(run: Run) -> float:
    return float(run["seconds"])


def memory_mib(run: Run) -> float:
    return float(run["memory_mib"])


def p99_ms(run: Run) -> float:
    return float(run["figures"]["p99_ms"])


def wake_ups_per_second(run: Run) -> float:
    return float(run["figures"]["wake_ups_per_second"])


def mb_per_second(run: Run) -> float:
    return float(run["bytes"]) / 1e6 / float(run["seconds"])


def p50_ms(run: Run) -> float:
    return float(run["figures"]["p50_ms"])


def cpu_percent(run: Run) -> float:
    return float(run["figures"]["cpu_percent"])


def update_seconds(run: Run) -> float:
    return float(run["figures"]["update_seconds"])


def cpu_ratio(run: Run) -> float:
    return float(run["figures"]["cpu_ratio"])


def pair_ratios(runs: Sequence[Run], others: Sequence[Run], figure: Figure) -> list[float]:
    """The figure of each run over that of the other run of the same round; rounds without both are left out."""
    by_round = {other["round"]: other for other in others}
    return [
        figure(run) / max(figure(by_round[run["round"]]), 1e-9) for run in runs if run["round"] in by_round
    ]


def number(value: float) -> str:
    """Three significant digits below a hundred, whole numbers above."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """The median, with the lowest and highest; a dash for none."""
    if not values:
        return "–"
    middle = number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))}–{number(max(values))})"


def sentence(run: Run) -> str:
    """One line for the terminal."""
    figures = run["figures"]
    if "wake_ups_per_second" in figures:
        said = f"{number(wake_ups_per_second(run))} wake-ups/s, {number(cpu_ratio(run))} × the CPU"
    elif "p99_ms" in figures and not run["messages"]:
        said = f"{number(seconds(run))} s, p99 {number(p99_ms(run))} ms"
    elif "p99_ms" in figures:
        said = f"p99 {number(p99_ms(run))} ms"
    elif run["messages"]:
        said = (
            f"{number(messages_per_second(run))} messages/s, {number(cpu_us_per_message(run))} µs of CPU each"
        )
    else:
        said = f"{number(seconds(run))} s"
    return f"{run['cell']}, {run['peer']}: {said}, {number(memory_mib(run))} MiB"
