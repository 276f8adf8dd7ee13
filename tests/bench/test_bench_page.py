"""The page of benchmarks says what the raw runs say, and the one in the repository is current."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench import broker_cells, budgets, groups, load_cells, mirror_cells, page
from bench.command import bench
from bench.contest import KAFKA, in_turns
from bench.groups import CELLS, GROUPS, MORE_CELLS
from bench.peers import Peer
from bench.workloads import BUSY, FETCH, LATENCY_1K, MATRIX, PRODUCE_50

DOCS = Path(__file__).parents[2] / "docs"
PAIRS_MIN, ROUNDS_MIN = 7, 3
BATCH_50, START = PRODUCE_50.name, broker_cells.START


def run(cell: str, **figures: Any) -> dict[str, Any]:
    usual = {
        "messages": 1_000_000,
        "bytes": 200_000_000,
        "seconds": 2.0,
        "cpu_seconds": 0.5,
        "memory_mib": 40,
        "figures": {},
    }
    return {"cell": cell, "peer": "headrace", "round": 0, "settings": {}, **usual, **figures}


def record(*runs: dict[str, Any]) -> dict[str, Any]:
    machine = {"processor": "P", "cores": 2, "memory_mib": 8192, "kernel": "6.1", "python": "3.11"}
    effort = {"warm_up_seconds": 60.0}
    head = {"date": "2026-01-02", "congestion_control": "cubic", "load_average": [0.1, 0.2], "effort": effort}
    return {**head, "machine": machine, "runs": list(runs)}


def keep(folder: Path, *runs: dict[str, Any]) -> None:
    """Lay the runs down where the page looks for those of their cell."""
    for cell in {run["cell"] for run in runs}:
        group = next(group for group, other in groups.every_cell() if other == cell)
        file = page.file_of(folder, group, cell)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record(*(run for run in runs if run["cell"] == cell))))


def rendered(folder: Path, *runs: dict[str, Any]) -> str:
    keep(folder, *runs)
    return page.render(folder)


def pairs(cell: str, own: Iterable[dict[str, Any]], rivals: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rounds of headrace and of Apache Kafka."""
    return [
        run(cell, peer=peer, round=number, **figures)
        for peer, runs in (("headrace", own), (KAFKA, rivals))
        for number, figures in enumerate(runs)
    ]


def test_the_page_in_the_repository_is_made_from_the_raw_runs_beside_it() -> None:
    assert (DOCS / "benchmarks.md").read_text() == page.render(DOCS / "benchmarks")
    assert (DOCS / "benchmarks" / page.PLOT).read_text().startswith("<?xml")


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_the_raw_runs_in_the_repository_hold_every_cell_several_times(group: Any) -> None:
    for cell in group.cells:
        runs = json.loads(page.file_of(DOCS / "benchmarks", group, cell).read_text())["runs"]
        rounds = {run["round"] for run in runs if run["peer"] != KAFKA}
        is_steady = group is broker_cells and cell in broker_cells.WORKLOADS
        assert len(rounds) >= (PAIRS_MIN if is_steady else 1 if cell == broker_cells.IDLE else ROUNDS_MIN), (
            cell
        )
        if is_steady:
            assert rounds == {run["round"] for run in runs if run["peer"] == KAFKA}, cell


def test_every_cell_that_runs_by_name_has_been_recorded_in_pairs() -> None:
    for cell in broker_cells.more_cells:
        runs = json.loads(page.file_of(DOCS / "benchmarks", broker_cells, cell).read_text())["runs"]
        own, rivals = (
            {run["round"] for run in runs if (run["peer"] == KAFKA) is other} for other in (False, True)
        )
        assert own == rivals, cell
        assert len(own) >= PAIRS_MIN, cell


def test_every_budget_is_of_a_cell_that_is_measured_in_every_run() -> None:
    assert {budget.cell for budget in budgets.BUDGETS} <= set(CELLS)


def test_all_shapes_of_a_load_have_a_cell_of_their_own() -> None:
    assert len(set(CELLS) | set(MORE_CELLS)) == len(CELLS) + len(MORE_CELLS)
    assert len({page.file_of(DOCS, group, cell) for group, cell in groups.every_cell()}) == len(
        CELLS + MORE_CELLS
    )
    assert set(MATRIX) <= set(CELLS) | set(MORE_CELLS)
    name = "produce, batch of 50, 64 partitions, 50 connections, acks=all, lz4"
    settings = {"partitions": 64, "connections": 50, "acks": "all", "codec": "lz4", "batch": 50}
    assert MATRIX[name].settings == settings


