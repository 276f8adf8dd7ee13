"""The page of benchmarks says what the raw runs say, and the one in the repository is current."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.bench import budgets, load_cells, page
from headrace.bench.broker_cells import BATCH_50, START
from headrace.bench.command import CELLS, GROUPS, bench
from headrace.bench.mirror_cells import BATCH_MAX

DOCS = Path(__file__).parents[2] / "docs"
ROUNDS_MIN = 3


def run(cell: str, **figures: Any) -> dict[str, Any]:
    usual = {
        "messages": 1_000_000,
        "bytes": 200_000_000,
        "seconds": 2.0,
        "cpu_seconds": 0.5,
        "memory_mib": 40,
    }
    return {"cell": cell, "peer": "headrace", "round": 0, "settings": {}, **usual, **figures}


def record(*runs: dict[str, Any]) -> dict[str, Any]:
    machine = {"processor": "P", "cores": 2, "memory_mib": 8192, "kernel": "6.1", "python": "3.11"}
    head = {"title": "Broker", "date": "2026-01-02", "note": "as it comes", "load_average": [0.1, 0.2]}
    return {**head, "machine": machine, "runs": list(runs)}


def rendered(folder: Path, name: str, *runs: dict[str, Any]) -> str:
    (folder / f"{name}.json").write_text(json.dumps(record(*runs)))
    return page.render(folder)


def test_the_page_in_the_repository_is_made_from_the_raw_runs_beside_it() -> None:
    assert (DOCS / "benchmarks.md").read_text() == page.render(DOCS / "benchmarks")
    assert (DOCS / "benchmarks" / page.PLOT).read_text().startswith("<?xml")


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_the_raw_runs_in_the_repository_hold_every_cell_several_times(group: Any) -> None:
    runs = json.loads((DOCS / "benchmarks" / f"{group.name}.json").read_text())["runs"]
    for cell in group.cells:
        assert len({run["round"] for run in runs if run["cell"] == cell}) >= ROUNDS_MIN, cell


def test_every_budget_is_of_a_cell_that_is_measured() -> None:
    assert {budget.cell for budget in budgets.BUDGETS} <= set(CELLS)


def test_a_row_shows_median_lowest_and_highest(tmp_path: Path) -> None:
    text = rendered(tmp_path, "broker", *(run(BATCH_50, cpu_seconds=cpu) for cpu in (0.4, 0.9, 0.5)))
    assert f"| {BATCH_50} | 500,000 (500,000–500,000) | 100 (100–100) | 0.5 (0.4–0.9) |" in text


def test_a_ceiling_is_met_up_to_its_limit(tmp_path: Path) -> None:
    text = rendered(tmp_path, "broker", run(BATCH_50, cpu_seconds=0.8))
    assert f"| {BATCH_50} | CPU per message (µs) | ≤ 0.8 | 0.8 | met |" in text
    text = rendered(tmp_path, "broker", run(BATCH_50, cpu_seconds=0.81))
    assert f"| {BATCH_50} | CPU per message (µs) | ≤ 0.8 | 0.81 | **not met** |" in text


def test_a_floor_is_met_from_its_limit_on(tmp_path: Path) -> None:
    text = rendered(tmp_path, "mirror", run(BATCH_MAX, bytes=520_000_000, cpu_seconds=1.0))
    assert f"| {BATCH_MAX} | MB per CPU-second | ≥ 520 | 520 | met |" in text
    text = rendered(tmp_path, "mirror", run(BATCH_MAX, bytes=519_000_000, cpu_seconds=1.0))
    assert f"| {BATCH_MAX} | MB per CPU-second | ≥ 520 | 519 | **not met** |" in text


def test_a_budget_is_judged_by_the_median_of_the_rounds(tmp_path: Path) -> None:
    rates = [run(load_cells.FLAT, messages=number, seconds=1.0) for number in (2_000_000, 900_000, 950_000)]
    assert "| ≥ 1,000,000 | 950,000 | **not met** |" in rendered(tmp_path, "load", *rates)


def test_what_a_load_costs_at_its_start_is_taken_off(tmp_path: Path) -> None:
    start = run(load_cells.ONE, messages=1, cpu_seconds=8.0)
    text = rendered(tmp_path, "load", start, run(load_cells.FLAT, messages=4_000_001, cpu_seconds=14.0))
    assert "| ≤ 2 | 1.5 | met |" in text


def test_a_start_has_no_rates(tmp_path: Path) -> None:
    text = rendered(tmp_path, "broker", run(START, messages=0, bytes=0, seconds=1.5))
    assert f"| {START} | – | – | – | – | 1.5 | 40 |" in text


def test_a_cell_that_does_not_exist_is_refused_with_those_that_do() -> None:
    outcome = CliRunner().invoke(bench, ["--cell", "nonsense"])
    assert outcome.exit_code == 2
    assert BATCH_50 in outcome.output


def test_part_of_a_table_leaves_its_raw_runs_alone(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    kept = json.dumps(record(run(BATCH_50)))
    (tmp_path / "benchmarks" / "broker.json").write_text(kept)
    arguments = ["--rounds", "1", "--cell", START, "--docs", str(tmp_path)]
    outcome = CliRunner().invoke(bench, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert "not all cells" in outcome.output
    assert (tmp_path / "benchmarks" / "broker.json").read_text() == kept
    assert (tmp_path / "benchmarks.md").read_text() == page.render(tmp_path / "benchmarks")
