"""Beside each other: what a message costs a calm broker and a busy one, and what that does to its latency."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.broker_cells import CALM
from bench.contest import KAFKA
from bench.figures import (
    Figure,
    Run,
    client_us_per_message,
    cpu_us_per_message,
    messages_per_second,
    p99_ms,
    pair_ratios,
)
from bench.runs import HEADRACE
from bench.tables import number
from bench.workloads import BUSY

TITLE = "### A busy broker beside a calm one"
NOTE = (
    f"The same rate over one partition between one publisher and one reader ({CALM}), and over {BUSY.partitions:,} partitions "
    f"between {BUSY.connections} of each, by turns on the same broker. librdkafka has no fetch sessions: with each message "
    f"a reader asks for its {BUSY.partitions // BUSY.connections} partitions again. What all of it takes of the machine's "
    "cores says how often a message finds none free."
)
HEAD = (
    "| | p99, calm (ms) | busy | × | broker's CPU per message, calm (µs) | busy | clients', calm (µs) | busy "
    "| of all cores, calm (%) | busy |\n|---|---|---|---|---|---|---|---|---|---|"
)


def section(runs: Sequence[Run], cores: int) -> list[str]:
    """The lines of it; none without runs of both cells."""
    rows = [row for peer in (HEADRACE, KAFKA) if (row := _row(runs, peer, cores))]
    return [TITLE, "", NOTE, "", HEAD, *rows, ""] if rows else []


def _row(runs: Sequence[Run], peer: str, cores: int) -> str:
    calm, busy = ([run for run in runs if (run["cell"], run["peer"]) == (c, peer)] for c in (CALM, BUSY.name))
    if not calm or not busy:
        return ""

    def share(run: Run) -> float:
        used_us = (cpu_us_per_message(run) + client_us_per_message(run)) * messages_per_second(run)
        return used_us / cores / 1e4

    def both(figure: Figure) -> list[str]:
        return [number(statistics.median(map(figure, cell))) for cell in (calm, busy)]

    growth = number(statistics.median(pair_ratios(busy, calm, p99_ms)))
    figures = [*both(p99_ms), growth, *both(cpu_us_per_message), *both(client_us_per_message), *both(share)]
    return f"| {peer} | {' | '.join(figures)} |"