def test_the_one_that_began_a_pair_ends_the_next() -> None:
    a, b = (Peer(name=name, bootstrap="", process=None, start_seconds=0.0) for name in "ab")  # type: ignore[arg-type]
    order = "".join(peer.name for _, peer in in_turns([a, b], 4))
    assert order == "abbaabba"


def test_a_row_shows_median_lowest_and_highest(tmp_path: Path) -> None:
    text = rendered(
        tmp_path, *(run(BATCH_50, cpu_seconds=cpu, round=n) for n, cpu in enumerate((0.4, 0.9, 0.5)))
    )
    assert f"| {BATCH_50} | 3 | 500,000 (500,000–500,000) | 100 (100–100) | 0.5 (0.4–0.9) |" in text


def test_a_rival_stands_beside_with_the_ratios_of_pairs_not_of_medians(tmp_path: Path) -> None:
    own = [{"messages": messages} for messages in (100, 200, 900)]
    rivals = [{"messages": messages} for messages in (50, 20, 300)]
    text = rendered(tmp_path, *pairs(BATCH_50, own, rivals))
    assert f"| {BATCH_50} | 3 | 100 (50–450) | 25 (10–150) | 3 (2–10) |" in text
    assert f"| {BATCH_50} | messages/s, times {KAFKA}'s | ≥ 2 | 3 | met |" in text


def test_what_of_the_cpu_is_the_kernels_is_told_where_it_is_known(tmp_path: Path) -> None:
    own = [{"figures": {"kernel_cpu_seconds": 0.2}}]
    known = rendered(tmp_path, *pairs(BATCH_50, own, [{"figures": {"kernel_cpu_seconds": 0.4}}]))
    assert "| 0.5 | 0.5 | 1 | 0.2 | 0.4 | 0.5 | 40 |" in known
    assert "| 0.5 | 0.5 | 1 | – | – | – | 40 |" in rendered(tmp_path, *pairs(BATCH_50, [{}], [{}]))


def test_a_busy_broker_stands_beside_a_calm_one(tmp_path: Path) -> None:
    def latencies(
        cell: str, cpu_seconds: float, clients_seconds: float, *p99_ms: float
    ) -> list[dict[str, Any]]:
        figures = {"p50_ms": 1, "p999_ms": 9, "client_cpu_seconds": clients_seconds}
        return [
            run(
                cell,
                round=n,
                messages=10_000,
                seconds=10,
                cpu_seconds=cpu_seconds,
                figures={**figures, "p99_ms": p99},
            )
            for n, p99 in enumerate(p99_ms)
        ]

    calm, busy = latencies(broker_cells.CALM, 2, 1, 1, 2, 3), latencies(BUSY.name, 4, 8, 4, 2, 9)
    assert "| headrace | 2 | 4 | 3 | 200 | 400 | 100 | 800 | 15 | 60 |" in rendered(tmp_path, *calm, *busy)
    assert "A busy broker" not in rendered(tmp_path / "calm", *calm)


def test_a_round_that_lacks_one_of_the_two_makes_no_pair(tmp_path: Path) -> None:
    text = rendered(tmp_path, *pairs(BATCH_50, [{"messages": 100}, {"messages": 1}], [{"messages": 100}]))
    assert f"| {BATCH_50} | messages/s, times {KAFKA}'s | ≥ 2 | 1 | **not met** |" in text


def test_without_a_rival_its_comparisons_are_not_measured(tmp_path: Path) -> None:
    text = rendered(tmp_path, run(BATCH_50))
    assert f"| {BATCH_50} | messages/s, times {KAFKA}'s | ≥ 2 | – | not measured |" in text
    assert f"| {BATCH_50} | CPU per message (µs) | ≤ 0.8 | 0.5 | met |" in text


def test_latencies_have_a_table_of_their_own(tmp_path: Path) -> None:
    own = [{"figures": {"p50_ms": 0.5, "p99_ms": p99, "p999_ms": 9.0}} for p99 in (1.0, 2.0, 4.0)]
    rivals = [{"figures": {"p50_ms": 1.0, "p99_ms": 4.0, "p999_ms": 9.0}}] * 3
    text = rendered(tmp_path, *pairs(LATENCY_1K.name, own, rivals))
    assert f"| {LATENCY_1K.name} | 3 | 0.5 (0.5–0.5) | 1 (1–1) | 0.5 (0.5–0.5) | 2 (1–4) | 4 (4–4) |" in text
    assert f"| {LATENCY_1K.name} | p99, times {KAFKA}'s | ≤ 1 | 0.5 | met |" in text


