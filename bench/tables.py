"""Raw runs as Markdown tables: one of rates, one of latencies, one of brokers at rest, each with its peers side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from bench import figures
from bench.contest import KAFKA
from bench.figures import Figure, Run, pair_ratios

Column = tuple[str, Figure]
RATES: tuple[Column, ...] = (
    ("messages/s", figures.messages_per_second),
    ("MB/s", figures.megabytes_per_second),
    ("CPU per message (µs)", figures.cpu_us_per_message),
    ("MB per CPU-second", figures.mb_per_cpu_second),
    ("memory (MiB)", figures.memory_mib),
)
PAIRED_RATES: tuple[Column, ...] = (
    ("messages/s", figures.messages_per_second),
    ("CPU per message (µs)", figures.cpu_us_per_message),
    ("of it in the kernel (µs)", figures.kernel_us_per_message),
    ("memory (MiB)", figures.memory_mib),
)
LATENCIES: tuple[Column, ...] = (
    ("p50 (ms)", figures.p50_ms),
    ("p99 (ms)", figures.p99_ms),
    ("p99.9 (ms)", figures.p999_ms),
    ("CPU per message (µs)", figures.cpu_us_per_message),
    ("its clients' (µs)", figures.client_us_per_message),
)
REST: tuple[Column, ...] = (("seconds", figures.seconds), ("memory (MiB)", figures.memory_mib))
IDLENESS: tuple[Column, ...] = (
    ("wake-ups per second", figures.wake_ups_per_second),
    ("CPU (ms per second)", figures.cpu_ms_per_second),
    ("memory (MiB)", figures.memory_mib),
)


def of(runs: Sequence[Run]) -> list[str]:
    """The tables of a section, as lines, for whichever kinds of runs there are."""
    kinds: dict[tuple[Column, ...], list[Run]] = {RATES: [], LATENCIES: [], REST: [], IDLENESS: []}
    for run in runs:
        kinds[_columns_of(run)].append(run)
    return [line for columns, some in kinds.items() if some for line in (*_table(columns, some), "")]


def number(value: float) -> str:
    """Three significant digits below a hundred, whole numbers above."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(values: Iterable[float]) -> str:
    """The median, with the lowest and highest."""
    numbers = [value for value in values if not math.isnan(value)]
    if not numbers:
        return "–"
    middle = number(statistics.median(numbers))
    return middle if len(numbers) == 1 else f"{middle} ({number(min(numbers))}–{number(max(numbers))})"


def sentence(run: Run) -> str:
    """One line for the terminal."""
    columns = _columns_of(run)
    values = ", ".join(f"{number(figure(run))} {name}" for name, figure in columns)
    return f"{run['cell']}, {run['peer']}: {values}"


def _columns_of(run: Run) -> tuple[Column, ...]:
    if "p50_ms" in run["figures"]:
        return LATENCIES
    if "wake_ups_per_second" in run["figures"]:
        return IDLENESS
    # Neither a start nor a single message has a rate.
    return RATES if int(run["messages"]) > 1 else REST


def _table(columns: tuple[Column, ...], runs: Sequence[Run]) -> list[str]:
    has_rival = any(run["peer"] == KAFKA for run in runs)
    if has_rival and columns == RATES:
        columns = PAIRED_RATES
    heads = [head for name, _ in columns for head in ((name, "Kafka", "×") if has_rival else (name,))]
    cells = dict.fromkeys(run["cell"] for run in runs)
    return [
        f"| cell | runs | {' | '.join(heads)} |",
        "|---" * (len(heads) + 2) + "|",
        *(_row(cell, columns, [run for run in runs if run["cell"] == cell], has_rival) for cell in cells),
    ]


def _row(cell: str, columns: tuple[Column, ...], runs: Sequence[Run], has_rival: bool) -> str:
    rivals = [run for run in runs if run["peer"] == KAFKA]
    own = [run for run in runs if run["peer"] != KAFKA]
    fields = [cell, str(len(own))]
    for _, figure in columns:
        fields.append(spread(figure(run) for run in own))
        if has_rival:
            fields.append(spread(figure(run) for run in rivals))
            fields.append(spread(pair_ratios(own, rivals, figure)))
    return f"| {' | '.join(fields)} |"
