"""All cells of the benchmarks, in the order of the page, and what a name on the command line stands for."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from bench import (
    audit_cells,
    audit_page_cells,
    audit_share_cells,
    broker_cells,
    catching_up_cells,
    cluster_cells,
    fail_over_cells,
    idle_cells,
    load_cells,
    log_in_cells,
    mirror_cells,
    mirror_distance_cells,
    mirror_upkeep_cells,
    producer_cells,
    quota_cells,
    tls_cells,
    transaction_cells,
)
from bench.runs import Group, RawRun, Workshop

GROUPS: tuple[Group, ...] = (
    broker_cells,
    quota_cells,
    tls_cells,
    log_in_cells,
    cluster_cells,
    transaction_cells,
    fail_over_cells,
    idle_cells,
    mirror_cells,
    mirror_distance_cells,
    mirror_upkeep_cells,
    catching_up_cells,
    load_cells,
    audit_cells,
    audit_share_cells,
    audit_page_cells,
    producer_cells,
)
CELLS = tuple(cell for group in GROUPS for cell in group.cells)
PAIRED_CELLS = {
    *broker_cells.cells,
    *quota_cells.cells,
    *tls_cells.cells,
    *log_in_cells.cells,
    *cluster_cells.cells,
    *transaction_cells.cells,
} - {broker_cells.START_DEV}
"""The cells whose every run has one of Apache Kafka beside it."""
KAFKA_CELLS = {*PAIRED_CELLS, *fail_over_cells.RIVALLED, *mirror_cells.cells}
"""The cells that have Apache Kafka beside headrace in one run at least."""


def choose(names: tuple[str, ...]) -> set[str]:
    """The cells that names of cells or groups stand for; without names all. Raises KeyError with a name."""
    by_name = {cell: {cell} for cell in CELLS}
    by_name |= {group.name: set(group.cells) for group in GROUPS}
    return set().union(*(by_name[name] for name in names)) if names else set(CELLS)


def expected(wanted: str, workshop: Workshop) -> tuple[int, float]:
    """How many runs a cell yields, and about how many seconds they all take."""
    return next(group.expected(wanted, workshop) for group in GROUPS if wanted in group.cells)


def measure(wanted: Collection[str], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells, group by group."""
    for group in GROUPS:
        cells = tuple(cell for cell in group.cells if cell in wanted)
        if cells:
            with workshop.folder(group.name) as data:
                yield from group.measure(cells, replace(workshop, data=data))