def test_beside_a_latency_stands_what_its_clients_cost(tmp_path: Path) -> None:
    figures = {"p50_ms": 0.5, "p99_ms": 1.0, "p999_ms": 9.0, "client_cpu_seconds": 0.25}
    text = rendered(tmp_path, *pairs(LATENCY_1K.name, [{"figures": figures}], [{"figures": figures}]))
    assert "| 9 | 9 | 1 | 0.5 | 0.5 | 1 | 0.25 | 0.25 | 1 |" in text


def test_a_busy_broker_is_held_against_itself_when_calm(tmp_path: Path) -> None:
    def latency(cell: str, number: int, p99: float) -> dict[str, Any]:
        return run(cell, round=number, figures={"p50_ms": 0.1, "p99_ms": p99, "p999_ms": 9.0})

    busy = [latency(BUSY.name, number, p99) for number, p99 in enumerate((3.0, 3.0, 9.0))]
    calm = [latency(broker_cells.CALM, number, p99) for number, p99 in enumerate((1.0, 2.0, 3.0))]
    text = rendered(tmp_path, *busy, *calm)
    assert "one connection on the same broker | ≤ 2 | 3 | **not met** |" in text


def test_a_ceiling_is_met_up_to_its_limit(tmp_path: Path) -> None:
    text = rendered(tmp_path, run(BATCH_50, cpu_seconds=0.8))
    assert f"| {BATCH_50} | CPU per message (µs) | ≤ 0.8 | 0.8 | met |" in text
    text = rendered(tmp_path, run(BATCH_50, cpu_seconds=0.81))
    assert f"| {BATCH_50} | CPU per message (µs) | ≤ 0.8 | 0.81 | **not met** |" in text


def test_a_floor_is_met_from_its_limit_on(tmp_path: Path) -> None:
    cell = mirror_cells.BATCH_MAX
    text = rendered(tmp_path, run(cell, bytes=520_000_000, cpu_seconds=1.0))
    assert f"| {cell} | MB per CPU-second | ≥ 520 | 520 | met |" in text
    text = rendered(tmp_path, run(cell, bytes=519_000_000, cpu_seconds=1.0))
    assert f"| {cell} | MB per CPU-second | ≥ 520 | 519 | **not met** |" in text


def test_a_budget_is_judged_by_the_median_of_the_rounds(tmp_path: Path) -> None:
    rates = [run(load_cells.FLAT, messages=number, seconds=1.0) for number in (2_000_000, 900_000, 950_000)]
    assert "| ≥ 1,000,000 | 950,000 | **not met** |" in rendered(tmp_path, *rates)


def test_what_a_load_costs_at_its_start_is_taken_off(tmp_path: Path) -> None:
    start = run(load_cells.ONE, messages=1, cpu_seconds=8.0)
    text = rendered(tmp_path, start, run(load_cells.FLAT, messages=4_000_001, cpu_seconds=14.0))
    assert "| ≤ 2 | 1.5 | met |" in text


def test_a_start_has_no_rates(tmp_path: Path) -> None:
    text = rendered(tmp_path, run(START, messages=0, bytes=0, seconds=1.5))
    assert f"| {START} | 1 | 1.5 | 40 |" in text


def test_a_cell_that_does_not_exist_is_refused_with_where_their_names_are() -> None:
    outcome = CliRunner().invoke(bench, ["--cell", "nonsense"])
    assert outcome.exit_code == 2
    assert "'nonsense'" in outcome.output
    assert "--list" in outcome.output
    listed = CliRunner().invoke(bench, ["--list"])
    assert set(listed.output.splitlines()) == {*CELLS, *MORE_CELLS}


def test_a_cell_that_ran_replaces_its_raw_runs_and_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA_JARS", str(tmp_path))
    folder = tmp_path / "benchmarks"
    keep(folder, run(FETCH.name), run(START, seconds=99.0))
    kept = page.file_of(folder, broker_cells, FETCH.name)
    before = kept.read_text()
    outcome = CliRunner().invoke(bench, ["--pairs", "1", "--cell", START, "--docs", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    assert "headrace is measured alone" in outcome.output
    assert kept.read_text() == before
    runs = json.loads(page.file_of(folder, broker_cells, START).read_text())["runs"]
    assert [run["peer"] for run in runs] == ["headrace"]
    assert runs[0]["seconds"] < 99
    assert (tmp_path / "benchmarks.md").read_text() == page.render(folder)
