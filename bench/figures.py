"""What is computed from raw runs: figures of one run, and ratios of pairs. Must not know how a cell is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Run = Mapping[str, Any]
Figure = Callable[[Run], float]


def cpu_us_per_message(run: Run) -> float:
    return float(run["cpu_seconds"]) / int(run["messages"]) * 1e6


def kernel_us_per_message(run: Run) -> float:
    """NaN where a cell does not tell the kernel's part."""
    return float(run["figures"].get("kernel_cpu_seconds", math.nan)) / int(run["messages"]) * 1e6


def client_us_per_message(run: Run) -> float:
    """NaN where a cell does not tell the clients' CPU."""
    return float(run["figures"].get("client_cpu_seconds", math.nan)) / int(run["messages"]) * 1e6


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


def p50_ms(run: Run) -> float:
    return float(run["figures"]["p50_ms"])


def p99_ms(run: Run) -> float:
    return float(run["figures"]["p99_ms"])


def p999_ms(run: Run) -> float:
    return float(run["figures"]["p999_ms"])


def wake_ups_per_second(run: Run) -> float:
    return float(run["figures"]["wake_ups_per_second"])


def cpu_ms_per_second(run: Run) -> float:
    return float(run["cpu_seconds"]) * 1e3 / float(run["seconds"])


def pair_ratios(runs: Sequence[Run], others: Sequence[Run], figure: Figure) -> list[float]:
    """The figure of each run over that of the other run of the same round; rounds without both are left out."""
    by_round = {other["round"]: other for other in others}
    return [
        figure(run) / max(figure(by_round[run["round"]]), 1e-9) for run in runs if run["round"] in by_round
    ]
